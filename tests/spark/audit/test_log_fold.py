from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kproxy.codec.messages import Message
from kproxy.spark.audit.log_fold import LogRecord, decoded_row, fold_log
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, RawRecord, encode
from kproxy.txn.snapshot import snapshot_records
from kproxy.txn.view import LogPosition
from kproxy.txn.view_values import BrokerTransaction
from kproxy.txn.views import Views
from tests.txn.bodies import (
    claim,
    decision,
    member,
    native_member,
    offsets,
    partitions,
    prepare,
    producer,
    reject,
)

BEGAN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
P0, P1, M0 = producer(100, 0), producer(100, 1), producer(200, 0)
PLACE = ("orders", 3)
WRITTEN = {P0: {PLACE: {0: 10}}}


def at(offset: int) -> datetime:
    return BEGAN + timedelta(seconds=offset)


def log(*bodies: Message, name: str = "loader", partition: int = 0, first: int = 0) -> list[LogRecord]:
    return raw([encode(Entry(name, body)) for body in bodies], partition=partition, first=first)


def raw(records: Sequence[RawRecord], partition: int = 0, first: int = 0) -> list[LogRecord]:
    return [(partition, first + number, at(first + number), *pair) for number, pair in enumerate(records)]


def facts(kind: str, records: Sequence[LogRecord], *names: str, start: int = 0) -> list[tuple[Any, ...]]:
    rows = fold_log(records, {0: start, 1: 0})
    return [tuple(row.get(name) for name in names) for row in rows if row["fact"] == kind]


def test_what_a_committed_transaction_wrote_and_where_it_may_begin() -> None:
    records = log(
        claim(1, P0),
        partitions(1, P0, {PLACE: 4, ("bills", 0): 9}),
        decision(1, P0, True, [P0], copies=WRITTEN, batch_id="b-1"),
        partitions(1, P1, {PLACE: 11}),
        decision(1, P1, False, [P1], copies={P1: {PLACE: {0: 12}}}),
    )
    names = ("transactional_id", "batch_id", "producer_id", "producer_epoch", "topic", "partition", "offset", "bound")
    assert facts("decided", records, *names) == [("loader", "b-1", *P0, *PLACE, 11, 4)]
    assert facts("decided", records, "at", "log_offset") == [(at(2), 2)]
    assert facts("part", records, "state") == []


def test_data_of_a_member_at_the_broker_have_the_broker_s_producer_id() -> None:
    at_broker = BrokerTransaction("kproxy-member-a-1", Producer(4001, 7), 2, 60_000)
    records = log(
        claim(1, P0),
        native_member(1, P0, M0, 9, "task-1", at_broker),
        partitions(9, M0, {PLACE: 4}),
        prepare(9, M0),
        decision(1, P0, True, [M0], copies={M0: {PLACE: {0: 10}}}),
    )
    names = ("producer_id", "producer_epoch", "topic", "partition", "offset", "bound")
    assert facts("decided", records, *names) == [(4001, 7, *PLACE, 11, 4)]


def test_a_decision_that_does_not_count_decides_nothing() -> None:
    records = log(claim(1, P0), claim(2, producer(100, 2)), decision(1, P0, True, [P0], copies=WRITTEN))
    assert facts("decided", records, "topic") == []


def test_offsets_move_with_their_transaction() -> None:
    records = log(
        claim(1, P0),
        offsets(1, P0, "billing", {PLACE: 50}),
        decision(1, P0, True, [P0]),
        offsets(1, P1, "billing", {PLACE: 60}),
        decision(1, P1, False, [P1]),
    )
    names = ("group_id", "topic", "partition", "offset", "generation", "transactional_id", "log_offset")
    assert facts("offsets", records, *names) == [("billing", *PLACE, 50, 1, "loader", 2)]


def test_what_is_open_and_what_is_prepared() -> None:
    records = log(
        claim(1, P0),
        member(1, P0, M0, 9, "task-1"),
        partitions(1, P0, {PLACE: 0}),
        partitions(9, M0, {PLACE: 0, ("orders", 4): 0, ("bills", 0): 0}),
        prepare(9, M0),
    ) + log(claim(5, producer(300, 0)), partitions(5, producer(300, 0), {PLACE: 0}), name="other", partition=1)
    names = ("transactional_id", "state", "member", "producer_id", "client_id", "instance_id", "at")
    assert facts("part", records, *names) == [
        ("loader", "open", "", P0.producer_id, "app", "kproxy-1", at(1)),
        ("loader", "prepared", "task-1", M0.producer_id, "app", "kproxy-1", at(4)),
        ("loader", "prepared", "task-1", M0.producer_id, "app", "kproxy-1", at(4)),
        ("other", "open", "", producer(300, 0).producer_id, "app", "kproxy-5", at(1)),
    ]
    assert facts("part", records, "member", "topic") == [
        ("", "orders"),
        ("task-1", "bills"),
        ("task-1", "orders"),
        ("", "orders"),
    ]


def test_producer_ids_that_are_known() -> None:
    rejected = producer(400, 0).producer_id
    records = log(claim(1, P0), member(1, P0, M0, 9)) + log(reject(rejected), name="", first=2)
    assert {row for (row,) in facts("known", records, "producer_id")} == {P0.producer_id, M0.producer_id, rejected}


def test_a_snapshot_stands_for_what_was_deleted() -> None:
    views = Views()
    for partition, offset, _, key, value in log(claim(1, P0), partitions(1, P0, {PLACE: 0})):
        views.apply(partition, LogPosition(offset, 1000), key, value)
    chunks = snapshot_records(views.of_partition(0), 2, b"w" * 16)
    behind = raw(chunks, first=2) + log(decision(1, P0, True, [P0], copies=WRITTEN), first=3)
    assert facts("decided", behind, "offset", "bound", start=2) == [(11, 0)]
    assert facts("known", behind, "producer_id", start=2) == [(P0.producer_id,)]
    assert facts("unreadable", behind, "detail", start=2) == []


def test_a_log_without_its_beginning_cannot_be_read() -> None:
    records = log(claim(1, P0), first=7)
    assert facts("unreadable", records, "log_partition", "log_offset", start=7) == [(0, 7)]
    assert facts("known", records, "producer_id", start=7) == []


def test_after_a_record_that_is_not_understood_nothing_counts() -> None:
    records = raw([(b"\0\0c\0\0", b"\0\0")]) + log(claim(1, P0), first=1)
    ((partition, offset, detail),) = facts("unreadable", records, "log_partition", "log_offset", "detail")
    assert (partition, offset) == (0, 0)
    assert detail == "newer: record of kind 99"
    assert facts("known", records, "producer_id") == []


def test_an_empty_log_says_nothing() -> None:
    assert list(fold_log([], {})) == []


def test_records_decoded_for_people() -> None:
    (record,) = log(decision(1, P0, True, [P0]))
    row = decoded_row(record)
    assert (row["kind"], row["transactional_id"], row["producer_id"]) == ("DECISION", "loader", P0.producer_id)
    assert row["committed"] is True
    assert "loader" in row["text"]
    assert decoded_row((0, 5, BEGAN, None, None)) == {
        "log_partition": 0,
        "log_offset": 5,
        "at": BEGAN,
        "text": "record without a version",
    }
