"""Runs made by hand whose transactions the brokers decide: what random runs hit too seldom."""

from typing import Any, Final

import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.coordinator_rules import Home
from kproxy.testing.fake_broker import Call, Close, Delay, Edit
from kproxy.testing.fake_broker.controls import Fault
from verification.simulation.faults import refusal
from verification.simulation.transactions import late_scripts, scripts
from verification.simulation.transactions.history import Claimed, Input
from verification.simulation.transactions.homes import HomePlan
from verification.simulation.transactions.plan import ProducerPlan, WorldPlan
from verification.simulation.transactions.process import Process
from verification.simulation.transactions.scripts import Script, by_hand
from verification.simulation.transactions.steering import goes_well, next_generation, values
from verification.simulation.transactions.ways import Steps, Way
from verification.simulation.transactions.world import TransactionWorld

_ONE: Final = ((0, 1),)
_GROUP: Final = "g"
#: By seed: every level of the brokers' transactions.
_LEVELS: Final = (2, 1, 0)


def _fenced(seed: int, script: Script, *plans: ProducerPlan, level: int | None = None, instances: int = 1) -> WorldPlan:
    """A run of KIP-98's clients."""
    version = _LEVELS[seed % len(_LEVELS)] if level is None else level
    return by_hand(seed, script, *plans, instances=instances, place=HomePlan(Home.BROKER_FENCED, version))


def _legacy(seed: int, script: Script, *plans: ProducerPlan, instances: int = 1) -> WorldPlan:
    """A run of clients that know nothing of transactions."""
    place = HomePlan(Home.BROKER, _LEVELS[seed % len(_LEVELS)])
    return by_hand(seed, script, *plans, instances=instances, place=place)


def _befall(world: TransactionWorld, key: ApiKey, *faults: Fault | None) -> None:
    """Sets the fault of the first request of a kind to a broker, of the second, and so on; None: it is served."""
    left = list(faults)
    world.brokers.control(key, lambda _: left.pop(0) if left else None)


async def _written(process: Steps, nth: int) -> Claimed:
    """A transaction with one record."""
    claimed = process.begin(nth)
    await process.write(claimed, _ONE)
    return claimed


def ended_unheard(seed: int) -> WorldPlan:
    """The broker does not get the first EndTxn; the next transaction begins."""
    plan = scripts.producer()

    async def script(world: TransactionWorld) -> None:
        _befall(world, ApiKey.END_TXN, Close())
        process = world.process(plan, 0)
        await process.initialize()
        for nth in range(2):
            claimed = await _written(process, nth)
            await goes_well(process.end(claimed, committed=True))

    return _fenced(seed, script, plan)


def ended_late(seed: int) -> WorldPlan:
    """An EndTxn comes to the broker when it was repeated, and the next transaction has begun, which is aborted."""
    plan = scripts.producer(request_timeout=15.0)

    async def script(world: TransactionWorld) -> None:
        _befall(world, ApiKey.END_TXN, Delay(before=4.0))
        process = world.process(plan, 0)
        await process.initialize()
        late = trio.current_time() + 6.0
        first = await _written(process, 0)
        await goes_well(process.end(first, committed=True))
        second = process.begin(1)
        await goes_well(process.write(second, ((1, 1),)))
        await trio.sleep_until(late)
        await goes_well(process.end(second, committed=False))

    return _fenced(seed, script, plan, level=seed % 2)


def ended_twice(seed: int) -> WorldPlan:
    """A client's EndTxn is held up; it is repeated, and the next transaction begins. Then it comes to kproxy."""
    plan = scripts.producer(request_timeout=2.0)
    return _fenced(seed, scripts.ends_twice(plan), plan)


def written_late(seed: int) -> WorldPlan:
    """A client's batch is held up, and sent again; then the first one comes to kproxy."""
    plan = scripts.producer(request_timeout=2.0)

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        world.late.append((frozenset({ApiKey.PRODUCE}), 4.0))
        late = trio.current_time() + 6.0
        claimed = await _written(process, 0)
        await trio.sleep_until(late)
        await goes_well(process.end(claimed, committed=True))

    return _fenced(seed, script, plan)


def sequence_reused(seed: int) -> WorldPlan:
    """A client aborts while the response to a batch is lost, and gives the batch's sequence to the next record."""
    plan = scripts.producer(reuses=True)
    return _fenced(seed, late_scripts.reuses_sequence(plan), plan)


def copied_late(seed: int) -> WorldPlan:
    """A client's batch is held up and sent again, its transaction aborted; the first one comes in the next."""
    plan = scripts.producer(request_timeout=2.0)
    return _fenced(seed, late_scripts.copies_late(plan), plan)


def taken_over(seed: int) -> WorldPlan:
    """A newer producer has the id at the same kproxy, and has written; then the older one continues."""
    plans = scripts.producer(0), scripts.producer(1)

    async def script(world: TransactionWorld) -> None:
        older, newer = (world.process(plan, 0) for plan in plans)
        await older.initialize()
        await _written(older, 0)
        await newer.initialize()
        claimed = await _written(newer, 0)
        if await goes_well(_written(older, 1)):
            await trio.sleep(0.5)
        await goes_well(newer.end(claimed, committed=True))

    return _fenced(seed, script, *plans)


def replaced_at_the_end(seed: int) -> WorldPlan:
    """The coordinator moves while it writes a commit. When kproxy asks the next one a newer producer has the id."""
    plans = scripts.producer(0), scripts.producer(1)

    def moved(answer: Any) -> None:
        answer.error_code = ErrorCode.NOT_COORDINATOR

    async def script(world: TransactionWorld) -> None:
        first, second = (world.process(plan, number) for number, plan in enumerate(plans))
        await first.initialize()
        claimed = await _written(first, 0)
        left, repeated, replaced = [Edit(moved)], trio.Event(), trio.Event()

        async def control(_: Call) -> Fault | None:
            if left:
                return left.pop()
            repeated.set()
            await replaced.wait()
            return None

        world.brokers.control(ApiKey.END_TXN, control)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes_well, first.end(claimed, committed=True))
            await repeated.wait()
            await second.initialize()
            replaced.set()

    return _fenced(seed, script, *plans, instances=2)


def replaced_after_the_end(seed: int) -> WorldPlan:
    """A commit is decided; before its client, whose epoch rises with it, has the next one, a newer producer has the id.

    Where ends keep the epoch kproxy asks for that one.
    """
    plans = scripts.producer(0, second_version=True), scripts.producer(1)

    async def script(world: TransactionWorld) -> None:
        first, second = (world.process(plan, number) for number, plan in enumerate(plans))
        await first.initialize()
        claimed = await _written(first, 0)
        left, asked, replaced = [True], trio.Event(), trio.Event()

        async def control(_: Call) -> None:
            if left:
                left.clear()
                asked.set()
                await replaced.wait()

        world.brokers.control(ApiKey.INIT_PRODUCER_ID, control)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(goes_well, first.end(claimed, committed=True))
            await asked.wait()
            await second.initialize()
            replaced.set()

    return _fenced(seed, script, *plans, level=seed % 2, instances=2)


def refused(seed: int) -> WorldPlan:
    """A batch is refused for good; its client does not mind, and commits."""
    plan = scripts.producer()

    async def script(world: TransactionWorld) -> None:
        def control(call: Call) -> Fault | None:
            return refusal(call, ErrorCode.MESSAGE_TOO_LARGE) if b"0.0.0:1.0" in values(call) else None

        world.brokers.control(ApiKey.PRODUCE, control)
        process = world.process(plan, 0)
        await process.initialize()
        claimed = await _written(process, 0)
        await goes_well(process.write(claimed, ((1, 1),)))
        await goes_well(process.end(claimed, committed=True))

    return _fenced(seed, script, plan)


def moved_on_before_the_offsets(seed: int) -> WorldPlan:
    """The group goes to another consumer, which commits what comes of an input; then the former one does."""
    plans = scripts.producer(0, transactional_id="id-0"), scripts.producer(1, transactional_id="id-1")

    async def ready(process: Process) -> Claimed:
        await process.initialize()
        return await _written(process, 0)

    async def script(world: TransactionWorld) -> None:
        first, second = (world.process(plan, 0) for plan in plans)
        ours, theirs = await ready(first), await ready(second)
        former = next_generation(world, _GROUP, "a")
        newer = next_generation(world, _GROUP, "b")
        for process, claimed, member, generation in ((second, theirs, "b", newer), (first, ours, "a", former)):
            if await goes_well(process.move(claimed, Input(_GROUP, 1), member, generation)):
                await goes_well(process.end(claimed, committed=True))

    return _fenced(seed, script, *plans)


# -- kproxy is started again


def restarted_between(seed: int) -> WorldPlan:
    """A kproxy is killed between two transactions of a client."""
    plan = scripts.producer()

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        for nth in range(3):
            claimed = process.begin(nth)
            await goes_well(process.write(claimed, _ONE))
            await goes_well(process.end(claimed, committed=nth != 1))
            await trio.sleep(0.5)  # what nobody waits for is in the log
            await world.crash(0, 0.2)

    return _fenced(seed, script, plan)


def restarted_within(seed: int) -> WorldPlan:
    """A kproxy is killed within a transaction, which its client continues in another partition, and commits."""
    plan = scripts.producer()

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        claimed = await _written(process, 0)
        await world.crash(0, 0.2)
        if await goes_well(process.write(claimed, ((1, 1),))):
            await goes_well(process.end(claimed, committed=True))
        else:
            await process.end(claimed, committed=False)
            await process.end(await _written(process, 1), committed=True)

    return _fenced(seed, script, plan)


def restarted_at_the_end(seed: int) -> WorldPlan:
    """A kproxy is killed before it receives the response to a commit, which the broker has; its client repeats it."""
    plan = scripts.producer()

    async def script(world: TransactionWorld) -> None:
        _befall(world, ApiKey.END_TXN, Delay(after=3.0))
        process = world.process(plan, 0)
        await process.initialize()
        claimed = await _written(process, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_crash_after, world, 1.0)
            await goes_well(process.end(claimed, committed=True))

    return _fenced(seed, script, plan)


async def _crash_after(world: TransactionWorld, seconds: float) -> None:
    await trio.sleep(seconds)
    await world.crash(0, 0.2)


def replaced_before_the_restart(seed: int) -> WorldPlan:
    """A newer producer has the id at another kproxy, and writes; then the kproxy of the older one is killed."""
    plans = scripts.producer(0), scripts.producer(1)

    async def script(world: TransactionWorld) -> None:
        older, newer = (world.process(plan, number) for number, plan in enumerate(plans))
        await older.initialize()
        await older.end(await _written(older, 0), committed=True)
        await newer.initialize()
        claimed = await _written(newer, 0)
        await world.crash(0, 0.2)
        if await goes_well(_written(older, 1)):
            await trio.sleep(0.5)
        await goes_well(newer.end(claimed, committed=True))

    return _fenced(seed, script, *plans, instances=2)


# -- clients that know nothing of transactions


def _client(way: Way, **more: Any) -> ProducerPlan:
    return scripts.producer(way=way, transactional_id=f"{way.value} 0", **more)


def restarted_before_the_markers(seed: int) -> WorldPlan:
    """An application's commit is decided and not complete; it is started again, at another kproxy."""
    plan = _client(Way.ON_OFFSET_COMMIT, fetches_offsets=(1, 5, 7)[seed % 3])

    async def script(world: TransactionWorld) -> None:
        before = world.steps(plan, 0)
        claimed = before.begin(0)
        await goes_well(before.write(claimed, _ONE))
        world.brokers.hold_markers()
        await goes_well(before.end(claimed, committed=True))
        before.killed()
        before.close()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_release, world)
            after = world.steps(plan, 1)
            again = after.begin(0)
            if await goes_well(after.write(again, _ONE)):
                await goes_well(after.end(again, committed=True))
        after.close()

    return _legacy(seed, script, plan, instances=2)


async def _release(world: TransactionWorld) -> None:
    await trio.sleep(12.0)
    world.brokers.release_markers()


def sent_again(seed: int) -> WorldPlan:
    """A client does not wait for the answer to a request and sends it again; the client that began by hand commits."""
    plan = _client(Way.BY_HAND, renews=True, request_timeout=2.0)

    async def script(world: TransactionWorld) -> None:
        left: list[Fault] = [Delay(before=2.5)]

        def control(call: Call) -> Fault | None:
            return left.pop() if left and b"0.0.0:0.0" in values(call) else None

        world.brokers.control(ApiKey.PRODUCE, control)
        process = world.steps(plan, 0)
        claimed = process.begin(0)
        await goes_well(process.write(claimed, _ONE))
        await goes_well(process.end(claimed, committed=True))
        process.close()

    return _legacy(seed, script, plan)
