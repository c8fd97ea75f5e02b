"""``records.as=batches``: one row for each record batch, from its header alone, and who may see it.

Everything is read, and beside it, from the first batch of a transaction on, what a read_committed reader is shown
through the same address; a batch that is not among it is hidden.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kproxy.codec.batch import BatchHeader, read_header
from kproxy.codec.message_set import iter_entry, read_entry
from kproxy.codec.records import MAGIC_OFFSET
from kproxy.codec.sequence import advance
from kproxy.config.values import CODECS
from kproxy.errors import RemoteProtocolError
from kproxy.spark.columns import MOST_MS
from kproxy.spark.fetching import Range, Reading, record_sets
from kproxy.spark.kafka_cluster import KafkaCluster, TopicPartition
from kproxy.spark.spark_errors import KafkaError
from kproxy.txn.ids import is_transactional_producer_id
from kproxy.txn.visibility import entries

_TIME: Final = pa.timestamp("us", tz="UTC")
_US_PER_MS: Final = 1000
_ROWS: Final = 8192
_MAGIC_V2: Final = 2
_MOST_DECOMPRESSED: Final = 128 << 20
_COMMITTED: Final = "committed"

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("base_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
        pa.field("records", pa.int32()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int32()),
        pa.field("base_sequence", pa.int32()),
        pa.field("last_sequence", pa.int32()),
        pa.field("attributes", pa.int32()),
        pa.field("is_transactional", pa.bool_()),
        pa.field("is_control", pa.bool_()),
        pa.field("codec", pa.string()),
        pa.field("timestamp_type", pa.string()),
        pa.field("base_timestamp", _TIME),
        pa.field("max_timestamp", _TIME),
        pa.field("size_bytes", pa.int64()),
        pa.field("visibility", pa.string()),
    ]
)


#: One batch by the columns of ``SCHEMA``; times in microseconds, None if there is none.
_Row: TypeAlias = dict[str, Any]


def read_batches(
    open_cluster: Callable[[], KafkaCluster], wanted: Range, stable: int, how: Reading
) -> Iterator[pa.RecordBatch]:
    """The batches whose last offsets lie in the range, so that each is in one range only.

    ``stable``: the last stable offset; what begins at or above it is undecided. Raises KafkaError, DataLost.
    """
    rows: list[_Row] = []
    with ExitStack() as opened:
        cluster = opened.enter_context(open_cluster())
        shown = _Shown(lambda: opened.enter_context(open_cluster()), wanted._replace(end=min(wanted.end, stable)), how)
        for record_set in record_sets(cluster, wanted, how._replace(committed=False)):
            for entry in entries(record_set):
                row = _row(wanted.partition, entry, stable, shown)
                if wanted.start <= row["last_offset"] < wanted.end:
                    rows.append(row)
            if len(rows) >= _ROWS:
                yield pa.RecordBatch.from_pylist(rows, SCHEMA)
                rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, SCHEMA)


class _Shown:
    """The base offsets that a read_committed reader is shown, walked beside the log; not read before it is asked."""

    def __init__(self, open_cluster: Callable[[], KafkaCluster], wanted: Range, how: Reading) -> None:
        self._open_cluster = open_cluster
        self._wanted = wanted
        self._how = how._replace(committed=True)
        self._offsets: Iterator[int] | None = None
        self._next = -1

    def has(self, base_offset: int) -> bool:
        """Whether the batch at this offset is shown; asked in rising order."""
        if self._offsets is None:
            start = max(self._wanted.start, base_offset)
            self._offsets = self._walk(self._wanted._replace(start=start))
        while self._next < base_offset:
            self._next = next(self._offsets, self._wanted.end)
            if self._next >= self._wanted.end:
                return False
        return self._next == base_offset

    def _walk(self, wanted: Range) -> Iterator[int]:
        for record_set in record_sets(self._open_cluster(), wanted, self._how):
            for entry in entries(record_set):
                yield int.from_bytes(entry[:8], "big", signed=True)


def _row(partition: TopicPartition, entry: memoryview, stable: int, shown: _Shown) -> _Row:
    try:
        if entry[MAGIC_OFFSET] == _MAGIC_V2:
            header = read_header(entry)
            return _of_batch(partition, header, _visibility(header, stable, shown))
        return _of_old(partition, entry)
    except RemoteProtocolError as error:
        offset = int.from_bytes(entry[:8], "big", signed=True)
        raise KafkaError(f"{partition}: batch at offset {offset}: {error}") from error


def _visibility(header: BatchHeader, stable: int, shown: _Shown) -> str:
    if header.is_control:
        return "control"
    if header.base_offset >= stable:
        return "undecided"
    # Without a transaction nothing is hidden; without records there is nothing to show.
    if not _is_transactional(header) or not header.record_count or shown.has(header.base_offset):
        return _COMMITTED
    return "aborted"


def _is_transactional(header: BatchHeader) -> bool:
    """Whether it is of one of Kafka's own transactions, or of kproxy's."""
    return header.is_transactional or is_transactional_producer_id(header.producer_id)


def _of_batch(partition: TopicPartition, header: BatchHeader, visibility: str) -> _Row:
    has_sequence = header.base_sequence >= 0
    return partition._asdict() | {
        "base_offset": header.base_offset,
        "last_offset": header.base_offset + header.last_offset_delta,
        "records": header.record_count,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": advance(header.base_sequence, header.last_offset_delta) if has_sequence else -1,
        "attributes": header.attributes,
        "is_transactional": _is_transactional(header),
        "is_control": header.is_control,
        "codec": _codec(header.codec),
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": _time(header.base_timestamp),
        "max_timestamp": _time(header.max_timestamp),
        "size_bytes": header.size,
        "visibility": visibility,
    }


def _of_old(partition: TopicPartition, entry: memoryview) -> _Row:
    """A message of magic 0 or 1, or a compressed set of them; their producers have no ids."""
    outer = read_entry(entry, 0)
    first = count = 0
    times = [outer.timestamp]
    for record in iter_entry(entry, _MOST_DECOMPRESSED):
        first = record.offset if not count else first
        times = [record.timestamp if not count else times[0], max(times[-1], record.timestamp)]
        count += 1
    kind = "LogAppendTime" if outer.is_log_append_time else "CreateTime"
    return partition._asdict() | {
        "base_offset": first if count else outer.offset,
        "last_offset": outer.offset,
        "records": count,
        **dict.fromkeys(("producer_id", "producer_epoch", "base_sequence", "last_sequence"), -1),
        "attributes": outer.attributes,
        "is_transactional": False,
        "is_control": False,
        "codec": _codec(outer.codec),
        "timestamp_type": kind if outer.magic else "NoTimestampType",
        "base_timestamp": _time(times[0]),
        "max_timestamp": _time(times[-1]),
        "size_bytes": outer.size,
        "visibility": _COMMITTED,
    }


def _codec(number: int) -> str:
    return CODECS[number] if number < len(CODECS) else f"codec {number}"


def _time(ms: int) -> int | None:
    return min(ms, MOST_MS) * _US_PER_MS if ms >= 0 else None
