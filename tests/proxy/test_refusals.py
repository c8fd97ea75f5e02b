from collections.abc import Sequence

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.dedup.digest import Digest
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.origin import Origin
from kproxy.dedup.refused import Refused
from kproxy.dedup.unconfirmed import PendingProduce
from kproxy.proxy.refusals import Refusals
from tests.dedup.wires import member

A, B = (b"t", 0), (b"t", 1)
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
LATE = ErrorCode.REQUEST_TIMED_OUT


def record(letter: str, time: int = 7) -> Digest:
    return Digest(letter.encode(), time)


def refused(since: float, *records: Digest, told: bool = True, depth: int = 1) -> Refused:
    """A request that was refused, and told so at once, or not yet."""
    return Refused.of(None, since, PendingProduce([], 60.0, at=since, position=1 if told else 0), records, depth)


class Talk:
    """A connection whose client receives refusals at once."""

    def __init__(self, depth: int = 1) -> None:
        self.refusals = Refusals()
        self.origin = Origin(opened_at=0.5)
        self.depth = depth
        self.noted: list[TrackKey] = []

    def ask(self, keys: Sequence[TrackKey], empty_at: float, *records: Digest) -> dict[TrackKey, int]:
        def refuse(key: TrackKey, before: Refused | None) -> Refused:
            self.noted.append(key)
            return refused(empty_at + 0.1, *records, depth=self.depth)

        return self.refusals.of(keys, self.origin, empty_at, empty_at, lambda key: list(records), refuse)


def moved(*records: Digest, depth: int = 1) -> Talk:
    """At 1.0 a request was answered that its partition has moved."""
    talk = Talk(depth)
    talk.refusals.expect(A, MOVED)
    assert talk.ask([A, B], 0.9, *records) == {A: MOVED}
    assert talk.noted == [A]
    return talk


def test_the_next_request_is_refused_and_its_retry_is_taken() -> None:
    talk = moved(record("a"))
    assert talk.ask([A, B], 1.0, record("a")) == {}
    assert not talk.refusals.some
    assert talk.noted == [A]


def test_what_was_sent_after_a_refused_request_must_not_overtake_its_retry() -> None:
    talk = moved(record("a"), depth=2)
    for _ in range(9):
        assert talk.ask([A], 0.99, record("b")) == {A: MOVED}  # it lay in the buffer since before
    assert talk.ask([A], 1.01, record("c")) == {A: MOVED}  # it crossed the response
    assert talk.ask([A], 1.01, record("a")) == {}
    assert talk.ask([A], 1.01, record("b")) == {}
    assert talk.noted == [A] * 11


def test_nobody_has_read_a_refusal_that_is_not_told_yet() -> None:
    """Another partition of its request may have to be waited for."""
    talk = Talk(depth=3)
    talk.refusals.told(A, MOVED, refused(1.0, record("a"), told=False, depth=3))
    for number in range(20):
        assert talk.ask([A], 2.0, record("a", 7 + number)) == {A: MOVED}


def test_at_another_broker_no_more_is_refused_than_can_have_been_ready_however_late_it_is_answered() -> None:
    """It may be of another client, that has the same name and address."""
    talk = Talk()
    talk.refusals.told(A, LATE, refused(1.0, record("a"), told=False), here=False)
    assert [talk.ask([A], 2.0, record("b")) for _ in range(2)] == [{A: LATE}, {}]


def test_what_a_client_had_ready_is_refused_though_it_waits_for_each_answer() -> None:
    talk = moved(record("a"))
    assert talk.ask([A], 1.01, record("b")) == {A: MOVED}
    assert talk.ask([A], 1.1, record("a")) == {}
    assert talk.ask([A], 1.2, record("b")) == {}


def test_of_a_client_that_gave_up_no_more_is_refused_than_it_can_have_had_ready() -> None:
    for depth, ready in (1, 1), (3, 5):
        talk = moved(record("a"), depth=depth)
        assert [talk.ask([A], 1.01, record("b")) for _ in range(ready + 1)] == [{A: MOVED}] * ready + [{}]
    assert moved(record("a")).ask([A], 1.6, record("b")) == {}


def test_what_is_sent_when_the_refusal_is_read_counts_as_ready() -> None:
    talk = moved(record("a"))
    assert [talk.ask([A], 1.0, record("b")) for _ in range(2)] == [{A: MOVED}, {}]


def test_until_a_late_answer_left_all_is_refused() -> None:
    talk, late = Talk(), refused(1.0, record("a"))
    late.answer.at = 3.0
    talk.refusals.told(A, MOVED, late)
    assert [talk.ask([A], 2.0, record("b")) for _ in range(9)] == [{A: MOVED}] * 9


def test_it_is_known_whether_there_is_one() -> None:
    talk = Talk()
    assert talk.refusals.some is False
    talk.refusals.expect(A, MOVED)
    assert talk.refusals.some
    assert talk.ask([B], 0.8, record("b")) == {}
    assert talk.refusals.some
    assert talk.ask([A], 0.9, record("a")) == {A: MOVED}
    assert talk.refusals.some
    elsewhere = Refusals()
    elsewhere.told(A, MOVED, refused(1.0, record("a")), here=False)
    assert elsewhere.some


def test_what_is_accepted_ends_the_wait_for_the_retry_at_all_connections() -> None:
    talk, first = Talk(), refused(1.0, record("a"))
    talk.refusals.told(A, MOVED, first)
    assert talk.ask([A], 1.2, record("a")) == {}
    assert first.retry.ended_at == 1.2


def test_what_cannot_be_read_is_nobodys_retry() -> None:
    talk = moved()
    assert talk.ask([A], 1.01) == {A: MOVED}
    assert talk.ask([A], 1.01) == {}


def test_a_retry_may_begin_with_what_had_timed_out_before() -> None:
    talk = moved(record("b"))
    assert talk.ask([A], 1.1, record("a"), record("b")) == {}
    assert not talk.refusals.some


def test_an_equal_record_that_was_made_after_the_refusal_is_a_retry() -> None:
    """Some clients give a retry new timestamps; a request pipelined after the refused one has about the same time."""
    talk = moved(record("a", 7), depth=2)
    assert talk.ask([A], 0.99, record("a", 507)) == {A: MOVED}
    assert talk.ask([A], 1.01, record("a", 11)) == {A: MOVED}
    assert talk.ask([A], 1.11, record("a", 107)) == {}
    assert not talk.refusals.some


def test_a_retry_with_new_timestamps_that_comes_too_soon_does_not_count_as_what_a_client_had_ready() -> None:
    talk = moved(record("a", 7))
    assert talk.ask([A], 1.01, record("a", 17)) == {A: MOVED}
    assert talk.ask([A], 1.02, record("b", 18)) == {A: MOVED}  # what it had ready
    assert talk.ask([A], 1.3, record("a", 307)) == {}


def test_such_a_retry_may_begin_with_what_had_timed_out_before() -> None:
    talk = moved(record("b", 7))
    assert talk.ask([A], 1.01, record("a", 6), record("b", 17)) == {A: MOVED}
    assert talk.ask([A], 1.02, record("c", 18)) == {A: MOVED}  # what it had ready
    assert talk.ask([A], 1.3, record("a", 6), record("b", 307)) == {}


def test_a_refusal_told_elsewhere_counts_too() -> None:
    talk = Talk()
    talk.refusals.told(A, LATE, refused(5.0, record("a")), here=False)
    assert talk.ask([B], 4.0, record("b")) == {}
    assert talk.ask([A], 4.0, record("b")) == {A: LATE}


def test_of_several_refused_the_first_has_to_come_first() -> None:
    talk = Talk()
    talk.refusals.told(A, LATE, refused(5.0, record("a")))
    talk.refusals.told(A, LATE, refused(5.1, record("b")))
    assert talk.ask([A], 5.2, record("b")) == {A: LATE}
    assert talk.ask([A], 5.3, record("a")) == {}


def test_an_old_refusal_is_no_longer_waited_for() -> None:
    talk = Talk()
    talk.refusals.told(A, LATE, refused(5.0, record("a")))
    talk.refusals.told(A, LATE, refused(9.0, record("b")))
    assert talk.ask([A], 9.1, record("b")) == {}


@pytest.mark.parametrize(
    ("here", "empty_at", "accepted"), [(True, 1.9, False), (True, 2.0, True), (False, 1.9, True), (False, 0.9, True)]
)
def test_when_the_retry_was_accepted_elsewhere_only_what_its_own_connection_had_before_is_refused(
    here: bool, empty_at: float, accepted: bool
) -> None:
    talk, first = Talk(), refused(1.0, record("a"))
    talk.refusals.told(A, MOVED, first, here=here)
    first.retry.end(2.0)
    assert talk.ask([A], empty_at, record("b")) == ({} if accepted else {A: MOVED})


def test_what_is_known_of_its_own_refusal_is_not_replaced_by_what_another_connection_tells() -> None:
    talk, first = Talk(), refused(1.0, record("a"), told=False)
    talk.refusals.told(A, MOVED, first)
    talk.refusals.told(A, LATE, refused(1.1, record("b")).overtaking(first), here=False)
    assert talk.ask([A], 1.2, record("a")) == {A: MOVED}  # nobody has read that refusal yet
    talk.refusals.told(A, LATE, refused(1.3, record("c")), here=False)
    assert talk.ask([A], 1.2, record("b")) == {A: LATE}


def test_its_own_refusal_counts_although_another_connection_waits_for_the_same_retry() -> None:
    talk, first = Talk(), refused(1.0, record("a"))
    talk.refusals.told(A, LATE, first, here=False)
    talk.refusals.told(A, MOVED, refused(1.2, record("b"), told=False).following(first))
    assert talk.ask([A], 1.3, record("a")) == {A: MOVED}  # nobody has read that refusal yet


def test_a_request_that_arrives_late_over_a_connection_that_was_left_uses_up_nothing_of_what_is_ready() -> None:
    used, left, newer = Talk(), Talk(), member()
    used.origin, newer.origin.opened_at = newer.origin, 0.9
    known = Refused.of(newer, 1.0, PendingProduce([], 60.0, at=1.0, position=1), [record("a")])
    used.refusals.told(A, MOVED, known)
    left.refusals.told(A, LATE, known, here=False)
    assert left.ask([A], 1.01, record("x")) == {A: LATE}
    assert used.ask([A], 1.02, record("b")) == {A: MOVED}
    assert used.ask([A], 1.03, record("c")) == {}  # as much as can have been ready


def test_a_connection_that_was_left_is_refused_no_more_than_can_have_been_ready_while_the_response_is_awaited() -> None:
    left, newer = Talk(), member()
    newer.origin.opened_at = 0.9
    known = Refused.of(newer, 1.0, PendingProduce([], 60.0), [record("a")])
    left.refusals.told(A, LATE, known, here=False)
    assert [left.ask([A], 2.0, record("x")) for _ in range(2)] == [{A: LATE}, {}]
