from kproxy.codec.messages import ErrorCode
from kproxy.proxy.refusals import Refusals

A, B = (b"t", 0), (b"t", 1)
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_next_request_is_told_and_the_one_behind_its_answer_is_taken() -> None:
    refusals = Refusals()
    refusals.expect(A, MOVED)
    assert refusals.of([A, B], 1.0, 1.0, 1) == {A: MOVED}
    assert refusals.of([A, B], 1.0, 1.0, 1) == {}
    assert not refusals.some


def test_what_was_sent_behind_a_refused_request_must_not_overtake_its_retry() -> None:
    refusals = Refusals()
    refusals.expect(A, MOVED)
    assert refusals.of([A], 1.0, 1.0, 3) == {A: MOVED}
    assert refusals.of([A], 1.0, 3.0, 3) == {A: MOVED}  # it lay in the buffer since before
    assert refusals.of([A], 1.01, 3.0, 3) == {A: MOVED}  # it may have crossed the answer
    assert refusals.of([A], 1.01, 3.0, 3) == {}  # three were on their way at most


def test_what_comes_behind_the_refusal_is_taken() -> None:
    refusals = Refusals()
    refusals.expect(A, MOVED)
    assert refusals.of([A], 1.0, 1.0, 3) == {A: MOVED}
    assert refusals.of([A], 2.0, 3.0, 3) == {}
    assert refusals.of([A], 1.0, 3.0, 3) == {}


def test_a_refusal_told_elsewhere_counts_too() -> None:
    refusals = Refusals()
    refusals.told(A, ErrorCode.REQUEST_TIMED_OUT, 5.0, 2)
    assert refusals.of([B], 4.0, 5.0, 2) == {}
    assert refusals.of([A], 4.0, 5.0, 2) == {A: ErrorCode.REQUEST_TIMED_OUT}
    assert refusals.of([A], 4.0, 5.0, 2) == {}


def test_a_client_that_waits_for_each_answer_has_sent_nothing_behind() -> None:
    refusals = Refusals()
    refusals.told(A, ErrorCode.REQUEST_TIMED_OUT, 5.0, 1)
    assert refusals.of([A], 4.0, 5.0, 1) == {}
