from verification.chaos.kproxy_process import Footprint, log_problems
from verification.chaos.verdict import (
    MOST_OUT_OF_ORDER,
    MOST_REPEATED,
    MOST_UNREAD,
    Bar,
    Verdict,
    errors_bar,
    footprint_bars,
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
    assert all(bar.good for bar in footprint_bars("k", START, Footprint(120 * _MIB, 22), in_doubt=25_000))
    memory, descriptors = footprint_bars("k", START, Footprint(120 * _MIB, 80))
    assert not memory.good
    assert not descriptors.good


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
