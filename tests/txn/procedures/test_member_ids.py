"""Transactional ids of the broker's for members: each is one member's until the log says that this has ended."""

from collections.abc import Iterator
from itertools import count

import trio
import trio.testing

from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.member_ids import PREFIX, MemberIds
from kproxy.txn.view_values import BrokerTransaction
from tests.txn import bodies
from tests.txn.bodies import producer
from tests.txn.procedures.memory_log import TRIO_TIME

M, N = producer(200, 0), producer(201, 0)


def native(name: str, level: int = 2) -> BrokerTransaction:
    return BrokerTransaction(name, producer(7, 0), level, 60_000)


def slots(instance: str = "a", ids: Iterator[int] | None = None) -> MemberIds:
    numbers = ids or count()

    async def new_id() -> int:
        return next(numbers)

    return MemberIds(instance, new_id, TRIO_TIME)


async def test_names_are_nobody_elses() -> None:
    ids = count(7)
    names = [await slots(instance, ids).take() for instance in ("a", "a", "b")]
    assert names == [f"{PREFIX}a-7", f"{PREFIX}a-8", f"{PREFIX}b-9"]


async def test_a_name_is_used_again_only_after_the_record() -> None:
    made = slots()
    first = await made.take()
    made.joined(M, native(first))
    assert await made.take() != first
    made.view_changed(Entry("id", bodies.prepare(1, M)))
    made.view_changed(Entry("id", bodies.ended(N)))
    third = await made.take()
    made.view_changed(Entry("id", bodies.ended(M)))
    made.view_changed(Entry("id", bodies.ended(M)))
    assert await made.take() == first
    assert await made.take() not in (first, third)


async def test_what_was_given_back_is_free_at_once() -> None:
    made = slots()
    name = await made.take()
    made.give_back(name)
    assert await made.take() == name


async def used(made: MemberIds, level: int, member: Producer = M) -> str:
    """A name whose member has ended."""
    name = await made.take()
    made.joined(member, native(name, level))
    made.view_changed(Entry("id", bodies.ended(member)))
    return name


async def needs_epochs(made: MemberIds) -> bool:
    """Whether names need a new epoch; else the caller would wait."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.until_unfenced)
        await trio.testing.wait_all_tasks_blocked()
        waits = bool(nursery.child_tasks)
        nursery.cancel_scope.cancel()
    return not waits


async def test_a_name_that_keeps_its_epoch_at_an_end_is_fenced_while_it_rests() -> None:
    made = slots()
    name = await used(made, level=1)
    assert made.take_unfenced() == (name, 60_000)
    assert made.take_unfenced() is None
    assert await made.take() != name
    made.fenced(name)
    made.give_back(name)
    assert made.take_unfenced() is None
    assert await made.take() == name


async def test_a_name_is_not_fenced_twice() -> None:
    made = slots()
    name = await used(made, level=1)
    assert await made.take() == name
    assert made.take_unfenced() is None
    made.give_back(name)
    assert made.take_unfenced() == (name, 60_000)  # no new epoch was asked for


async def test_an_end_that_raises_the_epoch_fences() -> None:
    made = slots()
    await used(made, level=2)
    assert made.take_unfenced() is None


async def test_who_fences_waits_until_a_name_needs_it() -> None:
    made = slots()
    assert not await needs_epochs(made)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.until_unfenced)
        await trio.testing.wait_all_tasks_blocked()
        await used(made, level=2)
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        first = await used(made, level=1)
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks
    assert made.take_unfenced() == (first, 60_000)
    second = await used(made, level=1, member=N)
    made.fenced(first)
    assert await needs_epochs(made)
    made.fenced(first)
    assert await needs_epochs(made)
    made.fenced(second)
    assert not await needs_epochs(made)
