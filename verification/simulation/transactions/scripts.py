"""Runs made by hand: one or two producers and what befalls them, to show what random runs hit too seldom.

As in ``verification.simulation.scripts``, the seed decides how fast the network is, and the order within a moment.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

import trio

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Call, Close, CloseAfter, Delay, Drop
from kproxy.testing.fake_broker.controls import Fault
from verification.simulation.faults import refusal
from verification.simulation.plan import TOPIC
from verification.simulation.transactions import invariants
from verification.simulation.transactions.history import Claimed
from verification.simulation.transactions.homes import AT_KPROXY, HomePlan
from verification.simulation.transactions.plan import ProducerPlan, ReaderPlan, WorldPlan, world_plan
from verification.simulation.transactions.process import Process
from verification.simulation.transactions.steering import (
    Gate,
    befall,
    forget,
    goes_well,
    of_log,
    take_snapshots,
    values,
)
from verification.simulation.transactions.world import TransactionWorld

Script: TypeAlias = Callable[[TransactionWorld], Awaitable[None]]

_ONE: Final = ((0, 1),)
#: As long as a kproxy asks for an append, and longer.
GIVEN_UP: Final = 2.5


def producer(number: int = 0, **more: Any) -> ProducerPlan:
    """One that a script leads, with the transactional id of all others."""
    given: dict[str, Any] = {
        "transactional_id": "id",
        "second_version": False,
        "timeout_ms": 15_000,
        "renews": True,
        "request_timeout": 6.0,
        **more,
    }
    return ProducerPlan(number=number, lives=(), **given)


def by_hand(
    seed: int, script: Script, *producers: ProducerPlan, instances: int = 1, place: HomePlan = AT_KPROXY
) -> WorldPlan:
    """A run with a reader of committed data at each kproxy."""
    readers = tuple(ReaderPlan(number, number, 12) for number in range(instances))

    async def run(world: Any) -> None:
        await script(cast(TransactionWorld, world))

    return world_plan(seed, producers, readers, instances=instances, script=run, place=place)


async def write_one(process: Process, nth: int) -> Claimed:
    """A transaction with one record."""
    claimed = process.begin(nth)
    await process.write(claimed, _ONE)
    return claimed


async def _transaction(process: Process, nth: int) -> None:
    """The same, committed, if it can be."""
    claimed = process.begin(nth)
    if await goes_well(process.write(claimed, _ONE)):
        await goes_well(process.end(claimed, committed=True))


def rivals(seed: int) -> WorldPlan:
    """Two kproxies claim an id that nobody has used, each with a producer id of its own, and neither sees the other."""
    plans = producer(0), producer(1)

    async def script(world: TransactionWorld) -> None:
        both, claims = trio.Event(), 0

        async def control(call: Call) -> Fault | None:
            nonlocal claims
            if of_log(TransactionClaim)(call):
                claims += 1
                if claims == len(plans):
                    both.set()
                with trio.move_on_after(0.5):
                    await both.wait()
            return None

        async def work(number: int) -> None:
            process = world.process(plans[number], number)
            if await goes_well(process.initialize()):
                await _transaction(process, 0)

        world.brokers.control(ApiKey.PRODUCE, control)
        async with trio.open_nursery() as nursery:
            for number in range(len(plans)):
                nursery.start_soon(work, number)

    return by_hand(seed, script, *plans, instances=2)


def crashed_in_second(seed: int) -> WorldPlan:
    """A kproxy crashes in a client's second transaction; the client asks its successor to commit it."""
    plan = producer()

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        await process.end(await write_one(process, 0), committed=True)
        second = await write_one(process, 1)
        world.brokers.control(ApiKey.WRITE_TXN_MARKERS, lambda _: Close())  # else the successor continues it
        await world.crash(0, 0.2)
        await goes_well(process.end(second, committed=True))

    return by_hand(seed, script, plan)


def continued(seed: int) -> WorldPlan:
    """A kproxy crashes in a transaction, twice, and continues it; some of the batches had no response."""
    plan = producer(second_version=bool(seed % 2))

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        await process.end(await write_one(process, 0), committed=True)
        claimed = await write_one(process, 1)
        for _ in range(2):
            await world.crash(0, 0.2)
            await process.write(claimed, _ONE)
            await _crash_unheard(world, process, claimed)
        await process.end(claimed, committed=True)

    return by_hand(seed, script, plan)


async def _crash_unheard(world: TransactionWorld, process: Process, claimed: Claimed) -> None:
    """A kproxy crashes after its batch was written, and before it knows."""
    unheard = Gate(world, lambda call: any(values(call)), serves=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.write, claimed, _ONE)
        await unheard.reached.wait()
        await world.crash(0, 0.2)
        unheard.open()


def continued_unheard(seed: int) -> WorldPlan:
    """A kproxy crashes in a transaction, and its client repeats a batch that had no response."""
    plan = producer(second_version=bool(seed % 2))

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        claimed = await write_one(process, 0)
        await _crash_unheard(world, process, claimed)
        await process.end(claimed, committed=True)

    return by_hand(seed, script, plan)


def ended_twice(seed: int) -> WorldPlan:
    """An EndTxn is held up; it is repeated over another connection, and the next transaction begins. Then it comes."""
    plan = producer(request_timeout=2.0)
    return by_hand(seed, ends_twice(plan), plan)


def ends_twice(plan: ProducerPlan) -> Script:
    """The steps of ``ended_twice``, in any home."""

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        first = await write_one(process, 0)
        world.late.append((frozenset({ApiKey.END_TXN}), 4.0))
        late = trio.current_time() + 4.5
        await process.end(first, committed=True)
        second = await write_one(process, 1)
        await trio.sleep_until(late)
        if await goes_well(process.write(second, ((1, 1),))):
            await goes_well(process.end(second, committed=False))

    return script


def overdue_elsewhere(seed: int) -> WorldPlan:
    """A decision is in flight for long, its kproxy dies; another one waits until the transaction is overdue."""
    plan = producer(timeout_ms=3_000)

    async def script(world: TransactionWorld) -> None:
        gate = Gate(world, of_log(TransactionDecision))
        process = world.process(plan, 0)
        await process.initialize()
        written = await write_one(process, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes_well, process.end(written, committed=True))
            await gate.reached.wait()
            nursery.start_soon(world.crash, 0, 40.0)
            await trio.sleep(25.0)
            gate.open()

    return by_hand(seed, script, plan, instances=2)


def overdue_here(seed: int) -> WorldPlan:
    """A client dies with a transaction open; its kproxy is the only one."""
    plan = producer(timeout_ms=3_000)

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        await write_one(process, 0)
        process.killed()

    return by_hand(seed, script, plan)


def ended_while_replaced(seed: int) -> WorldPlan:
    """A decision is in the log, and so is another producer's claim, when the kproxy that decided reads it."""
    plans = producer(0, second_version=True), producer(1, second_version=True)

    async def script(world: TransactionWorld) -> None:
        first, second = (world.process(plan, number) for number, plan in enumerate(plans))
        await first.initialize()
        written = await write_one(first, 0)
        until = trio.current_time() + 4.0

        def control(call: Call) -> Fault | None:
            return Close() if call.client_host == "kproxy-0" and trio.current_time() < until else None

        world.brokers.control(ApiKey.FETCH, control)
        await trio.sleep(1.0)  # no Fetch from before waits any more
        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes_well, first.end(written, committed=True))
            await trio.sleep(0.5)
            nursery.start_soon(goes_well, second.initialize())

    return by_hand(seed, script, *plans, instances=2)


def overdue_without_replicas(seed: int) -> WorldPlan:
    """A partition takes no writes for longer than the time-out of a transaction; others must be readable soon after."""
    plan = producer(timeout_ms=3_000, request_timeout=15.0)
    healthy, harmed, patience = 0, 2, 10.0

    async def script(world: TransactionWorld) -> None:
        def control(call: Call) -> Fault | None:
            is_harmed = any(b":%d." % harmed in value for value in values(call))
            return refusal(call, ErrorCode.NOT_ENOUGH_REPLICAS) if is_harmed else None

        harm = world.brokers.control(ApiKey.PRODUCE, control)
        process = world.process(plan, 0)
        await process.initialize()
        claimed = await write_one(process, 0)
        deadline = trio.current_time() + plan.timeout_ms / 1000 + patience
        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes_well, process.write(claimed, ((harmed, 1),)))
            nursery.start_soon(_ends_soon, world, process, claimed)
            await trio.sleep_until(deadline)
            if await world.look(world.reader("in-time", 0), healthy, 0) < 1:
                world.told.breaks(invariants.TIMEOUT, f"{claimed.name} is open {patience:.0f} s after its time-out")
            nursery.cancel_scope.cancel()
        world.brokers.controls.remove(harm)

    return by_hand(seed, script, plan)


async def _ends_soon(world: TransactionWorld, process: Process, claimed: Claimed) -> None:
    """Commits while data are still to be written."""
    await trio.sleep(1.0)
    await goes_well(process.end(claimed, committed=True))


def unannounced(seed: int) -> WorldPlan:
    """The record that announces a transaction never comes to the log; its kproxy crashes, and its client has ended."""
    plan = producer()

    async def script(world: TransactionWorld) -> None:
        befall(world, of_log(TransactionPartitions), *[Drop(apply=False)] * 10)
        process = world.process(plan, 0)
        await process.initialize()
        with trio.move_on_after(1.0):
            await goes_well(write_one(process, 0))
        process.killed()
        await world.crash(0, 0.2)

    return by_hand(seed, script, plan)


def taken_over_unheard(seed: int) -> WorldPlan:
    """Another kproxy takes an id over while a decision is in flight, and the log forgets who fenced whom."""
    plans = producer(0), producer(1)

    async def script(world: TransactionWorld) -> None:
        first, second = (world.process(plan, number) for number, plan in enumerate(plans))
        await first.initialize()
        written = await write_one(first, 0)
        gate = Gate(world, of_log(TransactionDecision))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes_well, first.end(written, committed=True))
            await gate.reached.wait()
            await second.initialize()
            forget(world)
            gate.open()

    return by_hand(seed, script, *plans, instances=2)


def announced_late(seed: int) -> WorldPlan:
    """The announcement of a transaction is in flight for so long that it is given up; it comes before the decision."""
    plan = producer()

    async def script(world: TransactionWorld) -> None:
        announcement, decision = (Gate(world, of_log(kind)) for kind in (TransactionPartitions, TransactionDecision))
        process = world.process(plan, 0)
        await process.initialize()
        claimed = process.begin(0)
        if not await goes_well(process.write(claimed, _ONE)):
            announcement.open()
            decision.open()
            await goes_well(process.end(claimed, committed=False))
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes_well, process.end(claimed, committed=True))
            await decision.reached.wait()
            announcement.open()
            await trio.sleep(0.2)
            decision.open()

    return by_hand(seed, script, plan)


def refused_behind_a_copy(seed: int) -> WorldPlan:
    """A batch that was sent again is refused for good; its first copy comes later, then the client writes on."""
    plan = producer(request_timeout=15.0)

    async def script(world: TransactionWorld) -> None:
        left: list[Callable[[Call], Fault]] = [
            lambda _: Delay(before=4.0),
            lambda call: refusal(call, ErrorCode.MESSAGE_TOO_LARGE),
        ]

        def control(call: Call) -> Fault | None:
            return left.pop(0)(call) if left and b"0.0.0:0.0" in values(call) else None

        world.brokers.control(ApiKey.PRODUCE, control)
        process = world.process(plan, 0)
        await process.initialize()
        claimed = process.begin(0)
        late = trio.current_time() + 6.0
        await goes_well(process.write(claimed, _ONE))
        await trio.sleep_until(late)
        await goes_well(process.write(claimed, _ONE))
        await goes_well(process.end(claimed, committed=True))

    return by_hand(seed, script, plan)


def read_beyond(seed: int) -> WorldPlan:
    """A reader begins after a record that is undecided, at one that is committed."""
    plans = producer(0), producer(1, transactional_id="other")

    async def script(world: TransactionWorld) -> None:
        first, second = (world.process(plan, 0) for plan in plans)
        await first.initialize()
        await second.initialize()
        undecided = await write_one(first, 0)
        await _transaction(second, 0)
        reader = world.reader("beyond", 0)
        await reader.poll(0)
        reader.positions[0] = 1
        await reader.poll(0)
        await first.end(undecided, committed=True)

    return by_hand(seed, script, *plans)


def copied(seed: int) -> WorldPlan:
    """The response to a batch is lost, and its partition forgets who wrote it: so it is there twice."""
    plan = producer(request_timeout=15.0)

    async def script(world: TransactionWorld) -> None:
        sent = 0

        def control(call: Call) -> Fault | None:
            nonlocal sent
            sent += b"0.0.0:0.0" in values(call)
            if sent == 2:
                forget(world, TOPIC)
            return CloseAfter() if sent == 1 else None

        process = world.process(plan, 0)
        await process.initialize()
        world.brokers.control(ApiKey.PRODUCE, control)
        await _transaction(process, 0)

    return by_hand(seed, script, plan)


def snapshot_lost(seed: int) -> WorldPlan:
    """No chunk of a snapshot comes to the log; its kproxy crashes after it."""
    plan = producer()

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        await process.end(await write_one(process, 0), committed=True)
        befall(world, of_log(TransactionSnapshot), *[Drop(apply=False)] * 20)
        with trio.move_on_after(GIVEN_UP):
            await take_snapshots(world, 0, 200_000)
        await world.crash(0, 0.2)

    return by_hand(seed, script, plan)


def snapshot_in_chunks(seed: int) -> WorldPlan:
    """A snapshot has several chunks; a kproxy starts after it."""
    plan = producer()

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        await process.end(await write_one(process, 0), committed=True)
        await take_snapshots(world, 0, 40)
        await world.crash(0, 0.2)

    return by_hand(seed, script, plan)


def snapshot_unread(seed: int) -> WorldPlan:
    """A kproxy receives nothing of the log while a transaction is committed, and deleted after a snapshot."""
    plan = producer()

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        written = await write_one(process, 0)
        until = trio.current_time() + 4.0

        def control(call: Call) -> Fault | None:
            return Close() if call.client_host == "kproxy-1" and trio.current_time() < until else None

        world.brokers.control(ApiKey.FETCH, control)
        await trio.sleep(1.0)  # no Fetch from before waits any more
        await process.end(written, committed=True)
        await take_snapshots(world, 0, 200_000)

    return by_hand(seed, script, plan, instances=2)
