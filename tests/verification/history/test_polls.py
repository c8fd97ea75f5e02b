from dataclasses import replace

from tests.verification.history.sample import log, poll, written
from verification.history import AnomalyKind, Kind, Operation, Outcome, check

WRITTEN = [*written("abcd"), log(*"abcd")]


def kinds(*polls: Operation) -> list[AnomalyKind]:
    return [anomaly.kind for anomaly in check([*WRITTEN, *polls])]


def test_polls_that_follow_each_other_are_clean() -> None:
    assert kinds(poll((0, "a"), (1, "b"), process="c"), poll((2, "c"), process="c", at=2000)) == []


def test_offsets_without_records_between_are_no_skip() -> None:
    # A gap in offsets that no operation knows of: markers, compaction.
    history = [
        replace(operation, sends=(operation.sends[0]._replace(offset=3 * at),))
        for at, operation in enumerate(written("ab"))
    ]
    assert check([*history, poll((0, "a"), (3, "b"), final=True)]) == []


def test_a_record_left_out_within_a_poll_or_between_two() -> None:
    assert kinds(poll((0, "a"), (2, "c"), process="c")) == [AnomalyKind.INT_POLL_SKIP]
    assert kinds(poll((0, "a"), process="c"), poll((2, "c"), process="c", at=2000)) == [AnomalyKind.POLL_SKIP]


def test_a_record_given_again_or_one_before_it() -> None:
    assert kinds(poll((1, "b"), (1, "b"), process="c")) == [AnomalyKind.INT_NONMONOTONIC_POLL]
    assert kinds(poll((1, "b"), process="c"), poll((0, "a"), process="c", at=2000)) == [AnomalyKind.NONMONOTONIC_POLL]


def test_polls_are_taken_in_the_order_in_which_they_began() -> None:
    assert kinds(poll((2, "c"), process="c", at=2000), poll((1, "b"), process="c", at=1500)) == []


def test_a_process_that_assigns_again_begins_where_it_likes() -> None:
    again = Operation("c", Kind.ASSIGN, Outcome.OK, 1500)
    assert kinds(poll((3, "d"), process="c"), again, poll((0, "a"), process="c", at=2000)) == []


def test_a_process_that_subscribes_is_bound_within_a_poll_only() -> None:
    subscribe = Operation("c", Kind.SUBSCRIBE, Outcome.OK, 1)
    polls = [subscribe, poll((3, "d"), process="c"), poll((0, "a"), process="c", at=2000)]
    assert kinds(*polls) == []
    assert kinds(*polls, poll((0, "a"), (2, "c"), process="c", at=3000)) == [AnomalyKind.INT_POLL_SKIP]
