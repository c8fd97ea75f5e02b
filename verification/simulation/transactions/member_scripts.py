"""Runs made by hand: a driver, its workers at other kproxies, and what befalls them before they are decided."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import trio

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_member import TransactionMember
from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker import Call, Close, CloseAfter, Drop
from kproxy.testing.fake_broker.controls import Fault
from kproxy.txn.described import Described
from kproxy.txn.ids import Producer
from verification.simulation.plan import TOPIC
from verification.simulation.transactions.control_calls import Ask, answer_of
from verification.simulation.transactions.member_driver import Driver
from verification.simulation.transactions.member_plans import (
    AttemptPlan,
    BatchPlan,
    DriverLife,
    MemberGroupPlan,
    TaskPlan,
)
from verification.simulation.transactions.plan import WorldPlan
from verification.simulation.transactions.scripts import GIVEN_UP, by_hand
from verification.simulation.transactions.steering import Gate, befall, forget, log_entries, of_log, values
from verification.simulation.transactions.world import TransactionWorld

_ID: Final = "crew"
_ALL: Final = (((0, 1), (1, 1)),)
#: A driver's first life ends so, with everything prepared; the next one begins.
_DIES: Final = 8.0
_WAITS: Final = 12.0
#: As long as a driver asks again and again, and kproxy gives no append up.
_HELD: Final = 1.5


def attempt(instance: int = 1, **more: Any) -> AttemptPlan:
    """One that writes a record to each of two partitions."""
    return AttemptPlan(**{"instance": instance, "gap": 0.0, "writes": _ALL, **more})


def batch(*attempts: AttemptPlan, **more: Any) -> BatchPlan:
    """A part for each attempt."""
    tasks = tuple(TaskPlan((one,)) for one in attempts or (attempt(),))
    return BatchPlan(**{"tasks": tasks, "pause": 0.0, "commits": True, "repeats": (), "sweeps": False, **more})


def member_group(
    *batches: BatchPlan, lives: tuple[DriverLife, ...] = (DriverLife(0.5, 0),), **more: Any
) -> MemberGroupPlan:
    """A driver at the first kproxy."""
    given: dict[str, Any] = {"timeout_ms": 3_000, "keeps": True, "request_timeout": 6.0, **more}
    return MemberGroupPlan(number=0, transactional_id=_ID, lives=lives, batches=batches or (batch(),), **given)


def _driver(world: TransactionWorld, plan: MemberGroupPlan, **how: Any) -> Driver:
    return world.member_groups.driver(plan, **how)


async def _plain(world: TransactionWorld, plan: MemberGroupPlan) -> None:
    await _driver(world, plan).run(1)


def committed(seed: int) -> WorldPlan:
    """Members at two kproxies, decided by the third."""
    plan = member_group(batch(attempt(1), attempt(2), repeats=(0, 1), sweeps=True))
    return by_hand(seed, lambda world: _plain(world, plan), instances=3)


def committed_alone(seed: int) -> WorldPlan:
    """One member at another kproxy."""
    plan = member_group()
    return by_hand(seed, lambda world: _plain(world, plan), instances=2)


def left_open(seed: int) -> WorldPlan:
    """A worker has written, and dies before it prepares; its driver dies with it."""
    plan = member_group(batch(attempt(fails=True)), lives=(DriverLife(0.5, 0, 2.5),))
    return by_hand(seed, lambda world: _plain(world, plan), instances=2)


def joined_late(seed: int) -> WorldPlan:
    """The record that begins a member comes to the log after kproxy has given it up, and the next one does not come."""
    plan = member_group(timeout_ms=30_000)

    async def script(world: TransactionWorld) -> None:
        first = Gate(world, _joining(0))
        befall(world, _joining(1), *[Drop(apply=False)] * 3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_plain, world, plan)
            await first.reached.wait()
            await trio.sleep(GIVEN_UP)
            first.open()

    return by_hand(seed, script, instances=2)


def _joining(nth: int) -> Callable[[Call], bool]:
    """The record of a member's try of this number."""
    return lambda call: any(
        isinstance(entry.body, TransactionMember) and entry.body.member_epoch == nth for entry in log_entries(call)
    )


def prepared_for_long(seed: int) -> WorldPlan:
    """A driver dies with everything prepared; long after the id's time-out the next one decides it."""
    lives = DriverLife(0.5, 0, _DIES), DriverLife(_WAITS, 0)
    plan = member_group(batch(attempt(1), attempt(0), pause=100.0), lives=lives)
    return by_hand(seed, lambda world: _plain(world, plan), instances=2)


_WITH_OWN: Final = batch(attempt(1), own=attempt(0), prepares=True, pause=100.0)


def prepared_with_own(seed: int) -> WorldPlan:
    """A driver dies with a member's part and its own prepared; the next one commits them."""
    plan = member_group(_WITH_OWN, lives=(DriverLife(0.5, 0, _DIES), DriverLife(_WAITS, 0)))
    return by_hand(seed, lambda world: _plain(world, plan), instances=2)


def prepared_by_another(seed: int) -> WorldPlan:
    """A driver dies with a member's part and its own prepared; another one begins a batch, and commits that."""
    plan = member_group(_WITH_OWN, lives=(DriverLife(0.5, 0, _DIES),))

    async def script(world: TransactionWorld) -> None:
        await _plain(world, plan)
        found = await _taken_by(
            world, 1, lambda control: control.begin(client_id="other", transactional_id=_ID, timeout_ms=3_000)
        )
        commit = world.post.send(1, lambda control: control.commit(_ID, batch_id="another", owner=found.owner))
        await answer_of(commit, 30.0)

    return by_hand(seed, script, instances=2)


def prepared_unheard(seed: int) -> WorldPlan:
    """The entry that prepares a part does not come to the log for long; the decision waits longer than the time-out."""
    plan = member_group(batch(pause=15.0))

    async def script(world: TransactionWorld) -> None:
        befall(world, of_log(TransactionPrepare), *[Drop(apply=False)] * 10)
        await _plain(world, plan)

    return by_hand(seed, script, instances=2)


def decided_late(seed: int) -> WorldPlan:
    """A decision about own data and a member's is in flight while another driver takes the id, and the log forgets."""
    plan = member_group(batch(own=attempt(0)))

    async def script(world: TransactionWorld) -> None:
        gate = Gate(world, of_log(TransactionDecision))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_plain, world, plan)
            await gate.reached.wait()
            await _taken(world, 1)
            forget(world)
            gate.open()

    return by_hand(seed, script, instances=2)


async def _taken(world: TransactionWorld, instance: int) -> None:
    """Another driver takes the id."""
    await _taken_by(world, instance, lambda control: control.initialize(_ID, client_id="other", timeout_ms=3_000))


async def _taken_by(world: TransactionWorld, instance: int, ask: Ask) -> Described:
    request = world.post.send(instance, ask)
    world.member_groups.history.takes(_ID).append(request)
    found = await answer_of(request, 30.0)
    world.told.gives(_ID, Producer(*found.owner))
    return found


def initialized_meanwhile(seed: int) -> WorldPlan:
    """A new driver asks for the id while a commit claims it, and its own claim does not come to the log for long."""
    plan = member_group(batch(pause=3.0))

    async def script(world: TransactionWorld) -> None:
        prepared = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_driver(world, plan, stepped=_sets(prepared, "prepared")).run, 1)
            await prepared.wait()
            await world.crash(0, 0.1)  # the next decision has to claim the id
            deciding = Gate(world, of_log(TransactionClaim))
            await deciding.reached.wait()
            nursery.start_soon(_taken, world, 0)
            await trio.sleep(0.1)
            taking = Gate(world, of_log(TransactionClaim))
            deciding.open()
            await trio.sleep(_HELD)
            taking.open()

    return by_hand(seed, script, instances=2)


def _sets(event: trio.Event, step: str) -> Callable[[str], None]:
    return lambda found: event.set() if found == step else None


def committed_unheard(seed: int) -> WorldPlan:
    """No commit of a driver has a response, and it dies; the next one does the batch again."""
    lives = DriverLife(0.5, 0, _DIES), DriverLife(1.0, 0)
    plan = member_group(batch(sweeps=True), lives=lives, keeps=False)

    async def script(world: TransactionWorld) -> None:
        def stepped(step: str) -> None:
            if step == "prepared" and trio.current_time() < _DIES:
                world.post.lost = 1_000

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_driver(world, plan, stepped=stepped).run, 1)
            await trio.sleep(_DIES + 1.0)
            world.post.lost = 0

    return by_hand(seed, script, instances=2)


def outlived(seed: int) -> WorldPlan:
    """A worker's kproxy dies over a request, and comes back; the worker's client connects again and sends on."""
    plan = member_group(batch(attempt(stubborn=True)), lives=(DriverLife(0.5, 0, 6.0),))

    async def script(world: TransactionWorld) -> None:
        struck = trio.Event()

        def control(call: Call) -> Fault | None:
            if struck.is_set() or not any(True for _ in values(call)):
                return None
            struck.set()
            return Drop(apply=False)

        world.brokers.control(ApiKey.PRODUCE, control)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_plain, world, plan)
            await struck.wait()
            await world.crash(1, 0.1)

    return by_hand(seed, script, instances=2)


def rejected_unread(seed: int) -> WorldPlan:
    """A kproxy hears nothing of the log, meets a member's data, and is asked to reject their producer id."""
    plan = member_group(batch(*(attempt(0),) * 3, pause=6.0))

    async def script(world: TransactionWorld) -> None:
        def control(call: Call) -> Fault | None:
            return Close() if call.client_host == "kproxy-2" and not rejects.is_set() else None

        rejects = trio.Event()
        async with trio.open_nursery() as nursery:
            world.brokers.control(ApiKey.FETCH, _of_the_log(control))  # before a Fetch waits for what the log will say
            driver = _driver(world, plan)
            await trio.sleep(0.3)
            nursery.start_soon(driver.run, 1)
            await _until_taken(world)
            await _reject_what_is_met(world, 2, rejects)

    return by_hand(seed, script, instances=3)


def compacted(seed: int) -> WorldPlan:
    """A worker's topic is compacted when a committed record is followed by an aborted one with its key."""
    to_one = attempt(1, writes=(((0, 1),),))
    plan = member_group(batch(to_one), batch(to_one, commits=False))

    async def script(world: TransactionWorld) -> None:
        await _plain(world, plan)
        world.brokers.compact(TOPIC, 0, world.brokers.topics[TOPIC].partitions[0].log.end_offset)

    return replace(by_hand(seed, script, instances=2), topic=(("cleanup.policy", "compact"),))


def _of_the_log(control: Any) -> Any:
    return lambda call: control(call) if all(topic.topic != "t" for topic in call.request.topics) else None


async def _until_taken(world: TransactionWorld) -> None:
    while not world.told.given.get(_ID):  # noqa: ASYNC110 - a driver's
        await trio.sleep(0.05)


async def _reject_what_is_met(world: TransactionWorld, instance: int, begins: trio.Event) -> None:
    transactions = world.instances[instance].transactions
    assert transactions is not None
    with trio.move_on_after(6.0):
        while not list(transactions.views.unknown):  # noqa: ASYNC110 - met by a reader
            await trio.sleep(0.05)
    async with trio.open_nursery() as nursery:
        for one in list(transactions.views.unknown):
            nursery.start_soon(transactions.rejects._try, one)
        await trio.sleep(1.0)
        begins.set()
        nursery.cancel_scope.deadline = trio.current_time() + 5.0


def killed_at_a_record(seed: int) -> WorldPlan:
    """A kproxy dies over a record of the log: which one, and whether it still comes there, is the seed's."""
    plan = member_group(
        batch(attempt(1), attempt(0), own=attempt(0), prepares=seed % 4 < 2), batch(attempt(1), sweeps=True)
    )
    nth, heard = seed // 2, bool(seed % 2)

    async def script(world: TransactionWorld) -> None:
        count, dies = 0, trio.Event()
        victims: list[int] = []

        def control(call: Call) -> Fault | None:
            nonlocal count
            if not any(True for _ in log_entries(call)):
                return None
            count += 1
            if count != nth + 1:
                return None
            victims.append(int(call.client_host.rpartition("-")[2]))
            dies.set()
            return CloseAfter() if heard else Drop(apply=False)

        world.brokers.control(ApiKey.PRODUCE, control)
        async with trio.open_nursery() as nursery:

            async def kill() -> None:
                await dies.wait()
                await world.crash(victims[0], 0.2)

            nursery.start_soon(kill)
            await _driver(world, plan).run(2)
            dies.set()
            victims.append(0)

    return by_hand(seed, script, instances=2)
