from tests.verification.history.sample import TOPIC, log, poll, send, written
from verification.history import Anomaly, AnomalyKind, Kind, Operation, Outcome, Poll, Send, check


def kinds(*history: Operation) -> list[AnomalyKind]:
    return [anomaly.kind for anomaly in check(history)]


def only(*history: Operation) -> Anomaly:
    [anomaly] = check(history)
    return anomaly


def test_what_was_acknowledged_and_is_there_once_is_clean() -> None:
    assert kinds(*written("abc"), log(*"abc")) == []


def test_a_record_that_stands_twice_is_a_duplicate_with_its_offsets_and_its_sender() -> None:
    history = written("ab")
    anomaly = only(*history, log("a", "b", "a"))
    assert anomaly.kind is AnomalyKind.DUPLICATE
    assert (anomaly.topic, anomaly.partition, anomaly.value) == (TOPIC, 0, "a")
    assert anomaly.offsets == (0, 2)
    assert anomaly.operations == (history[0],)


def test_a_send_of_unknown_fate_may_be_there_once_or_not_at_all_but_not_twice() -> None:
    unknown = send("b", None, at=5, outcome=Outcome.INFO)
    assert kinds(send("a", 0), unknown, log("a")) == []
    assert kinds(send("a", 0), unknown, log("a", "b")) == []
    assert kinds(send("a", 0), unknown, log("a", "b", "b")) == [AnomalyKind.DUPLICATE]


def test_an_offset_with_two_values_is_inconsistent_whichever_process_says_so() -> None:
    two_polls = [*written("ab"), poll((0, "a"), (1, "b")), poll((0, "b"), process="other", ok=False)]
    assert AnomalyKind.INCONSISTENT_OFFSET in kinds(*two_polls)
    false_acknowledgement = [send("a", 0), send("b", 0, at=5), log("a", "b")]
    assert AnomalyKind.INCONSISTENT_OFFSET in kinds(*false_acknowledgement)


def test_an_acknowledged_record_that_the_log_has_passed_by_is_lost_and_its_reader_skipped_it() -> None:
    passed_by = poll((0, "a"), (2, "c"), final=True)
    assert kinds(*written("abc"), passed_by) == [AnomalyKind.LOST_WRITE, AnomalyKind.INT_POLL_SKIP]


def test_a_lost_record_is_named_with_the_offset_it_was_acknowledged_at() -> None:
    found = check([*written("abc"), poll((0, "a"), final=True), poll((2, "c"), final=True, process="second")])
    [lost] = [anomaly for anomaly in found if anomaly.kind is AnomalyKind.LOST_WRITE]
    assert (lost.value, lost.offsets) == ("b", (1,))


def test_a_record_polled_once_and_gone_at_the_end_is_lost() -> None:
    early = poll((0, "a"), (1, "b"), (2, "c"), process="early")
    end = [poll((0, "a"), final=True), poll((2, "c"), final=True, process="second")]
    assert kinds(*written("abc"), early, *end) == [AnomalyKind.LOST_WRITE]


def test_an_acknowledged_record_beyond_all_that_was_read_is_unseen() -> None:
    anomaly = only(*written("abc"), log("a", "b"))
    assert (anomaly.kind, anomaly.value) == (AnomalyKind.UNSEEN, "c")


def test_an_acknowledged_record_without_an_offset_is_searched_for_too() -> None:
    assert kinds(send("a", None), log("a")) == []
    assert kinds(send("a", None), log()) == [AnomalyKind.UNSEEN]


def test_what_a_transaction_that_shows_as_committed_wrote_must_be_there() -> None:
    both = (Send(TOPIC, 0, 0, "a"), Send(TOPIC, 1, 0, "b"))
    unknown = Operation("p", Kind.TXN, Outcome.INFO, 0, sends=both)
    other = Operation("q", Kind.SEND, Outcome.OK, 5, 6, sends=(Send(TOPIC, 1, 1, "c"),))
    read = Operation(
        "r", Kind.POLL, Outcome.OK, 9, 10, polls=(Poll(TOPIC, 0, ((0, "a"),)), Poll(TOPIC, 1, ((1, "c"),)))
    )
    assert kinds(unknown, other, read) == [AnomalyKind.LOST_WRITE]


def test_a_refused_record_must_not_be_there() -> None:
    assert kinds(send("a", None, outcome=Outcome.FAIL), log()) == []
    assert kinds(send("a", None, outcome=Outcome.FAIL), log("a")) == [AnomalyKind.ABORTED_READ]


def test_a_record_that_nobody_sent_is_reported() -> None:
    assert kinds(*written("a"), log("a", "x")) == [AnomalyKind.UNSENT]


def test_equal_records_are_counted_and_one_that_was_merged_away_is_a_false_dedup() -> None:
    sent = [send("e", offset, at=10 * offset) for offset in range(3)]
    assert kinds(*sent, log("e", "e", "e")) == []
    merged = [send("e", None, at=1), send("e", None, at=2), send("e", None, at=3)]
    assert kinds(*merged, log("e", "e")) == [AnomalyKind.FALSE_DEDUP]
    assert kinds(*merged, log("e", "e", "e", "e")) == [AnomalyKind.FALSE_DEDUP]


def test_an_equal_record_of_unknown_fate_may_count_or_not() -> None:
    sent = [send("e", 0), send("e", None, at=5, outcome=Outcome.INFO)]
    assert kinds(*sent, log("e")) == []
    assert kinds(*sent, log("e", "e")) == []
    assert kinds(*sent, log("e", "e", "e")) == [AnomalyKind.FALSE_DEDUP]


def test_one_offset_acknowledged_twice_is_a_double_ack_also_for_equal_records() -> None:
    assert kinds(send("e", 0), send("e", 0, at=5), log("e", "e")) == [AnomalyKind.DOUBLE_ACK]
    one = Operation("p", Kind.SEND, Outcome.OK, 0, 1, sends=(Send(TOPIC, 0, 0, "e"), Send(TOPIC, 0, 0, "e")))
    assert kinds(one, log("e", "e")) == [AnomalyKind.DOUBLE_ACK]


def test_a_later_send_that_stands_before_an_earlier_one_is_out_of_order() -> None:
    first, second = send("a", 1, at=0), send("b", 0, at=10)
    anomaly = only(second, first, log("b", "a"))
    assert anomaly.kind is AnomalyKind.NONMONOTONIC_SEND
    assert anomaly.operations == (first, second)


def test_order_is_seen_in_the_log_also_where_no_offset_was_returned() -> None:
    assert kinds(send("a", None), send("b", None, at=10), log("b", "a")) == [AnomalyKind.NONMONOTONIC_SEND]


def test_records_of_one_send_out_of_order_are_told_apart() -> None:
    both = Operation("p", Kind.SEND, Outcome.OK, 0, 1, sends=(Send(TOPIC, 0, 1, "a"), Send(TOPIC, 0, 0, "b")))
    assert kinds(both, log("b", "a")) == [AnomalyKind.INT_NONMONOTONIC_SEND]


def test_processes_and_partitions_have_no_order_among_each_other() -> None:
    other = Operation("p", Kind.SEND, Outcome.OK, 20, 21, sends=(Send(TOPIC, 1, 0, "c"),))
    read = Operation("r", Kind.POLL, Outcome.OK, 99, 100, final=True, polls=(Poll(TOPIC, 1, ((0, "c"),)),))
    assert kinds(send("a", 1, process="q"), send("b", 0, at=10), other, log("b", "a"), read) == []


def test_a_send_of_unknown_fate_may_come_late() -> None:
    assert kinds(send("a", None, outcome=Outcome.INFO), send("b", 0, at=10), log("b", "a")) == []
