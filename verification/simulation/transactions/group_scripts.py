"""Runs made by hand: a group goes from one consumer to another while a transaction that moves it is under way."""

from typing import Final

import trio

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import Message
from verification.simulation.transactions.history import Claimed, Input
from verification.simulation.transactions.plan import WorldPlan
from verification.simulation.transactions.process import Process
from verification.simulation.transactions.scripts import by_hand, producer
from verification.simulation.transactions.steering import Gate, goes_well, next_generation, of_log
from verification.simulation.transactions.world import TransactionWorld

_GROUP: Final = "g"
#: So long a record is held: shorter than a kproxy waits for an append, longer than the next consumer needs.
_WHILE: Final = 1.2


async def _ready(process: Process) -> Claimed:
    """A transaction with what comes of an input."""
    await process.initialize()
    claimed = process.begin(0)
    await process.write(claimed, ((0, 1),))
    return claimed


async def _read_and_commit(world: TransactionWorld, process: Process, claimed: Claimed) -> None:
    """Plays the group's next consumer: it asks where the group stands, and commits what comes next."""
    generation = next_generation(world, _GROUP, "b")
    position = await world.group_watch("consumer", 1).position(_GROUP)
    if await goes_well(process.move(claimed, Input(_GROUP, position + 1), "b", generation)):
        await goes_well(process.end(claimed, committed=True))


def _moved_on(seed: int, held: type[Message]) -> WorldPlan:
    """The group goes to the second consumer while a record of the first one's is in flight to the log."""
    plans = producer(0, transactional_id="id-0"), producer(1, transactional_id="id-1")

    async def script(world: TransactionWorld) -> None:
        first, second = (world.process(plan, number) for number, plan in enumerate(plans))
        ours, theirs = await _ready(first), await _ready(second)
        generation = next_generation(world, _GROUP, "a")
        gate = Gate(world, of_log(held, "id-0"))

        async def commit() -> None:
            if await goes_well(first.move(ours, Input(_GROUP, 1), "a", generation)):
                await goes_well(first.end(ours, committed=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            await gate.reached.wait()
            async with trio.open_nursery() as others:
                others.start_soon(_read_and_commit, world, second, theirs)
                await trio.sleep(_WHILE)
                gate.open()

    return by_hand(seed, script, *plans, instances=2)


def moved_on_before_the_offsets(seed: int) -> WorldPlan:
    """The group moves on between the check of its generation and the record of its offsets."""
    return _moved_on(seed, TransactionOffsets)


def moved_on_before_the_decision(seed: int) -> WorldPlan:
    """The group moves on while the decision of the transaction that moves it is in flight."""
    return _moved_on(seed, TransactionDecision)
