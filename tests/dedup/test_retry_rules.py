"""Each rule by itself."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from kproxy.dedup.digest import UNTIMED, Digest, Digests
from kproxy.dedup.identity import Identity
from kproxy.dedup.origin import ELSEWHERE, NO_SILENCE, Origin, Silence, Software
from kproxy.dedup.unconfirmed import PendingProduce, Stamp, UnconfirmedBatch
from tests.dedup.wires import ALONE, CLEAN_WINDOW, RULES

NOW = 1000.0
TIMED, LATER, UNKNOWN = (Digest(b"a" * 16, time) for time in (7, 8, UNTIMED))


def entry(
    *, sure: bool = False, clean: bool = False, age: float = 0.0, window: float = CLEAN_WINDOW
) -> UnconfirmedBatch:
    found = UnconfirmedBatch((b"t", 0), Stamp(1, 0, 0, 0, 1), 1, sure, clean, NOW - age, taken_at=NOW - age)
    found.origin = Origin(clean_window=window)
    return found


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
        (entry(clean=True, window=0), UNKNOWN, UNKNOWN, False),
        (entry(clean=True, window=0), TIMED, TIMED, True),
        (entry(age=119), UNKNOWN, UNKNOWN, True),
        (entry(age=120), UNKNOWN, UNKNOWN, False),
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
    answer = PendingProduce((), due=NOW, arrived_with=3, position=10, at=NOW - 1, arrived_at=NOW)
    assert [RULES.received_by_requests(answer, number, 5) for number in (7, 8)] == [False, True]
    assert [RULES.received_by_time(answer, NOW + age, 10) for age in (119, 120)] == [False, True]
    assert not RULES.received_by_time(answer, NOW + 120, 9)
    assert not RULES.received_by_time(PendingProduce((), due=NOW, position=10, at=NOW), NOW + 120, 10)


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
    assert RULES.ends_of(entry()) == (NOW + RULES.window, NOW + RULES.window)
    assert RULES.ends_of(entry(clean=True)) == (NOW + CLEAN_WINDOW, NOW + RULES.window)
    assert not RULES.times_agree(entry(clean=True, age=10), UNKNOWN, UNKNOWN, NOW)


def test_no_match_renews_the_time_in_which_records_without_timestamps_are_compared() -> None:
    declared, broken = entry(clean=True, age=9), entry(age=9)
    for matched in declared, broken:
        matched.recall(Digests.of([UNKNOWN]), [0])
        again = matched.part([0])
        again.since, again.clean, again.origin = NOW, matched.clean, matched.origin
        assert RULES.untimed_until(again) == RULES.untimed_until(matched)


def test_the_time_after_an_end_in_good_order_counts_from_the_first_send() -> None:
    found = entry(clean=True)
    found.taken_at = NOW - 5
    assert RULES.untimed_until(found) == NOW - 5 + CLEAN_WINDOW


def test_what_was_read_from_the_log_counts_from_then() -> None:
    found = UnconfirmedBatch((b"t", 0), Stamp(1, 0, 0, 0, 1), 1, False, True, NOW)
    found.origin = Origin(clean_window=CLEAN_WINDOW)
    assert RULES.untimed_until(found) == NOW + CLEAN_WINDOW


def test_only_a_response_that_was_not_handed_over_was_surely_not_received() -> None:
    """A missing acknowledgement may be late or lost."""
    answer = PendingProduce((), due=NOW, position=10, at=NOW)
    assert [RULES.surely_not_received(answer, handed_over) for handed_over in (9, 10)] == [True, False]


def test_an_end_in_good_order_shows_that_acknowledged_responses_were_received() -> None:
    assert RULES.received_by_end(10, 10, closed_well=True)
    assert not RULES.received_by_end(10, 9, closed_well=True)
    assert not RULES.received_by_end(10, 10, closed_well=False)
    assert not RULES.received_by_end(0, 10, closed_well=True), "the client may have thrown it away"


@pytest.mark.parametrize(("window", "answered"), [(0.0, True), (CLEAN_WINDOW, False)])
def test_what_something_on_the_way_has_closed_may_be_unanswered(window: float, answered: bool) -> None:
    assert RULES.is_answered(entry(clean=True, window=window)) is answered
    assert not RULES.is_answered(entry(window=window))


@pytest.mark.parametrize(
    ("acknowledged", "age", "is_direct", "arrived"),
    [(10, 0.0, True, True), (9, 9.0, True, False), (10, 0.9, False, False), (10, 1.0, False, True)],
)
def test_a_response_has_arrived_when_it_is_acknowledged_and_through_a_balancer_a_second_later(
    acknowledged: int, age: float, is_direct: bool, arrived: bool
) -> None:
    answer = PendingProduce((), due=NOW, position=10, at=NOW)
    assert RULES.has_arrived(answer, acknowledged, NOW + age, is_direct=is_direct) is arrived


@pytest.mark.parametrize(
    ("arrived_at", "silence", "received"),
    [
        (NOW, Silence(NOW - 5, NOW + 1), True),
        (NOW, Silence(NOW - 5, NOW + 0.9), False),
        (NOW - 5, Silence(NOW, NOW + 1), True),
        (NOW - 5, Silence(NOW, NOW + 0.9), False),
        (NOW - 5, NO_SILENCE, False),
    ],
)
def test_a_request_after_a_silence_shows_that_what_had_arrived_was_read(
    arrived_at: float, silence: Silence, received: bool
) -> None:
    answer = PendingProduce((), due=NOW, arrived_at=arrived_at)
    assert RULES.likely_read_in_silence(answer, silence) is received


@pytest.mark.parametrize(
    ("observed", "software", "most"),
    [
        (1, "apache-kafka-java", 5),
        (9, "apache-kafka-java", 9),
        (1, "librdkafka", 1000),
        (2000, "librdkafka", 2000),
        (1, "confluent-kafka-javascript", 1000),
        (1, "", 5),
        (2, "", 1000),
    ],
)
def test_a_client_of_unknown_depth_may_have_a_thousand_requests_in_flight(
    observed: int, software: str, most: int
) -> None:
    assert replace(RULES, in_flight=None).most_unread(observed, software) == most


@pytest.mark.parametrize(("observed", "most"), [(1, 30), (40, 40)])
def test_a_number_of_requests_in_flight_counts_for_every_client(observed: int, most: int) -> None:
    assert replace(RULES, in_flight=30).most_unread(observed, "librdkafka") == most
    assert ALONE.most_unread(observed, "librdkafka") == 1


def test_a_client_of_unknown_depth_does_not_count_as_one_that_waits() -> None:
    auto = replace(RULES, in_flight=None)
    assert not auto.gave_up_open()
    assert not auto.retires()
    assert auto.has_one_ready()
    assert auto.keeps_matching(observed=1, requests=1, had_new=True)
    assert auto.sent_too_soon(NOW, NOW - 1)


@pytest.mark.parametrize(("age", "had"), [(0.9, False), (1.0, True), (5.0, True)])
def test_a_program_reads_within_a_second(age: float, had: bool) -> None:
    assert RULES.has_had_time(NOW, NOW + age) is had


@pytest.mark.parametrize(("received", "enough"), [((16 << 20) - 1, False), (16 << 20, True)])
def test_not_all_of_sixteen_mebibytes_waited_in_kernels(received: int, enough: bool) -> None:
    assert RULES.received_by_bytes(received) is enough


JAVA = Software("apache-kafka-java", "3.9.1")


def origin(first_at: float, heard_at: float = 0.0, **more: Any) -> Origin:
    opened_at = more.pop("opened_at", min(first_at, NOW))
    return Origin(opened_at=opened_at, first_at=first_at, heard_at=heard_at, node_id=1, **more)


@pytest.mark.parametrize(
    ("left", "used", "another"),
    [
        (origin(1, heard_at=5), origin(4), True),
        (origin(1, heard_at=4), origin(4), False),
        (origin(4, heard_at=9), origin(1, heard_at=5), True),
        (origin(4, heard_at=9), origin(1, heard_at=3), False),
        (origin(1, heard_at=5), origin(inf), False),
        (origin(1, asked_at=5), origin(4), False),
        (origin(4), origin(1, asked_at=5), True),
        (origin(4), origin(1, asked_at=4), False),
        (origin(4, opened_at=0), origin(2, heard_at=5), False),
        (origin(1, heard_at=5), replace(origin(4), node_id=2), False),
        (origin(1, heard_at=5), replace(origin(4), node_id=0), False),
        (origin(1, heard_at=5, clean_window=1.0), origin(4), False),
        (origin(1, heard_at=5), origin(4, clean_window=1.0), False),
        (origin(1, software=JAVA), origin(4, software=JAVA), False),
        (origin(1, software=JAVA), origin(4, software=Software("librdkafka", "2.3.0")), True),
        (origin(1, software=JAVA), origin(4, software=JAVA._replace(version="3.9.0")), True),
        (origin(1, software=JAVA), origin(4), False),
        (ELSEWHERE, origin(4), False),
    ],
)
def test_two_connections_that_were_open_at_the_same_time_are_of_two_programs(
    left: Origin, used: Origin, another: bool
) -> None:
    assert RULES.is_of_another_program(left, used) is another


def test_a_connection_is_of_its_own_program() -> None:
    one = origin(1, heard_at=5)
    assert not RULES.is_of_another_program(one, one)


def test_clients_that_pool_connections_retry_over_any_of_them() -> None:
    pooling = replace(RULES, connection_pools=("go-*",)).of(Identity("", "go-1", ""))
    left, used = origin(1, heard_at=5, software=JAVA), origin(4, software=JAVA)
    assert not pooling.is_of_another_program(left, used)
    assert RULES.is_of_another_program(left, used)
    assert not pooling.renews_timestamps


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
