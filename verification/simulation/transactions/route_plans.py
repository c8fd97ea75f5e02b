"""Clients that go from one kproxy to another in the middle of transactions, and kproxies that give them cause to."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from verification.simulation.plan import BUSY_SECONDS, FaultPlan
from verification.simulation.transactions.homes import OUTAGES
from verification.simulation.transactions.routes import Reach, Turn

if TYPE_CHECKING:
    from verification.simulation.transactions.plan import Life, ProducerPlan, Taste, TransactionPlan, WorldPlan

#: Another kproxy takes an id over when its client has asked there for 3 s.
_AFTER: Final = (0.0, 0.01, 0.05, 0.2, 0.6, 1.5, 3.1, 4.0, 6.0)
_TURNS: Final = (0, 0, 1, 1, 2)
#: Each transaction of a client whose connections are spread takes long.
_MOST_SPREAD: Final = 3
_AT_A_TIME: Final = 2
#: Requests that are late arrive at a kproxy that their client has left.
_KINDS: Final = (*OUTAGES, "late")


def with_routes(plan: "WorldPlan", taste: "Taste") -> "WorldPlan":
    """The plan with clients that move, and outages of kproxies; by draws of its own."""
    rng = Random(f"routes {plan.seed}")
    producers = tuple(
        _roaming(producer, rng, plan.instances) if rng.random() < taste.roams else producer
        for producer in plan.producers
    )
    outages = [
        FaultPlan(round(rng.uniform(0.1, BUSY_SECONDS), 3), rng.choice(_KINDS), rng.random(), rng.random())
        for _ in range(rng.randint(*taste.outages))
    ]
    faults = sorted((*plan.faults, *outages), key=lambda fault: fault.time)
    return replace(plan, producers=producers, faults=tuple(faults))


def _roaming(producer: "ProducerPlan", rng: Random, instances: int) -> "ProducerPlan":
    return replace(producer, lives=tuple(_life(life, rng, range(instances)) for life in producer.lives))


def _life(life: "Life", rng: Random, instances: Sequence[int]) -> "Life":
    if rng.random() < 0.25:
        spread = Reach(tuple(rng.sample(instances, _AT_A_TIME)), is_spread=True)
        return replace(life, reach=spread, transactions=life.transactions[:_MOST_SPREAD])
    reach = Reach(tuple(instances) if rng.random() < 0.6 else ())
    return replace(
        life, reach=reach, transactions=tuple(_transaction(one, rng, instances) for one in life.transactions)
    )


def _transaction(planned: "TransactionPlan", rng: Random, instances: Sequence[int]) -> "TransactionPlan":
    turns = [
        Turn(rng.choice(_AFTER), rng.choice(instances), waits=rng.random() < 0.3) for _ in range(rng.choice(_TURNS))
    ]
    return replace(planned, turns=tuple(turns))
