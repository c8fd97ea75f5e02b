"""Runs made by hand: a request comes late or again, and what is asked meanwhile must not suffer by it."""

from typing import Final

import trio

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker import Call, Drop
from kproxy.testing.fake_broker.controls import Fault
from verification.simulation.transactions import invariants
from verification.simulation.transactions.history import Claimed
from verification.simulation.transactions.plan import ProducerPlan, WorldPlan
from verification.simulation.transactions.process import Process
from verification.simulation.transactions.routes import Turn
from verification.simulation.transactions.scripts import Script, by_hand, producer, write_one
from verification.simulation.transactions.steering import Gate, expire, goes_well, lose_response, of_log
from verification.simulation.transactions.world import TransactionWorld

_ONE: Final = ((0, 1),)
_ANOTHER: Final = ((1, 1),)
_GROUP: Final = "group-0"
#: Seconds for which a request is held up, and after which it has surely arrived.
_HELD_UP: Final = 4.0
_LATE: Final = _HELD_UP + 2.0
#: A client that repeats what has no response for so long.
_HASTY_S: Final = 2.0
_TIME_OUT_MS: Final = 3_000
#: Not as long as a kproxy asks for an append.
_NEARLY_GIVEN_UP: Final = 1.8


def aborted_unheard(seed: int) -> WorldPlan:
    """The decision to abort does not come to the log, and a claim settles it; the next transaction begins."""
    plan = producer(second_version=True)

    async def script(world: TransactionWorld) -> None:
        is_claim, is_decision, settled = of_log(TransactionClaim), of_log(TransactionDecision), trio.Event()

        def control(call: Call) -> Fault | None:
            if is_claim(call):
                settled.set()
            return Drop(apply=False) if is_decision(call) and not settled.is_set() else None

        process = world.process(plan, 0)
        await process.initialize()
        first = await write_one(process, 0)
        world.brokers.control(ApiKey.PRODUCE, control)
        if await goes_well(process.end(first, committed=False)):
            await goes_well(process.end(await write_one(process, 1), committed=True))

    return by_hand(seed, script, plan)


def sequence_reused(seed: int) -> WorldPlan:
    """A client aborts while the response to a batch is lost, and gives the batch's sequence to the next record."""
    plan = producer(reuses=True)
    return by_hand(seed, reuses_sequence(plan), plan)


def reuses_sequence(plan: ProducerPlan) -> Script:
    """The steps of ``sequence_reused``, in any home."""

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        await process.end(await write_one(process, 0), committed=True)
        lose_response(world, "producer-0.0", b"0.0.1:0.0")
        for nth in range(1, 5):
            claimed = process.begin(nth)
            if await goes_well(process.write(claimed, _ONE)):
                await goes_well(process.end(claimed, committed=True))
            else:
                await process.end(claimed, committed=False)

    return script


def copied_late(seed: int) -> WorldPlan:
    """A client's batch is held up and sent again, its transaction aborted; the first one comes in the next."""
    plan = producer(request_timeout=_HASTY_S)
    return by_hand(seed, copies_late(plan), plan)


def copies_late(plan: ProducerPlan) -> Script:
    """The steps of ``copied_late``, in any home."""

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        world.late.append((frozenset({ApiKey.PRODUCE}), _HELD_UP))
        late = trio.current_time() + _LATE
        await process.end(await write_one(process, 0), committed=False)
        second = await write_one(process, 1)
        await trio.sleep_until(late)
        if not await goes_well(process.end(second, committed=True)):
            world.told.breaks(invariants.CAUSE, f"{second.name} can't be committed, and nothing has befallen it")

    return script


def initialized_again(seed: int) -> WorldPlan:
    """A client's InitProducerId for its next epoch is held up and repeated; it comes within the next transaction."""
    plan = producer(request_timeout=_HASTY_S)

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        world.late.append((frozenset({ApiKey.INIT_PRODUCER_ID}), _HELD_UP))
        late = trio.current_time() + _LATE
        await process.initialize(again=True)
        claimed = await write_one(process, 0)
        await trio.sleep_until(late)
        if await goes_well(process.write(claimed, _ANOTHER)):
            await goes_well(process.end(claimed, committed=True))

    return by_hand(seed, script, plan)


def moved_again(seed: int) -> WorldPlan:
    """A TxnOffsetCommit is held up and repeated; it comes when the next transaction has moved the group on."""
    return _moved_late(seed, committed=True)


def moved_in_vain(seed: int) -> WorldPlan:
    """A TxnOffsetCommit is held up and repeated, its transaction aborted; it comes within one without offsets."""
    return _moved_late(seed, committed=False)


def _moved_late(seed: int, *, committed: bool) -> WorldPlan:
    plan = producer(request_timeout=_HASTY_S)

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        world.late.append((frozenset({ApiKey.TXN_OFFSET_COMMIT}), _HELD_UP))
        late = trio.current_time() + _LATE
        first = await write_one(process, 0)
        await process.move(first, world.told.next_input(_GROUP))
        await process.end(first, committed=committed)
        second = await write_one(process, 1)
        if committed:
            await process.move(second, world.told.next_input(_GROUP))
        await trio.sleep_until(late)
        await goes_well(process.end(second, committed=True))

    return by_hand(seed, script, plan)


def decided_after_the_time_out(seed: int) -> WorldPlan:
    """The log takes a commit after the time-out; the kproxy that had the id before must not have aborted it by then."""
    plan = producer(timeout_ms=_TIME_OUT_MS)

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        await process.end(await write_one(process, 0), committed=True)
        process.route.schedule([Turn(0.0, 1, waits=True)])
        claimed = await write_one(process, 1)
        await trio.sleep(_TIME_OUT_MS / 1000 - 0.2)
        gate = Gate(world, of_log(TransactionDecision))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_must_commit, world, process, claimed)
            await gate.reached.wait()
            await trio.sleep(_NEARLY_GIVEN_UP)
            gate.open()

    return by_hand(seed, script, plan, instances=2)


async def _must_commit(world: TransactionWorld, process: Process, claimed: Claimed) -> None:
    if not await goes_well(process.end(claimed, committed=True)):
        world.told.breaks(invariants.CAUSE, f"{claimed.name} is aborted, though its kproxy still asked the log")


def expired_unheard(seed: int) -> WorldPlan:
    """A kproxy dies over a decision; its id expires before the client repeats its EndTxn."""
    plan = producer(second_version=True)

    async def script(world: TransactionWorld) -> None:
        gate = Gate(world, of_log(TransactionDecision))
        process = world.process(plan, 0)
        await process.initialize()
        claimed = await write_one(process, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes_well, process.end(claimed, committed=True))
            await gate.reached.wait()
            world.late.append((frozenset({ApiKey.END_TXN}), _HELD_UP))
            nursery.start_soon(world.crash, 0, 0.2)
            gate.open()
            await trio.sleep(_HELD_UP / 2)
            await expire(world, 0, plan.transactional_id)

    return by_hand(seed, script, plan)
