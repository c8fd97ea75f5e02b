"""What read_committed leaves out of what read_uncommitted shows."""

from dataclasses import replace

import pytest

from tests.verification.history.sample import TOPIC, poll
from verification.history import AnomalyKind, Kind, Operation, Outcome, Send, check

Records = list[tuple[int, str]]
COMMITTED: Records = [(0, "plain"), (1, "a"), (4, "c"), (6, "equal")]
EVERYTHING: Records = [(0, "plain"), (1, "a"), (3, "b"), (4, "c"), (5, "d"), (6, "equal")]


def transaction(outcome: Outcome, *values: str) -> Operation:
    sends = tuple(Send(TOPIC, 0, None, value) for value in values)
    return Operation("p", Kind.TXN, outcome, 0, 1, sends=sends)


WRITTEN = [
    Operation("w", Kind.SEND, Outcome.OK, 0, 1, sends=(Send(TOPIC, 0, 0, "plain"),)),
    transaction(Outcome.OK, "a"),
    transaction(Outcome.FAIL, "b"),
    transaction(Outcome.INFO, "c"),
    transaction(Outcome.INFO, "d"),
    transaction(Outcome.OK, "equal"),
]


def found(committed: Records, everything: Records, *more: Operation) -> list[tuple[int, ...]]:
    readings = [poll(*committed, final=True), replace(poll(*everything, final=True), uncommitted=True)]
    anomalies = check([*WRITTEN, *readings, *more])
    return [anomaly.offsets for anomaly in anomalies if anomaly.kind is AnomalyKind.FILTER_MISMATCH]


def test_what_is_not_committed_is_left_out_and_nothing_else() -> None:
    assert found(COMMITTED, EVERYTHING) == []


@pytest.mark.parametrize(
    ("committed", "everything", "offsets"),
    [
        (COMMITTED[1:], EVERYTHING, [(0,)]),
        ([*COMMITTED, (7, "a")], EVERYTHING, [(7,)]),
        ([(0, "plain"), (2, "a"), *COMMITTED[2:]], EVERYTHING, [(1,), (2,)]),
        ([COMMITTED[1], COMMITTED[0], *COMMITTED[2:]], EVERYTHING, [(1,)]),
        ([*COMMITTED[:2], (3, "b"), *COMMITTED[2:]], EVERYTHING, [(3,)]),
        (COMMITTED, EVERYTHING[1:], [(0,)]),
    ],
    ids=["missing", "more", "elsewhere", "disordered", "aborted", "not there"],
)
def test_differences_are_found(committed: Records, everything: Records, offsets: list[tuple[int, ...]]) -> None:
    assert found(committed, everything) == offsets


def test_equal_records_of_which_some_are_committed_are_left_out() -> None:
    assert found(COMMITTED, [*EVERYTHING, (7, "equal")]) == [(7,)]
    assert found(COMMITTED, [*EVERYTHING, (7, "equal")], transaction(Outcome.FAIL, "equal")) == []


def test_readings_before_the_end_and_one_reading_alone_are_not_compared() -> None:
    early = replace(poll((1, "a")), uncommitted=True)
    assert [anomaly.kind for anomaly in check([*WRITTEN, early, poll(*COMMITTED, final=True)])] == []


def test_what_is_read_uncommitted_counts_as_read_nowhere_else() -> None:
    kinds = {anomaly.kind for anomaly in check([*WRITTEN, replace(poll(*EVERYTHING), uncommitted=True)])}
    assert kinds == {AnomalyKind.UNSEEN}


def test_a_control_record_that_is_read_as_data_was_sent_by_nobody() -> None:
    marker = replace(poll((2, "\0\0\0\0\0\0")), uncommitted=True)
    anomalies = check([*WRITTEN, poll(*COMMITTED, final=True), marker])
    assert [(anomaly.kind, anomaly.offsets) for anomaly in anomalies] == [(AnomalyKind.UNSENT, (2,))]
    data = replace(poll((1, "a"), (3, "b")), uncommitted=True)
    assert check([*WRITTEN, poll(*COMMITTED, final=True), data]) == []
