"""Snapshots: a reader that comes later knows what one knows that has read everything; or it knows nothing yet."""

import struct
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.codec.messages import Message
from kproxy.errors import RemoteProtocolError
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, RawRecord, UnknownRecord, decode, encode
from kproxy.txn.snapshot import CHUNK_BYTES, PartitionLoader, is_due, snapshot_records
from kproxy.txn.snapshot_views import decode_views, encode_views
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import BrokerTransaction
from kproxy.txn.views import Views
from tests.txn.bodies import (
    claim,
    decision,
    expiry,
    member,
    mirrored,
    native_member,
    nonce,
    offsets,
    partitions,
    prepare,
    producer,
)

P0, P1, P2, P3, P4, P5, P6 = (producer(100, epoch) for epoch in range(7))
M, N, L, H, K = (producer(number, 0) for number in range(200, 205))
NATIVE = BrokerTransaction("slot-1", Producer(300, 4), level=2, timeout_ms=900_000)
PLACE = ("t", 0)
#: Something of everything that a view can hold.
RICH: list[tuple[str, Message]] = [
    ("a", claim(1, P0, epochs=7)),
    ("a", decision(1, P0, True, [P0], copies={P0: {PLACE: {0: 5, 3: 9}}}, next_client=Producer(7, 1), batch_id="b")),
    ("a", offsets(1, P1, "g", {PLACE: 3})),
    ("a", offsets(1, P1, "h", {PLACE: 4})),
    ("a", decision(1, P1, True, next_client=Producer(7, 2))),
    ("a", mirrored(P1, "h")),
    ("a", TransactionPrepare(nonce(1), *P2, batch_id="c")),
    ("a", partitions(1, P3, {PLACE: 7, ("u", 1): 8}, first_sequence=5)),
    ("a", offsets(1, P3, "g", {PLACE: 5})),
    ("a", member(1, P3, M, 5, "task-1")),
    ("a", member(1, P3, N, 6)),
    ("a", prepare(5, M)),
    ("a", prepare(1, P3)),
    ("a", partitions(1, P4, {PLACE: 9})),
    ("b", claim(2, producer(101, 0))),
    ("b", partitions(2, producer(101, 0), {PLACE: 1})),
    ("b", claim(3, producer(102, 0), generation=2)),
    ("b", expiry(3)),
    ("a", member(1, P6, L, 4, "task-0")),
    ("a", native_member(1, P6, K, 8, "gone", NATIVE)),
    ("a", decision(1, P6, False, [P2])),
    ("a", partitions(1, P4, {PLACE: 9})),
    ("a", native_member(1, P4, H, 7, "open", NATIVE)),
]
# What released versions have written of id "b".
GOLDEN = (
    "000002026201490000000000000000000000000000000000030000000260000000000000660000000200000000000000"
    "070000ffffffffffffffffffff0000ea60096b70726f78792d330461707000000000000000001000000000000003f800"
    "0000000000000007000003600000000000006560000000000000660101010101010101ffff0101000000000000001100"
    "000000000003f90000"
)


class Log:
    """A partition of the log, of which the beginning may be deleted."""

    def __init__(self) -> None:
        self.records: list[RawRecord] = []
        self.start = 0

    def append(self, name: str, body: Message) -> None:
        self.records.append(encode(Entry(name, body)))

    def read(self, end: int | None = None, start: int | None = None) -> Views:
        views = Views()
        first = self.start if start is None else start
        views.restart(0, first)
        for offset, (key, value) in list(enumerate(self.records))[first:end]:
            views.apply(0, LogPosition(offset, 1000 + offset), key, value)
        return views

    def snapshot(self, up_to: int, writer: int = 1, chunk_bytes: int = CHUNK_BYTES) -> list[RawRecord]:
        views = self.read(up_to)
        assert views.loader(0).is_sure
        return snapshot_records(views.of_partition(0), up_to, nonce(writer), chunk_bytes)


def said(views: Views) -> dict[str, IdView]:
    return {view.transactional_id: view for view in views.all()}


@pytest.fixture
def log() -> Log:
    log = Log()
    for name, body in RICH:
        log.append(name, body)
    return log


def test_a_view_goes_to_bytes_and_back_whole(log: Log) -> None:
    views = log.read()
    view = views.of("a")
    assert view is not None
    empty = IdView("x")
    for name in (field.name for field in fields(IdView)):
        if name != "expired":
            assert getattr(view, name) != getattr(empty, name), f"{name}: the sample has none"
    assert decode_views(encode_views(views.all())).views == list(views.all())


def test_the_stored_bytes_never_change(log: Log) -> None:
    assert encode_views([]).hex() == "00000100"
    view = log.read().of("b")
    assert view is not None
    before = replace(view, last=None)  # an expired id kept no decision then
    assert encode_views([before]).hex() == GOLDEN
    assert decode_views(bytes.fromhex(GOLDEN)).views == [before]


def test_who_owned_the_id_when_a_part_was_prepared_is_not_known_from_an_older_kproxy(log: Log) -> None:
    view = log.read().of("a")
    assert view is not None
    whole = encode_views([view])
    for part, one in view.prepared.items():
        view.prepared[part] = one._replace(client=Producer(-1, -1))
    without = encode_views([view])
    assert len(without) < len(whole)
    assert decode_views(without).views == [view]


def test_each_cut_of_a_snapshot_is_refused(log: Log) -> None:
    data = encode_views(log.read().all())
    for wrong in [*(data[:end] for end in range(len(data))), data + b"\0"]:
        with pytest.raises(RemoteProtocolError):
            decode_views(wrong)
    with pytest.raises(UnknownRecord):
        decode_views(struct.pack(">h", 3) + data[2:])


@pytest.mark.parametrize("chunk_bytes", [CHUNK_BYTES, 100, 1])
def test_a_reader_of_a_snapshot_knows_the_same(log: Log, chunk_bytes: int) -> None:
    full = Log()
    full.records = list(log.records)
    log.records += log.snapshot(len(log.records), 1, chunk_bytes)
    log.start = len(RICH)
    loaded = log.read()
    assert loaded.loader(0).is_sure
    truth = full.read()
    assert said(loaded) == said(truth)
    assert loaded.bound(*PLACE) == truth.bound(*PLACE) == 7
    assert loaded.verdict(*M) is Verdict.UNDECIDED
    assert loaded.verdict(*P0) is Verdict.COMMITTED
    assert loaded.is_other_copy(*P0, *PLACE, 0, 6)
    for group in "gh":
        assert [row[1:] for row in loaded.undecided_offsets(group)] == [
            row[1:] for row in truth.undecided_offsets(group)
        ]
        assert [row[1:] for row in loaded.unmirrored_offsets(group)] == [
            row[1:] for row in truth.unmirrored_offsets(group)
        ]


def test_nothing_is_known_before_the_last_chunk(log: Log) -> None:
    chunks = log.snapshot(len(log.records), 1, 200)
    assert len(chunks) > 2
    log.start = len(log.records)
    log.records += chunks[:-1]
    log.append("a", decision(1, P5, True))
    views = log.read()
    assert not views.loader(0).is_sure
    assert not said(views)
    log.records += chunks[-1:]
    views = log.read()
    assert views.loader(0).is_sure
    assert views.verdict(*P5) is Verdict.COMMITTED


def test_what_is_applied_with_a_snapshot_is_reported(log: Log) -> None:
    snapshot = log.snapshot(len(log.records))
    log.start = len(log.records)
    log.append("a", decision(1, P5, True))
    views = log.read()
    came = [views.apply(0, LogPosition(len(log.records), 0), *raw) for raw in snapshot]
    assert [entry.body for entry in came[-1]] == [decision(1, P5, True)]


def test_chunks_of_two_writers_make_no_snapshot(log: Log) -> None:
    up_to = len(log.records)
    first, second = log.snapshot(up_to, 1, 700), log.snapshot(up_to, 2, 700)
    assert len(first) == 2
    log.start = up_to
    log.records += [first[0], second[1], first[0]]
    assert not log.read().loader(0).is_sure
    log.records += [second[0]]
    assert said(log.read()) == said(log.read(up_to, 0))


def test_a_snapshot_of_less_than_was_deleted_is_of_no_use(log: Log) -> None:
    log.records += log.snapshot(5)
    log.append("a", decision(1, P5, True))
    log.start = 6
    assert not log.read().loader(0).is_sure
    log.start = 5
    assert said(log.read()) == said(log.read(start=0))


def test_a_snapshot_changes_no_view_of_who_has_read(log: Log) -> None:
    before = said(log.read())
    log.records += [*log.snapshot(5, 1), *log.snapshot(9, 2), *log.snapshot(5, 1)]
    assert said(log.read()) == before


def test_a_snapshot_of_nothing_is_one(log: Log) -> None:
    empty = Log()
    assert len(empty.snapshot(0)) == 1


@pytest.mark.parametrize(
    "body",
    [
        TransactionSnapshot(3, nonce(1), 0, 0, b""),
        TransactionSnapshot(3, nonce(1), 1, 1, b""),
        TransactionSnapshot(3, nonce(1), -1, 1, b""),
        TransactionSnapshot(-1, nonce(1), 0, 1, b""),
    ],
)
def test_what_is_no_snapshot_is_refused(body: TransactionSnapshot) -> None:
    loader = PartitionLoader(3)
    with pytest.raises(RemoteProtocolError):
        loader.take(Entry("", body), LogPosition(3, 0), 10)
    views = Views()
    views.apply(0, LogPosition(3, 0), *encode(Entry("", body)))
    assert views.foreign == {0}


def test_a_snapshot_of_what_the_log_does_not_have_is_passed_over(log: Log) -> None:
    """It was in flight when the log was truncated or recreated."""
    before = said(log.read())
    log.append("", TransactionSnapshot(len(log.records) + 1, nonce(1), 0, 1, b"other"))
    views = log.read()
    assert (said(views), views.foreign) == (before, set())


def test_a_log_without_its_beginning_continues_with_what_is_left(log: Log) -> None:
    """Of id "a" the claim is lost, and so all that was said under it; id "b" lies behind."""
    log.start = 1
    views = log.read()
    assert (views.knows(0), said(views)) == (False, {})
    assert [entry.transactional_id for entry in views.begin_without(0)] == ["b"] * 4
    assert views.knows(0)
    assert set(said(views)) == {"b"}
    views.apply(0, LogPosition(len(log.records), 0), *encode(Entry("c", claim(9, producer(103, 0)))))
    assert views.of("c") is not None


def test_a_damaged_snapshot_makes_nobody_believe_it_has_read(log: Log) -> None:
    log.start = len(log.records)
    log.append("", TransactionSnapshot(log.start, nonce(1), 0, 1, b"\0\0damaged"))
    views = log.read()
    assert views.foreign == {0}
    assert not views.loader(0).is_sure


def test_a_snapshot_is_due_after_many_records_or_bytes_and_its_own_size() -> None:
    assert not is_due(0, 0, 0)
    assert not is_due(49_999, 1 << 20, 0)
    assert is_due(50_000, 1 << 20, 0)
    assert is_due(1, 16 << 20, 0)
    assert not is_due(50_000, 4 << 20, 2 << 20)
    assert is_due(50_000, 8 << 20, 2 << 20)


def test_what_came_since_the_last_whole_snapshot_is_counted(log: Log) -> None:
    size = sum(len(key) + len(value) for key, value in log.records)
    loader = log.read().loader(0)
    assert (loader.records, loader.size, loader.last_size, loader.up_to) == (len(RICH), size, 0, 0)
    assert not loader.is_due
    chunks = log.snapshot(len(RICH), 1, 700)
    log.records += chunks[:1]
    assert log.read().loader(0).records == len(RICH)
    log.records += chunks[1:]
    log.append("a", decision(1, P5, True))
    loader = log.read().loader(0)
    assert (loader.records, loader.up_to) == (1, len(RICH))
    assert loader.last_size > 700


# -- any log

_bodies = st.sampled_from(RICH)
_logs = st.lists(_bodies, min_size=1, max_size=25)


@settings(max_examples=150, deadline=None)
@given(_logs, st.data())
def test_any_reader_of_any_prefix_knows_the_truth_or_nothing(
    records: list[tuple[str, Message]], data: st.DataObject
) -> None:
    log, whole = Log(), [0]
    for name, body in records:
        log.append(name, body)
        if data.draw(st.integers(0, 3)) == 0:
            up_to = data.draw(st.integers(whole[-1], len(log.records)))
            chunks = log.snapshot(up_to, len(log.records), data.draw(st.sampled_from([150, 600, CHUNK_BYTES])))
            kept = data.draw(st.integers(len(chunks) - 1, len(chunks)))
            log.records += chunks[:kept]
            if kept == len(chunks):
                whole.append(up_to)
    start = data.draw(st.integers(0, max(whole)))
    assert log.read(start=start).loader(0).is_sure
    for end in range(start, len(log.records) + 1):
        reader, truth = log.read(end, start), log.read(end, 0)
        assert said(reader) == (said(truth) if reader.loader(0).is_sure else {})


@given(st.integers(0, 99))
def test_records_before_the_snapshot_are_not_applied_twice(writer: int) -> None:
    log = Log()
    log.append("a", claim(1, P0))
    log.append("a", decision(1, P0, True))
    log.append("a", claim(2, P2))
    log.append("a", decision(2, P2, True, batch_id="x"))
    log.records += log.snapshot(4, writer)
    log.start = 1
    entry = decode(*log.records[4])
    assert isinstance(entry.body, TransactionSnapshot)
    assert said(log.read()) == said(log.read(start=0))


def test_a_beginning_that_no_snapshot_stands_for_is_lost(log: Log) -> None:
    assert log.read().without_beginning([0]) == []
    log.start = 2
    assert log.read().without_beginning([0]) == [0]
    log.start = 0
    log.records += log.snapshot(len(log.records))
    log.start = 2
    assert log.read().without_beginning([0]) == []


def test_nothing_is_due_of_a_partition_whose_beginning_is_not_known() -> None:
    loader = PartitionLoader(5)
    loader.records = loader.size = 1 << 30
    assert not loader.is_due
    loader.begin_without()
    assert loader.is_due


def test_a_snapshot_of_records_that_are_not_in_the_log_is_ignored() -> None:
    """The log was truncated, or recreated, while it was in flight."""
    loader = PartitionLoader(0)
    (raw,) = snapshot_records([], 100, nonce(9))
    loader.take(decode(*raw), LogPosition(7, 0), 10)
    assert (loader.up_to, loader.last_size) == (0, 0)


def version_of(*records: Message) -> int:
    """Of the views of one id after these records."""
    view = IdView("a")
    for offset, body in enumerate(records):
        assert view.apply(body, LogPosition(offset, 0))
    return int.from_bytes(encode_views([view])[:2], "big")


def test_views_are_as_old_a_kproxy_as_possible_can_read_them() -> None:
    """One that can't keep something must not load it."""
    joined, native = member(1, P0, M, 5), native_member(1, P0, K, 8, "m", NATIVE)
    assert version_of(claim(1, P0), joined) == 0
    assert version_of(claim(1, P0), joined, decision(1, P0, False)) == 1
    assert version_of(claim(1, P0), native) == 2
    assert version_of(claim(1, P0), native, decision(1, P0, True, [P0, K])) == 2
