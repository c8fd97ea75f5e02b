"""``python -m verification.simulation``: runs seeds; exit code 1 if one breaks an invariant."""

import sys
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import Final

import click

from verification.simulation.command import Simulation, Wanted, options, simulate
from verification.simulation.cuts import shrink
from verification.simulation.plan import FAULTS, ROUTES
from verification.simulation.tastes import FLEET, WIDE, WIDE_FLEET, Taste, with_numbers
from verification.simulation.world import run_seed

_SEEDS: Final = 2000
_CHUNK: Final = 25


@click.command()
@click.option("--wide", is_flag=True, help="Networks and clients have what they have beyond a server room.")
@click.option("--fleet", is_flag=True, help="Clients move between two or three instances.")
@click.option("--numbered", is_flag=True, help="Two in three clients are idempotent; half raise epochs.")
@options(_SEEDS, FAULTS, ROUTES)
def main(wanted: Wanted, faults: tuple[str, ...], *, fleet: bool, wide: bool, numbered: bool) -> None:
    """Simulates kproxy among clients, brokers and faults, and checks what it promises."""
    taste = (WIDE_FLEET if wide else FLEET) if fleet else (WIDE if wide else Taste())
    only = " --fleet" * fleet + " --wide" * wide + " --numbered" * numbered
    if numbered:
        taste = with_numbers(taste)
    if faults != FAULTS:
        taste = replace(taste, faults=tuple(fault for fault in faults if fault in taste.faults))
        only = f" --faults {quote(','.join(faults))}" + only
    one = partial(run_seed, taste)

    def again(seed: int) -> str:
        return f"--first-seed {seed} --seeds 1{only}"

    sys.exit(simulate(Simulation(one, shrink, lambda plan: plan.clients, "requests", _CHUNK, again), wanted))


if __name__ == "__main__":
    main()
