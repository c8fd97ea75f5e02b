"""Last stable offsets as they are reported: what is certain, what is asked for, what is forgotten."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.last_stable import UNKNOWN, LastStable, Question, Row

P0, P1 = ("t", 0), ("t", 1)


def known(offsets: Mapping[TopicPartition, int], most: int = 100) -> LastStable:
    stable = LastStable(most)
    stable.found(Question(offsets, at=0.0), offsets)
    return stable


def test_nothing_is_certain_of_a_partition_that_nobody_has_asked_for() -> None:
    stable = LastStable()
    stable.looked_at(Row(P0, 0, 5, 9))
    assert stable.reported(P0) == UNKNOWN == -1  # as brokers write it in responses
    question = stable.question_for([Row(P0, 0, 5, 9)], 1.0)
    assert question == Question({P0: 9}, at=1.0)


def test_what_was_found_is_reported_and_never_taken_back() -> None:
    stable = known({P0: 7})
    assert stable.found(Question({P0: 9}), {P0: 4}) == {P0: 7}
    assert stable.found(Question({P0: 9}), {P0: 8}) == {P0: 8}
    assert stable.found(Question({P0: 9, P1: 9}), {P0: None}) == {P0: None}
    assert stable.reported(P0) == 8


def test_what_a_reader_has_looked_at_counts_if_all_before_it_is_certain() -> None:
    stable = known({P0: 7})
    stable.looked_at(Row(P0, 8, 12, 20))
    assert stable.reported(P0) == 7
    stable.looked_at(Row(P0, 3, 12, 20))
    assert stable.reported(P0) == 12
    stable.looked_at(Row(P0, 3, 5, 20))
    assert stable.reported(P0) == 12
    stable.looked_at(Row(P0, 12, 14, 20))
    assert stable.reported(P0) == 14


def test_a_reader_at_the_end_asks_for_nothing() -> None:
    stable = known({P0: 20})
    assert stable.question_for([Row(P0, 20, 20, 20)], 100.0) is None


def test_for_a_reader_that_lags_it_is_asked_once_a_second_what_the_announcements_say() -> None:
    stable = known({P0: 7, P1: 7})
    rows = [Row(P0, 0, 5, 20), Row(P1, 7, 7, 7)]
    assert stable.question_for(rows, 0.9) is None
    assert stable.question_for(rows, 1.0) == Question({}, {P0: 20}, at=1.0)
    assert stable.question_for(rows, 1.5) is None
    assert stable.question_for([Row(P0, 7, 7, 20)], 2.0) == Question({}, {P0: 20}, at=2.0)


def test_a_reader_that_lags_is_asked_for_at_once_after_the_end_was_asked_for() -> None:
    stable = LastStable()
    stable.found(stable.question_of({P0: 7}, [P0]), {P0: 7})
    assert stable.question_for([Row(P0, 0, 5, 20)], 0.0) == Question({}, {P0: 20}, at=0.0)


def test_for_a_reader_beyond_what_is_certain_the_batches_in_between_are_read() -> None:
    assert known({P0: 7}).question_for([Row(P0, 8, 12, 20)], 1.0) == Question({P0: 20}, at=1.0)


def test_all_partitions_of_a_response_are_asked_for_together() -> None:
    stable = known({P0: 7})
    question = stable.question_for([Row(P0, 0, 5, 20), Row(P1, 0, 5, 20)], 0.5)
    assert question == Question({P1: 20}, {P0: 20}, at=0.5)


def test_after_a_failure_a_partition_is_not_asked_for_for_a_while() -> None:
    stable = known({P1: 7})
    rows = [Row(P0, 0, 5, 20), Row(P1, 0, 5, 20)]
    failed = stable.question_for(rows, 5.0)
    assert failed is not None
    stable.failed(failed, 5.0)
    assert stable.question_for(rows, 14.9) is None
    assert stable.question_for(rows[1:], 15.0) == Question({}, {P1: 20}, at=15.0)
    stable.failed(failed, 5.0)
    assert stable.question_for([*rows, Row(("t", 2), 0, 5, 20)], 14.9) == Question({("t", 2): 20}, {P1: 20}, at=14.9)
    assert stable.question_for(rows, 15.0) == Question({P0: 20}, {P1: 20}, at=15.0)


def test_a_failure_does_not_count_once_an_offset_was_found() -> None:
    stable, row = LastStable(), Row(P0, 0, 5, 20)
    stable.failed(Question({P0: 20}), 5.0)
    stable.found(Question({P0: 20}), {P0: 20})
    stable.lost(P0)
    assert stable.question_for([row], 6.0) == Question({P0: 20}, at=6.0)


def test_partitions_of_which_nothing_could_be_found_out_are_not_kept_without_bound() -> None:
    stable = LastStable(most=4)
    rows = [Row(("t", n), 0, 1, 1) for n in range(99)]
    for row in rows:
        stable.failed(Question({row.place: 1}), 0.0)
    question = stable.question_for(rows, 1.0)
    assert question is not None
    assert question.ends.keys() == {row.place for row in rows[:-3]}


def test_a_partition_that_seems_shorter_than_what_was_reported_is_in_doubt() -> None:
    stable = known({P0: 7})
    assert stable.question_for([Row(P0, 0, 5, 6)], 1.0) == Question({P0: 6}, receded={P0}, at=1.0)
    assert stable.reported(P0) == 7
    assert stable.question_of({P0: 6, P1: 3}, [P0, P1]) == Question({P0: 6, P1: 3}, receded={P0})
    assert stable.question_of({P0: 6, P1: 3}, []) == Question({P0: 6, P1: 3}, inner={P0, P1})
    assert stable.question_of({P0: 7}, [P0]) == Question({P0: 7})
    stable.lost(P0)
    assert stable.reported(P0) == UNKNOWN


def test_an_offset_far_before_the_end_is_not_where_a_forgotten_partition_begins_again() -> None:
    stable = LastStable()
    assert stable.found(Question({P0: 3}, inner={P0}), {P0: 3}) == {P0: 3}
    assert stable.reported(P0) == UNKNOWN
    assert known({P0: 7}).found(Question({P0: 3}, inner={P0}), {P0: 3}) == {P0: 7}


def test_what_the_announcements_say_is_not_enough_for_a_partition_that_was_forgotten() -> None:
    stable = LastStable()
    assert stable.found(Question({}, {P0: 9}), {P0: 3}) == {P0: None}


def test_what_was_used_longest_ago_is_forgotten() -> None:
    stable = known({("t", n): n for n in range(4)}, most=4)
    assert stable.forgotten == 0
    assert stable.reported(("t", 0)) == 0
    for n in range(4, 40):
        stable.found(Question({("t", n): n}, since=stable.forgotten), {("t", n): n})
        assert stable.reported(("t", 0)) == 0
    assert stable.forgotten
    assert sum(stable.reported(("t", n)) != UNKNOWN for n in range(40)) <= 4 + 1
    assert stable.reported(("t", 1)) == UNKNOWN


def test_no_more_are_remembered_because_all_are_used() -> None:
    stable = LastStable(most=4)
    for n in range(40):
        stable.found(Question({("t", n): n}, since=stable.forgotten), {("t", n): n})
        assert sum(stable.reported(("t", m)) != UNKNOWN for m in range(40)) <= 4 + 1


def test_a_partition_is_lost_though_it_was_not_used_for_long() -> None:
    stable = LastStable(most=2)
    for place in (P0, P1):
        stable.found(Question({place: 7}), {place: 7})
    stable.lost(P0)
    assert (stable.reported(P0), stable.reported(P1)) == (UNKNOWN, 7)


def test_an_answer_to_what_was_asked_before_a_partition_was_forgotten_is_not_reported() -> None:
    stable = LastStable(most=2)
    late = stable.question_for([Row(P0, 0, 0, 10)], 1.0)
    assert late is not None
    stable.found(Question({P0: 15}), {P0: 15})
    n = 0
    while not stable.forgotten:
        n += 1
        stable.found(Question({("other", n): 1}), {("other", n): 1})
    assert stable.reported(P0) == UNKNOWN
    assert stable.found(late, {P0: 10}) == {P0: None}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=60))
def test_whatever_is_found_and_forgotten_no_report_is_below_another(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    """The log grows, all of it is decided; answers come late."""
    stable, end, told = LastStable(most=2), 0, dict.fromkeys(range(4), 0)
    late: list[tuple[int, Question]] = []
    for partition, start, more, comes in steps:
        place = ("t", partition)
        end += more
        row = Row(place, min(start, end), min(start + more, end), end)
        stable.looked_at(row)
        question = stable.question_for([row], float(end))
        if question is not None:
            late.append((partition, question))
        if comes and late:
            of, due = late.pop(0)
            stable.found(due, {**due.hints, **due.ends})
            partition, place = of, ("t", of)
        reported = stable.reported(place)
        if reported != UNKNOWN:
            assert told[partition] <= reported <= end
            told[partition] = reported
