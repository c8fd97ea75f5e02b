"""Which copy of a batch counts: for how long that is remembered."""

from collections.abc import Collection

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.brokers.leaders import LeaderQuestion, Told
from kproxy.net.txn.old_copies import OldCopies
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.views import COPY_BYTES, Views
from tests.txn.test_views import Feed, claim, decision

PART = Producer(TXN_BITS | 1, 0)
A, B = ("a", 0), ("b", 1)


class Logs:
    """Two partitions, and a transaction that sent a batch to each of them twice."""

    def __init__(self) -> None:
        self.views = Views()
        Feed(self.views).give("id", claim(1, PART), decision(1, PART, True))
        view = self.views.of("id")
        assert view is not None
        self.copies = view.copies
        self.remember()
        self.told: dict[TopicPartition, tuple[int, int]] = {A: (0, 10), B: (0, 10)}
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.asked = 0
        self.old = OldCopies(self.views, self._ask)

    def remember(self) -> None:
        """A batch or two of the transaction were sent twice."""
        self.copies[PART] = {(*A, 0): 5, (*A, 3): 8, (*B, 0): 5}

    async def _ask(
        self, places: Collection[TopicPartition], question: LeaderQuestion[int]
    ) -> dict[TopicPartition, Told[int]]:
        self.asked += 1  # where they begin, then where they end
        end = self.asked % 2 == 0
        return {place: Told(self.errors.get(place, 0), self.told[place][end]) for place in places}

    def knows(self, place: TopicPartition) -> bool:
        return self.views.is_other_copy(*PART, *place, 0, 6)

    async def sweep(self, times: int = 1) -> None:
        for _ in range(times):
            await self.old.sweep()


async def test_it_is_forgotten_when_the_partition_begins_after_all_copies() -> None:
    logs = Logs()
    await logs.sweep(2)
    logs.told = {A: (9, 20), B: (10, 20)}
    await logs.sweep()
    assert (logs.knows(A), logs.knows(B)) == (True, False)
    assert logs.views.copies_bytes() == 2 * COPY_BYTES
    logs.told[A] = (10, 20)
    await logs.sweep()
    assert logs.views.copies_bytes() == 0
    asked = logs.asked
    await logs.sweep()
    assert logs.asked == asked, "no broker is asked where there is nothing to forget"


async def test_a_copy_that_arrives_before_the_second_sweep_is_waited_for() -> None:
    logs = Logs()
    await logs.sweep()
    logs.told[A] = (10, 15)
    await logs.sweep(2)
    assert logs.knows(A)
    logs.told[A] = (15, 15)
    await logs.sweep()
    assert not logs.knows(A)


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_a_deleted_topic_has_no_copies_and_one_that_does_not_answer_may(error: ErrorCode) -> None:
    logs = Logs()
    await logs.sweep(2)
    logs.errors[A], logs.told[A] = error, (99, 99)
    await logs.sweep()
    assert logs.knows(A) is (error is ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert logs.knows(B)


async def test_a_partition_that_has_become_shorter_is_compared_with_its_new_end() -> None:
    logs = Logs()
    await logs.sweep(2)
    logs.told[A] = (0, 6)
    await logs.sweep()
    logs.told[A] = (6, 20)
    await logs.sweep()
    assert not logs.knows(A)


async def test_what_was_compared_with_is_forgotten_with_the_copies() -> None:
    """What is remembered again may be of copies that are still in flight."""
    logs = Logs()
    await logs.sweep(2)
    logs.copies.clear()
    await logs.sweep()
    logs.remember()
    logs.told = {A: (10, 20), B: (10, 20)}
    await logs.sweep(2)
    assert logs.knows(A)


async def test_it_is_done_again_and_again(autojump_clock: trio.testing.MockClock, nursery: trio.Nursery) -> None:
    logs = Logs()
    nursery.start_soon(logs.old.run)
    await trio.sleep(1)
    assert logs.asked == 0
    await trio.sleep(3600)
    assert logs.knows(A)
    logs.told = {A: (10, 20), B: (10, 20)}
    await trio.sleep(3600)
    assert logs.views.copies_bytes() == 0
