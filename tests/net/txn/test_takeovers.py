"""Another producer takes an id over in the middle of each step: the log decides, for clients and for readers.

Each request that an instance sends to the log or to data is stopped before it arrives, or after its append. Its
instance ends there, or only pauses. Then the same instance restarted, another one, or both continue.
"""

import dataclasses
import random
from contextlib import suppress

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import Cast, Client, Instance, stage
from tests.net.txn.log_harness import PATIENCE
from tests.net.txn.takeover_scene import (
    GROUP,
    OFFSET,
    P0,
    P1,
    STEPS,
    Gate,
    Point,
    Step,
    nothing_of_former_owners,
    shown,
)

# A request that is held for longer than its time-out is sent again, and may then take the id back.
pytestmark = pytest.mark.idle_clock


@pytest.fixture(autouse=True)
def no_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stays in the log alone."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


VERSIONS = pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])


def is_decided(step: str, point: Point) -> bool:
    """Whether the log has the decision to commit "2" before anybody takes over."""
    return step == "decision" and point is Point.UNACKNOWLEDGED


def copy_of(client: Client) -> Client:
    """The client as it was before it asked."""
    return dataclasses.replace(client, _next=dict(client._next))


async def stopped(cast: Cast, at: Instance, client: Client, step: Step, point: Point) -> Gate:
    """The client has asked, and its instance's request is where it is to be stopped; the client hears nothing."""
    gate = Gate(step.kind, point, step.nth)
    gate.close(cast)
    asking = copy_of(client)

    async def ask() -> None:
        with suppress(TxnError, trio.TooSlowError):
            await step.ask(asking, at)

    cast.nursery.start_soon(ask)
    with trio.fail_after(PATIENCE):
        await gate.reached.wait()
    return gate


async def told(client: Client, at: Instance, step: Step) -> ErrorCode | None:
    """The client's response when it retries; and once more, which must be the same."""
    answers: list[ErrorCode | None] = []
    asking = client
    for _ in range(2):
        asking = copy_of(client)
        try:
            await step.ask(asking, at)
            answers.append(None)
        except TxnError as error:
            answers.append(ErrorCode(error.error_code))
    assert answers[0] == answers[1], "asked twice, told two things"
    client.producer, client._next = asking.producer, asking._next
    return answers[0]


async def goes_on(client: Client, at: Instance, name: str) -> bool:
    """The client repeats its request, and ends its transaction; returns whether "2" was reported as committed."""
    error = await told(client, at, STEPS[name])
    if error is not None:
        assert error is ErrorCode.TRANSACTION_ABORTABLE
        await client.end(at, committed=False)
        return False
    if name not in ("decision", "init", "init-again"):
        for place in (P0, P1) if name != "offsets" else ():
            client._next[place] = client._next.get(place, 0) + 1
        await client.end(at)
        return True
    return name == "decision"


async def transaction_of_a_new_client(at: Instance) -> None:
    client = Client("id")
    await client.init(at)
    await client.write(at, "new", P0, P1)
    await client.end(at)


def moved(at: Instance) -> bool:
    """Whether the group's offsets moved; none of them waits for a decision any more."""
    views = at.transactions.views
    assert not list(views.undecided_offsets(GROUP))
    records = [record for _, _, record in views.unmirrored_offsets(GROUP)]
    return [row.offset for record in records for topic in record.topics for row in topic.partitions] == [OFFSET]


@VERSIONS
@pytest.mark.parametrize("point", Point)
@pytest.mark.parametrize("name", STEPS)
async def test_its_instance_is_started_again(name: str, point: Point, bumps: bool) -> None:
    async with stage(2) as cast:
        a, client, step = await cast.instance("a"), Client("id", bumps), STEPS[name]
        await step.prepare(client, a)
        gate = await stopped(cast, a, client, step, point)
        await a.kill()
        if point is not Point.LATE:
            gate.go.set()
        again = await cast.instance("a")
        committed = await goes_on(client, again, name)
        gate.go.set()
        await client.write(again, "3", P0, P1)
        await client.end(again)
        before = [] if name == "init" else ["1"]
        if name == "decision":
            assert committed, "it is decided, or continued"
            assert moved(again)
        assert await shown(cast, again) == [*before, *(["2"] if committed else []), "3"]
        nothing_of_former_owners(cast)


@pytest.mark.parametrize("point", Point)
@pytest.mark.parametrize("name", STEPS)
async def test_another_instance_takes_over_for_a_new_client(name: str, point: Point) -> None:
    async with stage(2) as cast:
        a, b, client, step = await cast.instance("a"), await cast.instance("b"), Client("id"), STEPS[name]
        await step.prepare(client, a)
        gate = await stopped(cast, a, client, step, point)
        await a.kill()
        if point is not Point.LATE:
            gate.go.set()
        await transaction_of_a_new_client(b)
        gate.go.set()
        before = [] if name == "init" else ["1"]
        decided = ["2"] if is_decided(name, point) else []
        assert await shown(cast, b) == [*before, *decided, "new"]
        if name == "decision":
            assert moved(b) is bool(decided)
        nothing_of_former_owners(cast)


@pytest.mark.parametrize("point", [Point.LATE, Point.UNACKNOWLEDGED])
@pytest.mark.parametrize("name", STEPS)
async def test_an_instance_that_only_paused_finds_that_another_has_the_id(name: str, point: Point) -> None:
    async with stage(2) as cast:
        a, b, client, step = await cast.instance("a"), await cast.instance("b"), Client("id"), STEPS[name]
        await step.prepare(client, a)
        gate = Gate(step.kind, point, step.nth)
        gate.close(cast)
        answers: list[ErrorCode | None] = []

        async def ask() -> None:
            try:
                await step.ask(client, a)
                answers.append(None)
            except TxnError as error:
                answers.append(ErrorCode(error.error_code))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            with trio.fail_after(PATIENCE):
                await gate.reached.wait()
            await transaction_of_a_new_client(b)
            gate.go.set()
        decided = is_decided(name, point)
        if name not in ("init", "init-again"):  # which may take the id back, as the last request does
            if name == "decision":
                assert (answers == [None]) is decided
            with pytest.raises(TxnError, match=r"PRODUCER_FENCED|TRANSACTION_ABORTABLE|INVALID_TXN_STATE|NOT_COORD"):
                await client.write(a, "zombie", P0, P1)
            with pytest.raises(TxnError, match=r"PRODUCER_FENCED"):
                await client.end(a)
        before = [] if name == "init" else ["1"]
        assert await shown(cast, a, b) == [*before, *(["2"] if decided else []), "new"]
        nothing_of_former_owners(cast)


@pytest.mark.parametrize("point", Point)
@pytest.mark.parametrize("name", ["init-again", "data", "decision", "next-block"])
async def test_both_the_instance_started_again_and_another_want_the_id(name: str, point: Point) -> None:
    async with stage(2) as cast:
        a, b, client, step = await cast.instance("a"), await cast.instance("b"), Client("id"), STEPS[name]
        await step.prepare(client, a)
        gate = await stopped(cast, a, client, step, point)
        await a.kill()
        if point is not Point.LATE:
            gate.go.set()
        again = await cast.instance("a")
        committed: list[bool] = []

        async def repeat() -> None:
            with suppress(TxnError):
                await step.ask(client, again)
                if name in ("data", "next-block"):
                    await client.end(again)
                committed.append(name != "init-again")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(repeat)
            nursery.start_soon(init_of_a_new_client, b)
        gate.go.set()
        await transaction_of_a_new_client(b)
        decided = is_decided(name, point)
        assert decided or name == "next-block" or committed != [True]
        values = await shown(cast, again, b)
        assert values == ["1", *(["2"] if decided or committed == [True] else []), "new"]
        nothing_of_former_owners(cast)


async def init_of_a_new_client(at: Instance) -> None:
    with suppress(TxnError):
        await Client("id").init(at)


async def test_who_waits_for_an_instance_that_is_stopped_is_not_told_that_it_is_done() -> None:
    async with stage() as cast:
        a, client, step = await cast.instance("a"), Client("id"), STEPS["offsets"]
        await step.prepare(client, a)
        gate = Gate(step.kind, Point.LOST)
        gate.close(cast)
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
                    await step.ask(client, a)

            nursery.start_soon(ask)
            with trio.fail_after(PATIENCE):
                await gate.reached.wait()
            await a.kill()
        gate.go.set()


async def test_what_has_ended_is_not_claimed_again_for_its_time_out() -> None:
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
        await client.init(a)
        await client.write(a, "1", P0, P1)
        view = await b.transactions.log.read_to_end("id")
        assert view is not None
        as_it_was = dataclasses.replace(view)
        await client.end(a)
        b.transactions.coordinator.log.end_overdue(as_it_was)
        await client.write(a, "2", P0, P1)
        await client.end(a)
        assert await shown(cast, a, b) == ["1", "2"]
        assert b.stats.transactions.claims == {}


@pytest.mark.parametrize("instances", [2, 3])
@pytest.mark.parametrize("seed", range(4))
async def test_instances_race_for_one_id(seed: int, instances: int) -> None:
    """Each client uses its own instance, and begins again whenever the error says so; all reports are true."""
    order = random.Random(seed)
    async with stage(2) as cast:
        kproxies = [await cast.instance(f"i{n}") for n in range(instances)]
        told_committed: list[str] = []
        told_otherwise: list[str] = []
        pauses = [[order.randrange(4) for _ in range(12)] for _ in kproxies]

        async def one(at: Instance, who: int) -> None:
            for n, pause in enumerate(pauses[who]):
                value, client = f"{who}.{n}", Client("id", bumps=bool(pause % 2))
                for _ in range(pause):
                    await trio.lowlevel.checkpoint()
                try:
                    await client.init(at)
                    await client.write(at, value, P0, P1)
                    await client.end(at, committed=pause != 3)
                except (TxnError, AssertionError):
                    told_otherwise.append(value)
                else:
                    (told_committed if pause != 3 else told_otherwise).append(value)

        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                for who, at in enumerate(kproxies):
                    nursery.start_soon(one, at, who)
        await transaction_of_a_new_client(kproxies[0])
        assert sorted(await shown(cast, *kproxies)) == sorted([*told_committed, "new"])
        assert len(told_committed) + len(told_otherwise) == 12 * instances
        nothing_of_former_owners(cast)
