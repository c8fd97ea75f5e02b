"""Last stable offsets that fall, lie above an undecided record, or stay below a decided one."""

from tests.verification.history.sample import TOPIC, send
from verification.history import AnomalyKind, Commit, Kind, Operation, Outcome, Poll, Send, check
from verification.history.stable import STUCK_NS

SECOND = 1_000_000_000
LATER = STUCK_NS + 10 * SECOND
BOTH = (Send(TOPIC, 0, 0, "a"), Send(TOPIC, 1, None, "b"))


def transaction(outcome: Outcome = Outcome.OK, asked: int | None = 50, complete: int | None = 60) -> Operation:
    return Operation("p", Kind.TXN, outcome, 10, complete, sends=BOTH, asked=asked)


def end(*values: str) -> Operation:
    """What is read at the end: each value in a partition of its own."""
    polls = tuple(Poll(TOPIC, partition, ((0, value),)) for partition, value in enumerate(values) if value)
    return Operation("end", Kind.POLL, Outcome.OK, 10_000, 10_001, polls=polls, final=True)


def stable(offset: int, at: int, process: str = "prober") -> Operation:
    return Operation(process, Kind.STABLE, Outcome.OK, at, at + 1, commits=(Commit(TOPIC, 0, offset),))


def kinds(*history: Operation) -> list[AnomalyKind]:
    return [anomaly.kind for anomaly in check(history)]


def test_a_last_stable_offset_does_not_fall_for_one_process() -> None:
    assert kinds(stable(3, 1), stable(3, 5), stable(4, 9), stable(2, 20, "other")) == []
    assert kinds(stable(3, 1), stable(2, 5)) == [AnomalyKind.UNSTABLE]


def test_what_is_not_decided_does_not_lie_below_a_last_stable_offset() -> None:
    assert kinds(transaction(), stable(0, 20), stable(1, 55), end("a", "b")) == []
    assert kinds(transaction(), stable(1, 20), end("a", "b")) == [AnomalyKind.UNSTABLE]


def test_a_last_stable_offset_does_not_stay_below_what_was_acknowledged_long_ago() -> None:
    written = [send("a", 0), Operation("end", Kind.POLL, Outcome.OK, LATER, polls=(Poll(TOPIC, 0, ((0, "a"),)),))]
    assert kinds(*written, stable(0, LATER)) == [AnomalyKind.UNSTABLE]
    assert kinds(*written, stable(1, LATER)) == []
    assert kinds(*written, stable(0, LATER - 20 * SECOND)) == []


def test_a_last_stable_offset_may_wait_for_a_transaction_that_was_open() -> None:
    read = Operation("end", Kind.POLL, Outcome.OK, LATER, polls=(Poll(TOPIC, 0, ((1, "x"),)),))
    written = [send("x", 1, at=0), read]
    for outcome in (Outcome.FAIL, Outcome.INFO):
        left_open = transaction(outcome, asked=None, complete=60)
        assert kinds(*written, left_open, stable(0, 2 * STUCK_NS + 50)) == []
        assert kinds(*written, left_open, stable(0, 2 * STUCK_NS + 70)) == [AnomalyKind.UNSTABLE]
        for_ever = transaction(outcome, asked=None, complete=None)
        assert kinds(*written, for_ever, stable(0, 9 * STUCK_NS)) == []
