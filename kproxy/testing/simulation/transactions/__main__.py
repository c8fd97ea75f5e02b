"""``python -m kproxy.testing.simulation.transactions``: runs seeds; exit code 1 if one breaks an invariant."""

import sys
from collections.abc import Iterable
from functools import partial
from typing import Final

import click

from kproxy.proxy.homes import Home
from kproxy.testing.simulation.command import Simulation, Wanted, options, simulate
from kproxy.testing.simulation.plan import Plan
from kproxy.testing.simulation.transactions.cuts import shrink
from kproxy.testing.simulation.transactions.homes import FAULTS, HOMES
from kproxy.testing.simulation.transactions.plan import Taste, WorldPlan
from kproxy.testing.simulation.transactions.world import run_seed

_SEEDS: Final = 300
#: A run takes a second or two.
_CHUNK: Final = 10


def _cast(plan: Plan) -> Iterable[object]:
    assert isinstance(plan, WorldPlan)
    return (plan.place, *plan.producers, *plan.readers)


@click.command()
@click.option(
    "--home",
    "homes",
    multiple=True,
    type=click.Choice([home.value for home in HOMES]),
    help="One only; may be repeated.",
)
@options(_SEEDS, FAULTS)
def main(wanted: Wanted, faults: tuple[str, ...], homes: tuple[str, ...]) -> None:
    """Simulates transactions of both homes among brokers, readers and faults, and checks what kproxy promises."""
    one = partial(run_seed, Taste(faults=faults, homes=tuple(map(Home, homes)) or HOMES))
    sys.exit(simulate(Simulation(one, shrink, _cast, "transactions", _CHUNK), wanted))


if __name__ == "__main__":
    main()
