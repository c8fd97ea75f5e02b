"""Which copy of a batch counts: for how long that is remembered."""

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.old_copies import Bounds, OldCopies
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
        self.old = OldCopies(self.views)

    def remember(self) -> None:
        """A batch or two of the transaction were sent twice."""
        self.copies[PART] = {(*A, 0): 5, (*A, 3): 8, (*B, 0): 5}

    def _bounds(self, place: TopicPartition) -> Bounds:
        error = self.errors.get(place, 0)
        return Bounds(None, None, error) if error else Bounds(*self.told[place])

    def knows(self, place: TopicPartition) -> bool:
        return self.views.is_other_copy(*PART, *place, 0, 6)

    def sweep(self, times: int = 1) -> None:
        for _ in range(times):
            self.old.sweep({place: self._bounds(place) for place in self.old.places()})


def test_it_is_forgotten_when_the_partition_begins_after_all_copies() -> None:
    logs = Logs()
    logs.sweep(2)
    logs.told = {A: (9, 20), B: (10, 20)}
    logs.sweep()
    assert (logs.knows(A), logs.knows(B)) == (True, False)
    assert logs.views.copies_bytes() == 2 * COPY_BYTES
    logs.told[A] = (10, 20)
    logs.sweep()
    assert logs.views.copies_bytes() == 0
    assert not logs.old.places(), "no broker is asked where there is nothing to forget"


def test_a_copy_that_arrives_before_the_second_sweep_is_waited_for() -> None:
    logs = Logs()
    logs.sweep()
    logs.told[A] = (10, 15)
    logs.sweep(2)
    assert logs.knows(A)
    logs.told[A] = (15, 15)
    logs.sweep()
    assert not logs.knows(A)


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_deleted_topic_has_no_copies_and_one_that_does_not_answer_may(error: ErrorCode) -> None:
    logs = Logs()
    logs.sweep(2)
    logs.errors[A], logs.told[A] = error, (99, 99)
    logs.sweep()
    assert logs.knows(A) is (error is ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert logs.knows(B)


def test_a_partition_that_has_become_shorter_is_compared_with_its_new_end() -> None:
    logs = Logs()
    logs.sweep(2)
    logs.told[A] = (0, 6)
    logs.sweep()
    logs.told[A] = (6, 20)
    logs.sweep()
    assert not logs.knows(A)


def test_what_was_compared_with_is_forgotten_with_the_copies() -> None:
    """What is remembered again may be of copies that are still in flight."""
    logs = Logs()
    logs.sweep(2)
    logs.copies.clear()
    logs.sweep()
    logs.remember()
    logs.told = {A: (10, 20), B: (10, 20)}
    logs.sweep(2)
    assert logs.knows(A)


def test_what_is_sent_twice_while_brokers_are_asked_counts_from_the_next_sweep() -> None:
    logs = Logs()
    logs.sweep(2)
    logs.copies.clear()
    logs.old.sweep({})
    asked = {A: Bounds(10, 20), B: Bounds(10, 20)}
    logs.remember()
    logs.old.sweep(asked)
    assert logs.knows(A) and logs.knows(B)
    logs.old.sweep({})
    assert logs.knows(A) and logs.knows(B)
