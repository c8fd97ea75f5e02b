"""What clients of every kind get to read of partitions in which not all is committed, and how they fare."""

from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.budget import BATCH_STEPS, unbounded
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec._generated.fetch import (
    FetchResponse,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.metadata import MetadataResponse
from kproxy.codec.batch import read_header
from kproxy.codec.messages import ErrorCode
from kproxy.proxy.context import Passed
from kproxy.proxy.handlers import fetch_reading
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.last_stable import Question
from kproxy.txn.verdict import Verdict
from kproxy.txn.visibility import entries
from tests.codec.record_lists import records_in
from tests.proxy.handlers.readers import TOPIC_ID, Broker, Reader
from tests.proxy.playbook import Play, batch, configure
from tests.txn.mixed_logs import UNDECIDED, MixedLog, log_of, steps

#: A Java client that sends no name.
OLD_JAVA = "(old Java)"
#: Software name, Fetch version, and whether it continues after the last record (else after the last batch).
CLIENTS = [
    ("", 0, True),
    ("", 1, True),
    ("", 2, True),
    ("", 3, True),
    ("", 4, True),
    ("", 4, False),
    ("", 5, False),
    (OLD_JAVA, 5, False),
    (OLD_JAVA, 6, False),
    (OLD_JAVA, 7, False),
    (OLD_JAVA, 8, False),
    ("", 7, False),
    ("", 10, False),
    ("", 10, True),
    (OLD_JAVA, 10, False),
    (OLD_JAVA, 11, False),
    ("confluent-kafka-go", 11, False),
    ("apache-kafka-java", 12, False),
    ("librdkafka", 11, False),
    ("kgo", 10, False),
    ("apache-kafka-java", 13, False),
    ("", 17, False),
]


def reader(software: str, version: int, by_record: bool, *logs: MixedLog, **more: Any) -> Reader:
    play = Play()
    if software == OLD_JAVA:
        configure(play.ctx, api_versions=1 if version < 8 else 2)
        more["session_epoch"] = 0
    elif software:
        play.ask(ApiVersionsRequest(client_software_name=software), 3)
        asked, correlation_id, _ = play.sent()
        play.reply(ApiVersionsResponse(), asked, correlation_id)
        play.answer()
    configure(play.ctx, decisions=logs[0])
    begin = {(more.get("topic", "t"), index): 0 for index in range(len(logs))}
    play.ctx.services.stable.found(Question(begin), begin)
    return Reader(play, Broker(play, list(logs)), version, by_record, **more)


def java(*logs: MixedLog, **more: Any) -> Reader:
    return reader("apache-kafka-java", 12, False, *logs, **more)


def kafka_go(*logs: MixedLog, **more: Any) -> Reader:
    return reader("", 10, False, *logs, **more)


def read_all(client: Reader, log: MixedLog) -> None:
    """Poll until a response finds the client at the end."""
    for _ in range(3 * len(log.batches) + 3):
        answer = client.poll()
        row = answer.responses[0].partitions[0]
        if not row.records:
            return
    raise AssertionError("it never comes to an end")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CLIENTS), steps, steps, st.booleans(), st.integers(100, 3000))
def test_every_client_gets_all_that_is_committed_once_and_in_order(
    kind: tuple[str, int, bool],
    before: list[tuple[str, int, int]],
    behind: list[tuple[str, int, int]],
    waits: bool,
    max_bytes: int,
) -> None:
    log = log_of([*before, *([("undecided", 2, 0)] if waits else []), *behind])
    client = reader(*kind, log, max_bytes=max_bytes)
    read_all(client, log)
    assert client.got[0] == log.visible(0)
    for verdict in (Verdict.ABORTED, Verdict.COMMITTED):
        log.verdicts[UNDECIDED] = verdict
    read_all(client, log)
    assert client.got[0] == log.visible(0)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CLIENTS), steps, st.integers(1, 5))
def test_a_response_that_is_looked_through_in_part_loses_nothing(
    kind: tuple[str, int, bool], some: list[tuple[str, int, int]], most: int
) -> None:
    log = log_of(some)
    with mock.patch.multiple(
        fetch_reading, BATCH_STEPS=unbounded().on_loop().steps // most, _LEAST_BATCHES=1, _SHORTEST_BATCH=1
    ):
        client = reader(*kind, log)
        read_all(client, log)
    assert client.got[0] == log.visible(0)


def test_so_many_batches_of_one_response_are_looked_through() -> None:
    """Once 60,000 batches of one record each took 0.7 s."""
    log, count, most = MixedLog(), 7_000, unbounded().on_loop().steps // BATCH_STEPS
    for number in range(count):
        log.add("aborted" if number == 100 else "plain")
    client = reader("", 2, True, log, max_bytes=16 << 20)
    assert len(records_in(client.poll().responses[0].partitions[0].records)) == most - 1
    read_all(client, log)
    assert client.got[0] == log.visible(0)


@pytest.mark.parametrize("kind", CLIENTS)
def test_the_log_of_the_tested_clients(kind: tuple[str, int, bool]) -> None:
    """5 visible, 20 hidden, 5 visible, many hidden, 5 visible, 20 hidden at the end."""
    log = MixedLog()
    for visible, hidden in ((5, 20), (5, 300), (5, 20)):
        for _ in range(visible):
            log.add("plain")
        for _ in range(hidden):
            log.add("aborted")
    client = reader(*kind, log)
    read_all(client, log)
    assert len(client.got[0]) == 15
    last = client.play.ctx.fetched.passed
    software, version, _ = kind
    if software in (OLD_JAVA, "apache-kafka-java", "librdkafka", "kgo"):
        assert client.positions[0] == 355
    elif version >= 4:
        assert client.positions[0] in range(335, 335 + 3)  # so much of the hidden run fits into one response
        assert next(iter(last.values())).next_offset == 355


def test_what_needs_no_change_is_passed_on_to_the_byte() -> None:
    log = log_of([("plain", 2, 0), ("committed", 3, 0), ("lane", 1, 0)])
    client = java(log)
    client.ask()
    client.broker.serve()
    (answer,) = client.play.session.to_client
    assert isinstance(answer, bytearray)
    client.take(client.play.answer())
    assert client.got[0] == [0, 1, 2, 3, 4, 5]


def test_where_only_the_last_stable_offset_differs_it_is_put_into_the_brokers_answer() -> None:
    log = log_of([("plain", 1, 0), ("plain", 1, 0), ("plain", 1, 0), ("undecided", 1, 0)])
    client = java(log, max_bytes=1)
    ctx = client.play.ctx
    ctx.services.stable.found(Question({("t", 0): 3}), {("t", 0): 3})
    ctx.services.stable.failed(Question({("t", 0): 3}), client.play.answered_at)
    client.ask()
    client.broker.serve()
    (answer,) = client.play.session.to_client
    assert isinstance(answer, bytearray)
    row = client.take(client.play.answer()).responses[0].partitions[0]
    assert (row.last_stable_offset, row.high_watermark, row.records) == (3, log.end, log.read(0, 1))


def test_a_response_does_not_wait_while_the_broker_owes_others() -> None:
    """They would pile up after it, of a client that reads none."""
    client = java(log_of([("plain", 1, 0), ("plain", 1, 0)]), max_bytes=1)
    client.ask()
    client.ask()
    client.broker.serve()
    assert len(client.play.session.to_client) == 1
    assert len(client.play.session.commands) == 1


def test_a_request_that_asks_for_just_that_goes_as_it_came() -> None:
    client = java(log_of([("plain", 1, 0)]))
    frame = client.play.frame(client.request(), 12)
    client.play.session.request(frame, 2.0)
    (sent,) = client.play.session.to_upstream
    assert sent is frame
    client.broker.serve()
    client.take(client.play.answer())
    assert client.got[0] == [0]


@pytest.mark.parametrize("change", [{"session_epoch": 0}, {"max_bytes": 1 << 30}])
def test_one_that_asks_for_more_is_changed(change: dict[str, int]) -> None:
    client = java(log_of([]), max_bytes=1 << 29)
    request = client.request()
    request.max_bytes = 1 << 20
    for name, value in change.items():
        setattr(request, name, value)
    client.play.ask(request, 12)
    _, _, asked = client.play.sent()
    assert (asked.session_epoch, asked.max_bytes) == (-1, 1 << 20)


@pytest.mark.parametrize("steps", [["plain", "native", "native-abort"], ["native", "native-commit", "plain"]])
def test_kafkas_own_transactions_are_left_to_clients_that_know_them(steps: list[str]) -> None:
    """To the byte, and with the broker's list of aborted ones."""
    log = log_of([(step, 1, 1) for step in steps])
    client = java(log)
    answer = client.poll()
    row = answer.responses[0].partitions[0]
    assert row.records == log.read(0)
    assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions] == log.aborted
    assert client.got[0] == log.visible(0)
    other = kafka_go(log)
    assert other.poll().responses[0].partitions[0].aborted_transactions == []
    assert other.got[0] == log.visible(0)


def test_where_something_of_kproxys_is_hidden_the_rest_is_too() -> None:
    log = log_of([("native", 1, 1), ("native-abort", 1, 1), ("aborted", 1, 0), ("plain", 1, 0)])
    client = java(log)
    row = client.poll().responses[0].partitions[0]
    assert (client.got[0], row.aborted_transactions) == ([3], [])


def test_who_asked_for_everything_does_not_leave_out_what_is_aborted() -> None:
    log = log_of([("native", 1, 1), ("native-abort", 1, 1), ("plain", 1, 0)])
    client = java(log, isolation=0)
    configure(client.play.ctx, committed_for=lambda _: True)
    client.poll()
    assert client.got[0] == [2]


def test_the_broker_is_asked_for_committed_data_and_without_a_session() -> None:
    client = java(log_of([("plain", 1, 0)]))
    client.ask()
    _, _, request = client.play.sent()
    assert (request.isolation_level, request.session_id, request.session_epoch) == (1, 0, -1)


def test_who_reads_everything_is_relayed() -> None:
    client = java(log_of([("plain", 1, 0), ("aborted", 1, 0)]), isolation=0)
    frame = client.play.frame(client.request(), 12)
    wanted = bytes(frame)
    client.play.session.request(frame, 1.0)
    assert [bytes(piece) for piece in client.play.session.to_upstream] == [wanted]


@pytest.mark.parametrize(("version", "level"), [(4, 1), (11, 1), (12, 1), (15, 1), (17, 1), (2, 0)])
def test_without_a_transaction_log_native_clients_are_the_brokers_business(version: int, level: int) -> None:
    client = reader("apache-kafka-java", version, False, log_of([("plain", 1, 0)]), isolation=level)
    configure(client.play.ctx, decisions=None)
    client.ask()
    ((_, _, request),) = client.play.upstream()
    assert request.isolation_level == 1
    assert client.play.link.expected[0].handler is None or version < 10


#: Named clients that skip control batches, and so are relayed: kproxy leaves the markers to them.
RELAYED = ("apache-kafka-java", "librdkafka", "kgo")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CLIENTS), steps, st.booleans(), st.sampled_from([-1, 0, 1]), st.integers(100, 3000))
def test_no_reader_of_all_is_given_a_control_batch_unless_it_is_proven_to_skip_them(
    kind: tuple[str, int, bool], content: list[tuple[str, int, int]], has_log: bool, override: int, max_bytes: int
) -> None:
    """Whatever its version, with kproxy's transactions and without; but one at the end for old Java clients."""
    log = log_of(content)
    client = reader(*kind, log, max_bytes=max_bytes, isolation=0)
    ctx = client.play.ctx
    configure(ctx, legacy_committed=False, committed_for=lambda _: False if override == 0 else None)
    if not has_log:
        configure(ctx, decisions=None)
    if kind[0] in RELAYED:
        client.takes_empty = True
    read_all(client, log)
    assert client.got[0] == sorted(log.written)
    if kind[0] == OLD_JAVA:
        last = max(log.written, default=-1)
        assert all(offset > last for offset in client.controls)
        assert client.positions[0] == log.end
    elif kind[0] not in RELAYED:
        assert not client.controls


def test_read_committed_without_a_transaction_log_hides_what_the_broker_says_is_aborted() -> None:
    """From clients that show all they get: kafka-go does so whatever its isolation level."""
    log = log_of([("plain", 1, 0), ("native", 2, 1), ("plain", 1, 0), ("native-abort", 1, 1), ("lane", 1, 0)])
    client = kafka_go(log)
    configure(client.play.ctx, decisions=None)
    answer = client.poll()
    assert client.got[0] == [0, 3, 5]
    assert answer.responses[0].partitions[0].aborted_transactions == []
    assert not client.controls


def test_leading_and_inner_control_batches_are_left_out_and_the_last_batch_covers_those_after_it() -> None:
    log = log_of([(kind, 1, 1) for kind in ("native-abort", "plain", "plain", "native-abort", "plain", "native-abort")])
    client = kafka_go(log, isolation=0)
    row = client.poll().responses[0].partitions[0]
    headers = [read_header(entry) for entry in entries(row.records)]
    assert [(header.base_offset, header.last_offset_delta) for header in headers] == [(1, 0), (2, 0), (4, 1)]
    assert client.positions[0] == log.end == 6


def test_a_client_that_stays_before_hidden_batches_gets_what_comes_after_them_at_once() -> None:
    log = log_of([("plain", 1, 0)])
    client = kafka_go(log, isolation=0)
    client.poll()
    for _ in range(3):
        log.add("native-abort")
    assert not client.poll().responses[0].partitions[0].records
    assert client.positions[0] == 1
    log.add("plain")
    client.broker.asked.clear()
    client.poll()
    assert client.broker.asked[0][0] == {0: 4}
    assert client.got[0] == [0, 4]


def test_a_reader_of_all_that_has_no_hidden_batch_gets_the_answer_to_the_byte() -> None:
    client = kafka_go(log_of([("plain", 2, 0), ("aborted", 3, 0), ("undecided", 1, 0)]), isolation=0)
    client.ask()
    client.broker.serve()
    (answer,) = client.play.session.to_client
    assert isinstance(answer, bytearray)


def test_what_was_hidden_from_a_reader_of_committed_data_is_read_by_one_of_all() -> None:
    """Over one connection: what kproxy remembers holds for one isolation level."""
    client = kafka_go(log_of([("native", 2, 1), ("native-abort", 1, 1)]))
    client.poll()
    assert client.got[0] == []
    client.isolation = 0
    client.poll()
    assert client.got[0] == [0, 1]


def test_a_session_is_refused_to_a_client_that_is_not_proven_to_skip_control_batches() -> None:
    client = kafka_go(log_of([("plain", 1, 0)]), isolation=0)
    request = client.request()
    request.session_id, request.session_epoch = 9, 3
    client.play.ask(request, 10)
    assert client.play.answer().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_old_clients_may_be_set_to_read_everything() -> None:
    log = log_of([("plain", 1, 0), ("aborted", 1, 0), ("undecided", 1, 0), ("plain", 1, 0)])
    client = reader("", 2, True, log)
    configure(client.play.ctx, legacy_committed=False)
    read_all(client, log)
    assert client.got[0] == [0, 1, 2, 3]


@pytest.mark.parametrize("version", [2, 4, 11, 17])
@pytest.mark.parametrize("chosen", [True, False])
def test_the_setting_for_a_client_id_is_above_what_it_asks_for(version: int, chosen: bool) -> None:
    log = log_of([("plain", 1, 0), ("aborted", 1, 0), ("plain", 1, 0), ("native", 1, 1), ("native-abort", 1, 1)])
    client = reader("", version, False, log, isolation=0 if chosen else 1)
    configure(client.play.ctx, committed_for=lambda client_id: chosen if client_id == "me" else None)
    read_all(client, log)
    assert client.got[0] == ([0, 2] if chosen else [0, 1, 2, 3])


def test_after_what_is_undecided_it_waits_and_does_not_ask_again() -> None:
    """Rule 8: a broker would answer at once, again and again."""
    log = log_of([("plain", 1, 0), ("undecided", 1, 0), ("plain", 1, 0)])
    client = kafka_go(log)
    client.poll()
    began = client.play.answered_at
    answer = client.poll()
    assert client.play.answered_at - began == pytest.approx(0.5)
    assert answer.responses[0].partitions[0].records == b""
    assert client.broker.asked == [({0: 0}, 500), ({0: 1}, 500)]
    client.poll()
    assert client.broker.asked[2:] == [({0: 1}, 0)]  # to hear of errors


def test_a_decision_wakes_who_waits_for_it() -> None:
    log = log_of([("undecided", 1, 0), ("plain", 1, 0)])
    client = java(log)
    client.ask()
    client.broker.serve()
    (waiting,) = client.play.session.commands
    client.play.session.commands.clear()
    client.broker.resume(waiting)  # another transaction was decided
    (waiting,) = client.play.session.commands
    client.play.session.commands.clear()
    log.verdicts[UNDECIDED] = Verdict.COMMITTED
    client.broker.resume(waiting)
    client.broker.serve()
    client.take(client.play.answer())
    assert client.got[0] == [0, 1]
    assert client.play.answered_at == 2.0


def test_other_partitions_are_read_while_one_waits() -> None:
    waits, other = log_of([("undecided", 1, 0)]), MixedLog()
    client = java(waits, other)
    client.ask()
    client.broker.serve()
    other.add("plain")
    client.broker.pass_time()
    client.broker.serve()
    client.take(client.play.answer())
    assert client.got == {0: [], 1: [0]}
    assert client.broker.asked[1] == ({1: 0}, 0)
    assert client.play.answered_at < 2.1


def test_one_that_has_records_is_not_kept_waiting() -> None:
    client = kafka_go(log_of([("aborted", 1, 0)]), log_of([("plain", 1, 0)]))
    client.poll()
    assert client.got == {0: [], 1: [0]}
    assert len(client.broker.asked) == 1


def test_at_the_end_hidden_batches_are_passed_by_a_marker_or_remembered() -> None:
    for make, position in ((java, 3), (kafka_go, 0)):
        log = log_of([("aborted", 3, 0)])
        client = make(log)
        answer = client.poll()
        assert client.positions[0] == position
        records = bytes(answer.responses[0].partitions[0].records or b"")
        if records:
            header = read_header(records)
            assert (header.attributes, header.record_count, header.partition_leader_epoch) == (0x30, 1, 6)
        log.add("plain")
        client.poll()
        assert client.broker.asked[-1][0] == {0: 3}
        assert client.got[0] == [3]


def test_a_long_hidden_run_is_read_in_pieces_until_the_time_has_passed() -> None:
    """Memory is bounded: no response is kept. What is passed is remembered for the next Fetch."""
    log = MixedLog()
    for _ in range(400):
        log.add("aborted", size=500)
    log.add("plain")
    client = kafka_go(log, max_bytes=2000)

    def takes_time() -> None:
        client.play.answered_at += 0.02

    polls = 0
    while not client.got[0]:
        client.ask()
        while not client.play.session.to_client:
            takes_time()
            assert client.broker.serve() or client.broker.pass_time()
            assert client.play.session.held_bytes < 5000
        client.take(client.play.answer())
        polls += 1
    assert client.got[0] == [400]
    assert 2 <= polls <= 10
    assert len(client.broker.asked) <= 140  # three to a response


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_clients_take_the_high_watermark_for_the_end(version: int) -> None:
    log = log_of([("plain", 2, 0), ("aborted", 2, 0), ("undecided", 2, 0), ("plain", 1, 0)])
    client = reader("", version, True, log)
    assert client.poll().responses[0].partitions[0].high_watermark == 4
    assert client.poll().responses[0].partitions[0].high_watermark == 2
    log.verdicts[UNDECIDED] = Verdict.ABORTED
    assert client.poll().responses[0].partitions[0].high_watermark == 7
    assert client.got[0] == [0, 1, 6]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_old_reader_of_all_comes_to_the_end_where_control_batches_end_the_log(version: int) -> None:
    log = log_of([("plain", 1, 0), ("native-abort", 1, 1), ("native-abort", 1, 1)])
    client = reader("", version, True, log)
    configure(client.play.ctx, legacy_committed=False)
    row = client.poll().responses[0].partitions[0]
    assert (client.positions[0], row.high_watermark) == (1, 3)
    row = client.poll().responses[0].partitions[0]
    assert (bytes(row.records or b""), row.high_watermark) == (b"", 1)
    log.add("plain")
    client.poll()
    assert client.got[0] == [0, 3]


def test_the_last_stable_offset_is_returned() -> None:
    log = log_of([("plain", 2, 0), ("aborted", 2, 0), ("undecided", 2, 0), ("plain", 1, 0)])
    client = java(log)
    rows = [client.poll().responses[0].partitions[0] for _ in range(3)]
    assert [(row.last_stable_offset, row.high_watermark) for row in rows] == [(4, 7)] * 3
    assert client.positions[0] == 4


def test_the_last_stable_offset_does_not_fall_when_what_is_undecided_comes_into_sight() -> None:
    log = MixedLog()
    for _ in range(30):
        log.add("plain")
    log.add("undecided")
    log.add("plain")
    client = java(log, max_bytes=300)
    told = [client.poll().responses[0].partitions[0].last_stable_offset for _ in range(12)]
    assert set(told) == {30}
    assert client.positions[0] == 30


def test_a_client_with_a_session_is_told_to_begin_again() -> None:
    """KIP-227, rule 14: what a session leaves out can't be looked through."""
    client = java(log_of([("plain", 1, 0)]))
    request = client.request()
    request.session_id, request.session_epoch = 7, 3
    client.play.ask(request, 12)
    assert client.play.answer().error_code == 70
    request.session_id, request.session_epoch = 0, 0
    client.play.ask(request, 12)
    client.broker.serve()
    assert client.play.answer().session_id == 0


def test_topics_are_asked_for_their_names_once() -> None:
    client = reader("", 13, False, log_of([("plain", 1, 0), ("copy", 1, 0)]))
    client.poll()
    assert client.got[0] == [0]
    client.ask()
    assert client.play.sent()[0] == 13


def test_a_topic_whose_name_nobody_knows_is_not_read() -> None:
    """Which of its copies count can't be told."""
    client = reader("", 13, False, log_of([("plain", 1, 0)]))
    client.ask()
    version, correlation_id, request = client.play.sent()
    assert (version, request.topics[0].topic_id) == (12, TOPIC_ID)
    client.play.reply(MetadataResponse(), version, correlation_id)
    client.broker.serve()
    assert client.play.answer().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_reader_of_all_counts_nothing() -> None:
    log = log_of([("plain", 2, 0), ("aborted", 3, 0), ("undecided", 4, 0)])
    client = java(log, isolation=0)
    client.poll()
    assert client.play.stats.transactions == TransactionStats()


def test_what_was_decided_since_the_last_fetch_is_read_whole() -> None:
    log = log_of([("undecided", 3, 0), ("plain", 1, 0)])
    client = kafka_go(log)
    client.poll()
    log.verdicts[UNDECIDED] = Verdict.COMMITTED
    client.poll()
    assert client.got[0] == [0, 1, 2, 3]
    assert client.broker.asked[1:] == [({0: 0}, 500)]


def test_the_last_stable_offset_of_a_partition_that_waits_is_returned_when_its_records_do_not_fit() -> None:
    """A broker gives nothing but the first batch of a response whatever its size (KIP-74)."""
    log = log_of([("aborted", 1, 0), ("undecided", 1, 0)])
    client = kafka_go(log)
    client.poll()
    log.read = lambda *_, **_how: b""  # type: ignore[method-assign]
    row = client.poll().responses[0].partitions[0]
    assert (row.last_stable_offset, row.records) == (1, b"")


@pytest.mark.parametrize("version", [4, 9])
def test_zstd_that_the_version_cannot_carry_is_asked_for_again(version: int) -> None:
    client = reader("", version, False, log_of([("plain", 1, 0), ("aborted", 1, 0)]))
    client.ask()
    asked, correlation_id, request = client.play.sent()
    assert asked == version
    row = FetchResponsePartitionData(error_code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, records=b"")
    topic = FetchResponseFetchableTopicResponse(topic="t", partitions=[row])
    client.play.reply(FetchResponse(responses=[topic]), asked, correlation_id)
    asked, correlation_id, again = client.play.sent()
    assert (asked, again.topics) == (10, request.topics)
    data = batch(b"a" * 50, codec=4)
    topic.partitions = [FetchResponsePartitionData(high_watermark=1, last_stable_offset=1, records=data)]
    client.play.reply(FetchResponse(responses=[topic]), asked, correlation_id)
    client.take(client.play.answer())
    assert client.got[0] == [0]


def test_another_replica_is_answered_at_once_and_to_the_byte() -> None:
    """KIP-392: a response without records that is no long poll."""
    client = java(log_of([]))
    client.ask()
    asked, correlation_id, _ = client.play.sent()
    topic = FetchResponseFetchableTopicResponse(
        topic="t", partitions=[FetchResponsePartitionData(preferred_read_replica=2, records=b"")]
    )
    client.play.reply(FetchResponse(responses=[topic]), asked, correlation_id)
    assert client.play.answer().responses[0].partitions[0].preferred_read_replica == 2


def test_what_is_no_record_set_is_an_error_of_its_partition_alone() -> None:
    client = java(log_of([]), log_of([("plain", 1, 0)]))
    client.ask()
    asked, correlation_id, _ = client.play.sent()
    rows = [
        FetchResponsePartitionData(partition_index=0, records=bytes(100)),
        FetchResponsePartitionData(
            partition_index=1, high_watermark=1, last_stable_offset=1, records=client.broker.logs[1].read(0)
        ),
    ]
    topic = FetchResponseFetchableTopicResponse(topic="t", partitions=rows)
    client.play.reply(FetchResponse(responses=[topic]), asked, correlation_id)
    rows = client.play.answer().responses[0].partitions
    assert [row.error_code for row in rows] == [ErrorCode.CORRUPT_MESSAGE, 0]


def test_what_is_remembered_is_bounded() -> None:
    client = kafka_go(log_of([("aborted", 1, 0)]))
    passed = client.play.ctx.fetched.passed
    passed.update((("other", n), Passed(0, 1, None)) for n in range(10_000))
    client.poll()
    assert list(passed) == [("t", 0)]


def test_what_is_hidden_is_counted_and_how_far_the_last_stable_offset_lags() -> None:
    log = log_of([("aborted", 2, 0), ("plain", 1, 0), ("undecided", 1, 0), ("plain", 4, 0)])
    client = java(log)
    client.poll()
    told = client.play.stats.transactions
    assert (told.hidden_bytes, told.last_stable_lag) == (len(log.batches[0][2]), {("t", 0): 5})
    log.verdicts[UNDECIDED] = Verdict.COMMITTED
    client.poll()
    assert (told.hidden_bytes, told.last_stable_lag) == (len(log.batches[0][2]), {})


def test_kproxys_own_topics_are_nobodys_transaction() -> None:
    """The transaction log's batches bear such producer ids; librdkafka reads committed data by default."""
    log = log_of([("plain", 1, 0), ("undecided", 1, 0)])
    client = java(log, topic="__kproxy_transaction_state")
    read_all(client, log)
    assert client.got[0] == [0, 1]
