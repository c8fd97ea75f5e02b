"""``python -m verification.simulation``: runs seeds; exit code 1 if one breaks an invariant."""

import sys
from functools import partial
from shlex import quote
from typing import Final

import click

from verification.simulation.command import Simulation, Wanted, options, simulate
from verification.simulation.cuts import shrink
from verification.simulation.plan import FAULTS, Taste
from verification.simulation.world import run_seed

_SEEDS: Final = 2000
_CHUNK: Final = 25


@click.command()
@options(_SEEDS, FAULTS)
def main(wanted: Wanted, faults: tuple[str, ...]) -> None:
    """Simulates kproxy among clients, brokers and faults, and checks what it promises."""
    one = partial(run_seed, Taste(faults=faults))
    only = "" if faults == FAULTS else f" --faults {quote(','.join(faults))}"

    def again(seed: int) -> str:
        return f"--first-seed {seed} --seeds 1{only}"

    sys.exit(simulate(Simulation(one, shrink, lambda plan: plan.clients, "requests", _CHUNK, again), wanted))


if __name__ == "__main__":
    main()
