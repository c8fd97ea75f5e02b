from verification.chaos.kproxy_process import Footprint, log_problems
from verification.chaos.verdict import (
    MOST_OUT_OF_ORDER,
    MOST_REPEATED,
    MOST_UNREAD,
    Bar,
    Verdict,
    errors_bar,
    footprint_bars,
    forgotten_bar,
    log_bar,
    order_bar,
    progress_bar,
    repeats_bar,
)
from verification.history import Anomaly, AnomalyKind

_MIB = 1 << 20
START = Footprint(60 * _MIB, 20)


def test_a_footprint_that_stays_is_good_and_one_that_grows_is_not() -> None:
    assert all(bar.good for bar in footprint_bars("k", START, Footprint(70 * _MIB, 22)))
    assert all(bar.good for bar in footprint_bars("k", START, Footprint(70 * _MIB, 80), kept=30))
    memory, descriptors = footprint_bars("k", START, Footprint(120 * _MIB, 80))
    assert not memory.good
    assert not descriptors.good


def test_a_kproxy_may_keep_what_it_needs_for_retries_and_no_more() -> None:
    """20 MB for retries, after 60 MB at the start: 106 MB are good, and another 20 MB are a leak."""
    most = 20 * _MIB
    assert all(bar.good for bar in footprint_bars("k", START, Footprint(106 * _MIB, 22), retries=most))
    assert not all(bar.good for bar in footprint_bars("k", START, Footprint(126 * _MIB, 22), retries=most))


def test_what_is_kept_for_retries_for_ever_is_a_leak_whatever_the_resident_memory_is() -> None:
    most = 20.0 * _MIB
    assert forgotten_bar("k", most, 0.0).good
    assert not forgotten_bar("k", most, most).good
    assert not forgotten_bar("k", most, most / 20).good
    assert not forgotten_bar("k", most, None).good, "a page that does not say is no proof"


def test_an_exception_in_the_log_is_a_problem_and_a_warning_is_none() -> None:
    text = (
        '{"level": "warning", "event": "broker lost"}\n{"level": "error", "event": "x", "exception": "Traceback..."}\n'
    )
    problems = log_problems(text)
    assert len(problems) == 1
    assert not log_bar("k", problems).good
    assert log_bar("k", []).good


def test_a_producer_without_success_and_a_strange_error_are_reported_by_name() -> None:
    assert progress_bar({"a": 1, "b": 2}, ["a", "b"]).good
    assert progress_bar({"a": 1}, ["a", "b"]) == Bar("producers without success", "b", False)
    assert errors_bar({}).good
    assert "UNKNOWN_PRODUCER_ID 3" in errors_bar({"UNKNOWN_PRODUCER_ID": 3}).found


def test_a_verdict_is_clean_if_nothing_at_all_was_found() -> None:
    good, bad = Bar("x", "", True), Bar("y", "", False)
    anomaly = Anomaly(AnomalyKind.DUPLICATE, "t", 0, "")
    assert Verdict([], [], [good]).clean
    assert not Verdict([], [], [good, bad]).clean
    assert not Verdict([], [anomaly], [good]).clean


def test_a_few_records_may_be_out_of_order_more_of_a_client_without_a_name() -> None:
    swapped = Anomaly(AnomalyKind.NONMONOTONIC_SEND, "t", 0, "p sent 'a' before 'b'", "k.librdkafka-old:2")
    few, many = [swapped] * MOST_OUT_OF_ORDER, [swapped] * (MOST_OUT_OF_ORDER + 1)
    assert Verdict([], few, [order_bar(few)]).clean
    assert not Verdict([], many, [order_bar(many)]).clean
    named = Anomaly(AnomalyKind.NONMONOTONIC_SEND, "t", 0, "p sent 'a' before 'b'", "k.librdkafka:2")
    few, many = [named] * MOST_UNREAD, [named] * (MOST_UNREAD + 1)
    assert Verdict([], few, [order_bar(few)]).clean
    assert not Verdict([], many, [order_bar(many)]).clean


def test_a_few_records_without_timestamps_may_be_there_twice_after_a_kill() -> None:
    twice = Anomaly(AnomalyKind.DUPLICATE, "t", 0, "", "k.librdkafka-old-deep:1")
    few, many = [twice] * MOST_REPEATED, [twice] * (MOST_REPEATED + 1)
    assert Verdict([], few, [repeats_bar(few, killed=True)]).clean
    assert not Verdict([], many, [repeats_bar(many, killed=True)]).clean
    assert not Verdict([], few, [repeats_bar(few, killed=False)]).clean
    other = [Anomaly(AnomalyKind.DUPLICATE, "t", 0, "", "k.librdkafka-old:1")]
    assert not Verdict([], other, [repeats_bar(other, killed=True)]).clean
