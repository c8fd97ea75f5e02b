"""``python -m verification.simulation.transactions``: runs seeds; exit code 1 if one breaks an invariant."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import click

from kproxy.proxy.coordinator_rules import Home
from verification.simulation.command import Simulation, Wanted, options, simulate
from verification.simulation.plan import Plan
from verification.simulation.transactions.cuts import shrink
from verification.simulation.transactions.homes import FAULTS, HOMES, LONE_FAULTS, OUTAGES
from verification.simulation.transactions.matrix import Matrix, each_fault, repetition
from verification.simulation.transactions.plan import ROAMING, Taste, WorldPlan
from verification.simulation.transactions.world import CONTINUED

_SEEDS: Final = 300
#: A run takes about a second of processor time.
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
@click.option(
    "--each-fault", "alone", is_flag=True, help="Each home and kind of fault alone, and all together, in turn."
)
@click.option("--roam", is_flag=True, help="Clients go to other kproxies within transactions; home kproxy only.")
@options(_SEEDS, FAULTS, LONE_FAULTS + OUTAGES)
def main(wanted: Wanted, faults: tuple[str, ...], homes: tuple[str, ...], alone: bool, roam: bool) -> None:
    """Simulates transactions of both homes among brokers, readers and faults, and checks what kproxy promises."""
    asked = tuple(map(Home, homes))
    if roam and asked not in ((), ROAMING.homes):
        raise click.UsageError("--roam has the home kproxy")
    taste = replace(ROAMING, faults=faults) if roam else Taste(faults=faults, homes=asked or HOMES)
    matrix = each_fault(taste) if alone else Matrix((taste,))

    def again(seed: int) -> str:
        return repetition(matrix.of(seed), seed, FAULTS)

    sys.exit(simulate(Simulation(matrix.run, shrink, _cast, "transactions", _CHUNK, again, (CONTINUED,)), wanted))


if __name__ == "__main__":
    main()
