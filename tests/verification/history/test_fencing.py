"""Zombies, EndTxns of fenced producers, and EndTxns that arrive in the next transaction."""

import pytest

from tests.verification.history.sample import TOPIC
from verification.history import AnomalyKind, Kind, Operation, Outcome, Poll, Producer, Send, check

OLD, NEW = Producer(7, 3), Producer(7, 4)
ZOMBIE, FENCED, LATE = AnomalyKind.ZOMBIE, AnomalyKind.FENCED_SUCCESS, AnomalyKind.DELAYED_END


def init(producer: Producer, invoke: int, complete: int | None, name: str = "id", ok: bool = True) -> Operation:
    outcome = Outcome.OK if ok else Outcome.INFO
    return Operation(f"new {invoke}", Kind.INIT, outcome, invoke, complete, transactional_id=name, producer=producer)


def transaction(
    invoke: int,
    asked: int | None,
    *values: str,
    outcome: Outcome = Outcome.OK,
    producer: Producer = OLD,
    error: str = "",
    complete: int | None = None,
) -> Operation:
    sends = tuple(Send(TOPIC, 0, None, value) for value in values)
    last = (asked or invoke) + 5 if complete is None else complete
    more = {"asked": asked, "error": error, "transactional_id": "id", "producer": producer}
    return Operation("p", Kind.TXN, outcome, invoke, last, sends=sends, **more)  # type: ignore[arg-type]


def end(
    invoke: int, delivered: int | None = None, outcome: Outcome = Outcome.OK, producer: Producer = OLD
) -> Operation:
    more = {"transactional_id": "id", "producer": producer, "delivered": delivered}
    return Operation("p", Kind.END, outcome, invoke, invoke + 1, **more)  # type: ignore[arg-type]


def log(*values: str, at: int = 10_000, final: bool = True) -> Operation:
    polls = (Poll(TOPIC, 0, tuple(enumerate(values))),)
    return Operation("end", Kind.POLL, Outcome.OK, at, at + 1, polls=polls, final=final)


def kinds(*history: Operation) -> set[AnomalyKind]:
    return {anomaly.kind for anomaly in check(history)}


FIRST = init(OLD, 0, 5)


# -- 12: zombies


def test_what_a_fenced_producer_writes_is_not_visible() -> None:
    zombie = transaction(30, 40, "a", outcome=Outcome.INFO)
    assert ZOMBIE in kinds(FIRST, init(NEW, 10, 20), zombie, log("a"))
    assert kinds(FIRST, init(NEW, 10, 20), zombie, log()) == set()


def test_a_single_record_of_a_fenced_producer_counts_too() -> None:
    sends = (Send(TOPIC, 0, None, "a"),)
    zombie = Operation("p", Kind.SEND, Outcome.OK, 30, 31, sends=sends, transactional_id="id", producer=OLD)
    assert kinds(FIRST, init(NEW, 10, 20), zombie, log("a")) == {ZOMBIE}


@pytest.mark.parametrize(
    "newer",
    [
        init(NEW, 25, 35),  # no response yet when the transaction began
        init(NEW, 10, 20, ok=False),
        init(NEW, 10, None),
        init(NEW, 10, 20, name="another id"),
        init(OLD, 10, 20),
        init(Producer(7, 2), 10, 20),
    ],
)
def test_who_is_not_fenced_is_no_zombie(newer: Operation) -> None:
    assert ZOMBIE not in kinds(FIRST, newer, transaction(30, 31, "a"), log("a"))


def test_another_producer_id_fences_if_it_was_given_after_the_former() -> None:
    other = Producer(9, 0)
    assert ZOMBIE in kinds(FIRST, init(other, 10, 20), transaction(30, 40, "a"), log("a"))
    assert ZOMBIE not in kinds(init(other, 0, 5), init(OLD, 10, 20), transaction(30, 40, "a"), log("a"))
    # both asked at the same time: the log may have either order
    assert ZOMBIE not in kinds(init(OLD, 0, 15), init(other, 10, 20), transaction(30, 40, "a"), log("a"))


def test_the_highest_epoch_counts_whatever_the_order_of_the_responses() -> None:
    responses = [FIRST, init(Producer(7, 9), 6, 20), init(NEW, 6, 25)]
    assert ZOMBIE in kinds(*responses, transaction(30, 40, "a", producer=Producer(7, 8)), log("a"))
    assert kinds(*responses, transaction(30, 40, "a", producer=Producer(7, 9)), log("a")) == set()


# -- 13: success though fenced


def test_a_commit_that_is_asked_for_after_the_fence_does_not_succeed() -> None:
    begun_before = transaction(8, 30, "a")
    assert FENCED in kinds(FIRST, init(NEW, 10, 20), begun_before, log("a"))
    assert FENCED in kinds(FIRST, init(NEW, 10, 20), transaction(8, 30, "a", outcome=Outcome.INFO), log("a"))
    assert kinds(FIRST, init(NEW, 10, 20), transaction(8, 30, "a", outcome=Outcome.FAIL), log()) == set()


def test_a_commit_that_was_asked_for_before_the_fence_may_succeed_late() -> None:
    assert kinds(FIRST, init(NEW, 10, 20), transaction(8, 15, "a", complete=40), log("a")) == set()


def test_no_end_txn_succeeds_after_the_fence() -> None:
    assert kinds(FIRST, init(NEW, 10, 20), end(30)) == {FENCED}
    assert kinds(FIRST, init(NEW, 10, 20), end(30, producer=NEW), end(15)) == set()
    assert kinds(FIRST, init(NEW, 10, 20), end(30, outcome=Outcome.FAIL)) == set()


# -- 14: EndTxns that arrive late

T1 = transaction(10, 20, "a")
FAILED = Outcome.FAIL


@pytest.mark.parametrize(
    ("second", "seen"),
    [
        (transaction(50, 90, "b", "c"), ["a", "c"]),
        (transaction(50, 90, "b", "c"), ["a"]),
        (transaction(50, 90, "b", "c", outcome=Outcome.INFO), ["a", "b"]),
        (transaction(50, None, "b", "c", outcome=FAILED, complete=90), ["a", "b"]),
        (transaction(50, 90, "b", outcome=FAILED, error="INVALID_TXN_STATE"), ["a"]),
    ],
)
def test_an_end_txn_that_arrives_in_the_next_transaction_does_not_change_it(second: Operation, seen: list[str]) -> None:
    assert LATE in kinds(T1, second, end(20, 60), log(*seen))
    for other in (end(20, 45), end(20, 95), end(20, None), end(55, 60)):
        assert LATE not in kinds(T1, second, other, log(*seen))


def test_an_end_txn_that_arrives_late_makes_nothing_visible_early() -> None:
    second = transaction(50, 90, "b")
    early = Operation("reader", Kind.POLL, Outcome.OK, 70, 71, polls=(Poll(TOPIC, 0, ((1, "b"),)),))
    assert LATE in kinds(T1, second, end(20, 60), early, log("a", "b"))
    assert kinds(T1, second, end(20, 60), log("a", "b")) == set()


def test_an_init_producer_id_may_have_ended_the_transaction_whatever_its_outcome() -> None:
    second = transaction(50, 90, "b", outcome=FAILED, error="INVALID_TXN_STATE")
    for taking_over in (init(NEW, 70, None, ok=False), init(NEW, 70, 80, ok=False), init(NEW, 70, 80)):
        assert LATE not in kinds(T1, second, end(20, 60, FAILED), taking_over, log("a"))
    assert LATE in kinds(T1, second, end(20, 60, FAILED), init(NEW, 30, 40, ok=False), log("a"))


@pytest.mark.parametrize(
    ("second", "seen"),
    [
        (transaction(50, 90, "b", "c"), ["a", "b", "c"]),
        (transaction(50, 90, "b", "c", outcome=FAILED, error="PRODUCER_FENCED"), ["a"]),
        (transaction(50, 90, "b", "c", outcome=Outcome.INFO), ["a"]),
        (transaction(50, None, outcome=FAILED), ["a"]),
    ],
)
def test_an_end_txn_may_arrive_late_where_it_is_refused(second: Operation, seen: list[str]) -> None:
    assert kinds(T1, second, end(20, 60, FAILED), log(*seen)) == set()
