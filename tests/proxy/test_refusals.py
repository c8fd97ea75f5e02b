from collections.abc import Callable

from kproxy.codec.messages import ErrorCode
from kproxy.dedup.lanes import TrackKey
from kproxy.proxy.refusals import Refusals

A, B = (b"t", 0), (b"t", 1)
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
LATE = ErrorCode.REQUEST_TIMED_OUT


def begins(content: bytes | None) -> Callable[[TrackKey], bytes | None]:
    return lambda key: content


def moved(content: bytes | None, depth: int = 1) -> Refusals:
    """At 1.0 a request was told that its partition has moved."""
    refusals = Refusals()
    refusals.expect(A, MOVED)
    assert refusals.of([A, B], 0.9, 1.0, depth, begins(content)) == {A: MOVED}
    return refusals


def test_the_next_request_is_told_and_its_retry_is_taken() -> None:
    refusals = moved(b"a")
    assert refusals.of([A, B], 1.0, 1.0, 1, begins(b"a")) == {}
    assert not refusals.some


def test_what_was_sent_behind_a_refused_request_must_not_overtake_its_retry() -> None:
    refusals = moved(b"a", depth=2)
    for _ in range(9):
        assert refusals.of([A], 0.99, 3.0, 2, begins(b"b")) == {A: MOVED}  # it lay in the buffer since before
    assert refusals.of([A], 1.01, 3.0, 2, begins(b"c")) == {A: MOVED}  # it crossed the answer
    assert refusals.of([A], 1.01, 3.0, 2, begins(b"a")) == {}
    assert refusals.of([A], 1.01, 3.0, 2, begins(b"b")) == {}


def test_what_a_client_had_ready_is_refused_though_it_waits_for_each_answer() -> None:
    refusals = moved(b"a")
    assert refusals.of([A], 1.01, 1.01, 1, begins(b"b")) == {A: MOVED}
    assert refusals.of([A], 1.1, 1.1, 1, begins(b"a")) == {}
    assert refusals.of([A], 1.2, 1.2, 1, begins(b"b")) == {}


def test_of_a_client_that_gave_up_no_more_is_refused_than_it_can_have_had_ready() -> None:
    for depth, ready in (1, 1), (3, 5):
        refusals = moved(b"a", depth)
        found = [refusals.of([A], 1.01, 1.01, depth, begins(b"b")) for _ in range(ready + 1)]
        assert found == [{A: MOVED}] * ready + [{}]
    assert moved(b"a").of([A], 1.6, 1.6, 1, begins(b"b")) == {}


def test_what_cannot_be_read_is_nobodys_retry() -> None:
    refusals = moved(None)
    assert refusals.of([A], 1.01, 1.01, 1, begins(None)) == {A: MOVED}
    assert refusals.of([A], 1.01, 1.01, 1, begins(None)) == {}


def test_a_refusal_told_elsewhere_counts_too() -> None:
    refusals = Refusals()
    refusals.told(A, LATE, 5.0, 1, b"a")
    assert refusals.of([B], 4.0, 5.0, 1, begins(b"b")) == {}
    assert refusals.of([A], 4.0, 5.0, 1, begins(b"b")) == {A: LATE}


def test_of_several_refused_the_first_has_to_come_first() -> None:
    refusals = Refusals()
    refusals.told(A, LATE, 5.0, 1, b"a")
    refusals.told(A, LATE, 5.1, 1, b"b")
    assert refusals.of([A], 5.2, 5.2, 1, begins(b"b")) == {A: LATE}
    assert refusals.of([A], 5.3, 5.3, 1, begins(b"a")) == {}


def test_an_old_refusal_is_no_longer_waited_for() -> None:
    refusals = Refusals()
    refusals.told(A, LATE, 5.0, 1, b"a")
    refusals.told(A, LATE, 9.0, 1, b"b")
    assert refusals.of([A], 9.1, 9.1, 1, begins(b"b")) == {}
