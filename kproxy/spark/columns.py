"""Records as Arrow columns, as Spark's Kafka source has them, made of whole record batches; never row by row."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kproxy.codec import compression
from kproxy.codec.batch import HEADER_SIZE, Record, crc_ok, read_header
from kproxy.codec.message_set import iter_entry, read_entry
from kproxy.codec.records import MAGIC_OFFSET, CorruptRecord
from kproxy.errors import RemoteProtocolError
from kproxy.spark.fetching import Range
from kproxy.spark.scan import Block, DamagedRecord, Headers
from kproxy.spark.spark_errors import KafkaError
from kproxy.txn.visibility import entries

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Of record block in one Arrow batch: enough for thousands of records, little beside a worker's memory.
CHUNK_BYTES: Final = 1 << 20
#: The last time that microseconds in 64 bits can tell.
MOST_MS: Final = ((1 << 63) - 1) // 1000
_MAGIC_V2: Final = 2
_US: Final = pa.timestamp("us", tz="UTC")
_HEADER_FIELDS: Final = (pa.field("key", pa.string()), pa.field("value", pa.binary()))

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _US),
        pa.field("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", pa.list_(pa.struct(_HEADER_FIELDS))))


@dataclass(slots=True)
class _OldRecords:
    """Records of magic 0 and 1, put together."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, record: Record) -> None:
        self.keys.append(record.key)
        self.values.append(record.value)
        self.offsets.append(record.offset)
        self.times.append(record.timestamp)
        self.size += 1 + len(record.key or b"") + len(record.value or b"")


class RecordColumns:
    """Arrow batches of the records of one range, about ``CHUNK_BYTES`` each; control batches are left out."""

    def __init__(self, wanted: Range, *, with_headers: bool, max_decompressed_bytes: int) -> None:
        """``max_decompressed_bytes`` bounds one batch's block of records."""
        self._wanted = wanted
        self._with_headers = with_headers
        self._most = max_decompressed_bytes
        self._schema = SCHEMA_WITH_HEADERS if with_headers else SCHEMA
        # one of both is empty
        self._block = Block()
        self._old = _OldRecords()
        #: Kafka's ``TimestampType``: -1 none, 0 CreateTime, 1 LogAppendTime.
        self._time_type = 0

    def add(self, record_set: Buffer) -> Iterator[pa.RecordBatch]:
        """What is full after a record set was added. Raises KafkaError if it is damaged, or too large."""
        offset = self._wanted.start
        try:
            for entry in entries(record_set):
                offset = int.from_bytes(entry[:8], "big", signed=True)
                if entry[MAGIC_OFFSET] == _MAGIC_V2:
                    yield from self._add_batch(entry)
                else:
                    yield from self._add_old(entry)
        except RemoteProtocolError as error:
            raise KafkaError(f"{self._wanted.partition}: batch at offset {offset}: {error}") from error

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left at the end. Raises KafkaError if it is damaged."""
        block, self._block = self._block, Block()
        old, self._old = self._old, _OldRecords()
        if block.size:
            yield from self._of_block(block)
        if old.size:
            yield self._of_old(old)

    def _add_batch(self, entry: memoryview) -> Iterator[pa.RecordBatch]:
        header = read_header(entry)
        if header.is_control:
            return
        if not crc_ok(entry, 0, len(entry)):
            raise CorruptRecord("its checksum is wrong")
        time_type = int(header.is_log_append_time)
        if self._old.size or time_type != self._time_type:
            yield from self.rest()
            self._time_type = time_type
        data = bytes(compression.decompress(header.codec, entry[HEADER_SIZE:], max_bytes=self._most))
        pos = count = 0
        while pos < len(data):
            stop = min(len(data), pos + CHUNK_BYTES - self._block.size)
            added, pos = self._block.add(header, data, pos, stop)
            count += added
            if self._block.size >= CHUNK_BYTES:
                yield from self.rest()
        if count != header.record_count:
            raise CorruptRecord(f"it holds {count} records where its header says {header.record_count}")

    def _add_old(self, entry: memoryview) -> Iterator[pa.RecordBatch]:
        """A message of magic 0 or 1, or what such a one wraps."""
        outer = read_entry(entry, 0)
        time_type = int(outer.is_log_append_time) if outer.magic else -1
        if self._block.size or time_type != self._time_type:
            yield from self.rest()
            self._time_type = time_type
        for record in iter_entry(entry, self._most):
            if self._wanted.start <= record.offset < self._wanted.end:
                self._old.add(record)
                if self._old.size >= CHUNK_BYTES:
                    yield from self.rest()

    def _of_block(self, block: Block) -> Iterator[pa.RecordBatch]:
        partition, start, end = self._wanted
        try:
            found = block.columns(start, end, with_headers=self._with_headers)
        except DamagedRecord as error:
            raise KafkaError(f"{partition}: batch at offset {error.base_offset}: {error}") from error
        if len(found.offsets):
            yield self._batch(found.keys, found.values, found.offsets, found.times, found.headers)

    def _of_old(self, old: _OldRecords) -> pa.RecordBatch:
        keys, values = pa.array(old.keys, pa.binary()), pa.array(old.values, pa.binary())
        offsets, times = np.array(old.offsets, np.int64), np.array(old.times, np.int64)
        return self._batch(keys, values, offsets, times, [None] * len(keys))

    def _batch(
        self,
        keys: pa.Array,
        values: pa.Array,
        offsets: npt.NDArray[np.int64],
        times: npt.NDArray[np.int64],
        headers: list[Headers | None],
    ) -> pa.RecordBatch:
        rows = len(keys)
        partition = self._wanted.partition
        columns = [
            keys,
            values,
            pa.repeat(pa.scalar(partition.topic, pa.string()), rows),
            pa.repeat(pa.scalar(partition.partition, pa.int32()), rows),
            pa.array(offsets),
            # what is beyond the reach of timestamps, as nanoseconds taken for ms, is the last there is
            pa.array(np.clip(times, -MOST_MS, MOST_MS) * 1000).view(_US),
            pa.repeat(pa.scalar(self._time_type, pa.int32()), rows),
        ]
        if self._with_headers:
            columns.append(_header_column(headers))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _header_column(rows: list[Headers | None]) -> pa.Array:
    """Lists of headers; null where there are none, as in Spark's Kafka source."""
    starts: list[int | None] = []
    names: list[str] = []
    values: list[bytes | None] = []
    for row in rows:
        starts.append(None if row is None else len(names))
        for name, value in row or ():
            names.append(name)
            values.append(value)
    starts.append(len(names))
    columns = [pa.array(names, pa.string()), pa.array(values, pa.binary())]
    structs = pa.StructArray.from_arrays(columns, fields=list(_HEADER_FIELDS))
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), structs)
