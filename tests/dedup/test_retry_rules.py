"""Each rule by itself."""

from dataclasses import replace

import pytest

from kproxy.dedup.digest import UNTIMED, Digest
from kproxy.dedup.identity import Identity
from kproxy.dedup.unconfirmed import PendingProduce, Stamp, UnconfirmedBatch
from tests.dedup.wires import ALONE, RULES

NOW = 1000.0
TIMED, LATER, UNKNOWN = Digest(b"a", 7), Digest(b"a", 8), Digest(b"a", UNTIMED)


def entry(*, sure: bool = False, clean: bool = False, age: float = 0.0) -> UnconfirmedBatch:
    return UnconfirmedBatch((b"t", 0), Stamp(1, 0, 0, 0, 1), 1, sure, clean, NOW - age)


@pytest.mark.parametrize(
    ("doubt", "ours", "theirs", "agree"),
    [
        (entry(clean=True, age=100), TIMED, TIMED, True),
        (entry(), TIMED, LATER, False),
        (entry(sure=True), TIMED, LATER, True),
        (entry(), TIMED, UNKNOWN, True),
        (entry(), UNKNOWN, LATER, True),
        (entry(clean=True, age=9), UNKNOWN, UNKNOWN, True),
        (entry(clean=True, age=11), UNKNOWN, UNKNOWN, False),
    ],
)
def test_times(doubt: UnconfirmedBatch, ours: Digest, theirs: Digest, agree: bool) -> None:
    assert RULES.times_agree(doubt, ours, theirs, NOW) is agree


@pytest.mark.parametrize(
    ("doubt", "theirs", "agree"),
    [
        (entry(), LATER, True),
        (entry(clean=True, age=9), LATER, True),
        (entry(clean=True, age=11), LATER, False),
        (entry(clean=True, age=11), TIMED, True),
        (entry(sure=True, clean=True, age=11), LATER, True),
    ],
)
def test_times_of_a_client_whose_retries_have_new_ones(doubt: UnconfirmedBatch, theirs: Digest, agree: bool) -> None:
    rules = replace(RULES, new_timestamps=("sarama", "kafka-go*", ""))
    renewing = rules.of(Identity("User:a", "sarama", "10.0.0.1"))
    assert renewing.times_agree(doubt, TIMED, theirs, NOW) is agree


@pytest.mark.parametrize(("client_id", "renews"), [("kafka-go-7", True), ("", True), ("sarama-2", False)])
def test_whose_retries_have_new_timestamps(client_id: str, renews: bool) -> None:
    rules = replace(RULES, new_timestamps=("sarama", "kafka-go*", ""))
    assert rules.of(Identity("User:a", client_id, "10.0.0.1")).renews_timestamps is renews


def test_the_window_of_retries() -> None:
    assert not RULES.expired(entry(age=120), NOW)
    assert RULES.expired(entry(age=121), NOW)


def test_late_answers_and_errors_may_be_repeated() -> None:
    answer = PendingProduce((), due=NOW)
    assert not RULES.may_repeat(answer)
    answer.at = NOW
    assert not RULES.may_repeat(answer)
    answer.at = NOW + 1
    assert RULES.may_repeat(answer)
    assert RULES.may_repeat(PendingProduce((), due=NOW, failed=True))


def test_depth_is_what_was_seen_but_where_it_is_known_to_be_one() -> None:
    assert [RULES.depth(seen) for seen in (1, 9)] == [5, 9]
    assert replace(RULES, in_flight=1).depth(9) == 1


def test_an_answer_was_received_when_requests_or_time_show_it() -> None:
    answer = PendingProduce((), due=NOW, behind=3, position=10, at=NOW)
    assert [RULES.received_by_requests(answer, number, 5) for number in (7, 8)] == [False, True]
    assert [RULES.received_by_time(answer, NOW + age, 10) for age in (89, 90)] == [False, True]
    assert not RULES.received_by_time(answer, NOW + 90, 9)


def test_few_requests_one_by_one_do_not_show_that_all_come_so() -> None:
    went_on = [RULES.keeps_matching(observed=1, requests=number, had_new=True) for number in (99, 100)]
    assert went_on == [True, False]
    assert RULES.keeps_matching(observed=2, requests=999, had_new=True)
    assert not replace(RULES, in_flight=1).keeps_matching(observed=1, requests=1, had_new=True)


def test_only_who_is_known_to_wait_has_no_request_ready_when_it_reads_an_error() -> None:
    assert RULES.has_one_ready()
    assert not replace(RULES, in_flight=1).has_one_ready()


def test_only_a_client_that_waits_for_each_answer_gives_up_what_it_does_not_repeat_first() -> None:
    alone, other = replace(RULES, in_flight=1), replace(RULES, in_flight=2)
    assert (alone.retires(), other.retires()) == (True, False)
    assert (alone.gave_up_open(), other.gave_up_open()) == (True, False)
    assert [alone.keeps_matching(observed=1, requests=100, had_new=new) for new in (False, True)] == [True, False]


def test_a_connection_is_compared_in_full_for_two_windows_of_requests() -> None:
    assert [RULES.settled_requests(seen) for seen in (1, 9)] == [10, 18]


def test_a_comparison_ends_with_the_window_and_after_an_orderly_close_untimed_records_sooner() -> None:
    assert RULES.ends_of(entry()) == (NOW + RULES.window,)
    assert RULES.ends_of(entry(clean=True)) == (NOW + RULES.clean_window, NOW + RULES.window)
    assert RULES.times_agree(entry(clean=True, age=10), UNKNOWN, UNKNOWN, NOW)


def test_an_answer_was_surely_not_received_when_the_client_had_a_second_to_acknowledge_its_end() -> None:
    answer = PendingProduce((), due=NOW, position=10, at=NOW)
    assert [RULES.surely_not_received(answer, 9, NOW + age) for age in (0, 1.0, 1.001)] == [False, False, True]
    assert not RULES.surely_not_received(answer, 10, NOW + 60)


def test_the_retry_of_what_had_no_success_comes_before_an_equal_request() -> None:
    assert RULES.surely_retried(entry(sure=True))
    assert RULES.surely_retried(UnconfirmedBatch.unwritten((b"t", 0), 1, [TIMED], NOW))
    assert not RULES.surely_retried(entry())


def test_only_a_client_that_waits_for_each_response_repeats_before_an_error_or_its_time_out() -> None:
    assert [RULES.sent_too_soon(NOW, at) for at in (NOW - 1, NOW)] == [True, False]
    assert not ALONE.sent_too_soon(NOW, NOW - 1)


def test_no_other_instance_answered_a_retry_of_what_was_taken_when_none_had_the_producer_any_more() -> None:
    taken = entry()
    taken.taken_at = NOW
    assert [RULES.surely_not_received_elsewhere(taken, NOW - ago) for ago in (1.0, 1.001)] == [False, True]
