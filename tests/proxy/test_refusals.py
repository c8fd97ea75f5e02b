from collections.abc import Callable

from kproxy.codec.messages import ErrorCode
from kproxy.dedup.digest import Digest
from kproxy.dedup.lanes import TrackKey
from kproxy.proxy.refusals import Refusals

A, B = (b"t", 0), (b"t", 1)
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
LATE = ErrorCode.REQUEST_TIMED_OUT


def record(letter: str, time: int = 7) -> Digest:
    return Digest(letter.encode(), time)


def holds(*records: Digest) -> Callable[[TrackKey], list[Digest]]:
    return lambda key: list(records)


def moved(first: Digest | None, depth: int = 1) -> Refusals:
    """At 1.0 a request was told that its partition has moved."""
    refusals = Refusals()
    refusals.expect(A, MOVED)
    assert refusals.of([A, B], 0.9, 1.0, depth, holds(*[first] if first else [])) == {A: MOVED}
    return refusals


def test_the_next_request_is_told_and_its_retry_is_taken() -> None:
    refusals = moved(record("a"))
    assert refusals.of([A, B], 1.0, 1.0, 1, holds(record("a"))) == {}
    assert not refusals.some


def test_what_was_sent_behind_a_refused_request_must_not_overtake_its_retry() -> None:
    refusals = moved(record("a"), depth=2)
    for _ in range(9):
        assert refusals.of([A], 0.99, 3.0, 2, holds(record("b"))) == {A: MOVED}  # it lay in the buffer since before
    assert refusals.of([A], 1.01, 3.0, 2, holds(record("c"))) == {A: MOVED}  # it crossed the answer
    assert refusals.of([A], 1.01, 3.0, 2, holds(record("a"))) == {}
    assert refusals.of([A], 1.01, 3.0, 2, holds(record("b"))) == {}


def test_what_a_client_had_ready_is_refused_though_it_waits_for_each_answer() -> None:
    refusals = moved(record("a"))
    assert refusals.of([A], 1.01, 1.01, 1, holds(record("b"))) == {A: MOVED}
    assert refusals.of([A], 1.1, 1.1, 1, holds(record("a"))) == {}
    assert refusals.of([A], 1.2, 1.2, 1, holds(record("b"))) == {}


def test_of_a_client_that_gave_up_no_more_is_refused_than_it_can_have_had_ready() -> None:
    for depth, ready in (1, 1), (3, 5):
        refusals = moved(record("a"), depth)
        found = [refusals.of([A], 1.01, 1.01, depth, holds(record("b"))) for _ in range(ready + 1)]
        assert found == [{A: MOVED}] * ready + [{}]
    assert moved(record("a")).of([A], 1.6, 1.6, 1, holds(record("b"))) == {}


def test_what_cannot_be_read_is_nobodys_retry() -> None:
    refusals = moved(None)
    assert refusals.of([A], 1.01, 1.01, 1, holds()) == {A: MOVED}
    assert refusals.of([A], 1.01, 1.01, 1, holds()) == {}


def test_a_retry_may_begin_with_what_had_timed_out_before() -> None:
    refusals = moved(record("b"))
    assert refusals.of([A], 1.1, 1.1, 1, holds(record("a"), record("b"))) == {}
    assert not refusals.some


def test_an_equal_record_of_another_time_is_a_retry_if_its_client_may_have_read_the_refusal() -> None:
    """What was pipelined behind the refused one came before; and some clients give what they repeat another time."""
    refusals = moved(record("a", 7), depth=2)
    assert refusals.of([A], 0.99, 1.0, 2, holds(record("a", 8))) == {A: MOVED}
    assert refusals.of([A], 1.01, 1.1, 2, holds(record("a", 9))) == {}
    assert not refusals.some


def test_a_refusal_told_elsewhere_counts_too() -> None:
    refusals = Refusals()
    refusals.told(A, LATE, 5.0, 1, record("a"))
    assert refusals.of([B], 4.0, 5.0, 1, holds(record("b"))) == {}
    assert refusals.of([A], 4.0, 5.0, 1, holds(record("b"))) == {A: LATE}


def test_of_several_refused_the_first_has_to_come_first() -> None:
    refusals = Refusals()
    refusals.told(A, LATE, 5.0, 1, record("a"))
    refusals.told(A, LATE, 5.1, 1, record("b"))
    assert refusals.of([A], 5.2, 5.2, 1, holds(record("b"))) == {A: LATE}
    assert refusals.of([A], 5.3, 5.3, 1, holds(record("a"))) == {}


def test_an_old_refusal_is_no_longer_waited_for() -> None:
    refusals = Refusals()
    refusals.told(A, LATE, 5.0, 1, record("a"))
    refusals.told(A, LATE, 9.0, 1, record("b"))
    assert refusals.of([A], 9.1, 9.1, 1, holds(record("b"))) == {}
