"""Records as Arrow columns, as Spark's Kafka source has them, made of whole record batches; never row by row."""

from collections.abc import Iterator
from typing import Final, TypeAlias

import pyarrow as pa

from kproxy.codec import compression
from kproxy.codec.batch import HEADER_SIZE, BatchHeader, crc_ok, read_header
from kproxy.codec.message_set import iter_entry, read_entry
from kproxy.codec.records import MAGIC_OFFSET, CorruptRecord
from kproxy.errors import RemoteProtocolError
from kproxy.spark.fetching import Range
from kproxy.spark.scan import Fields, scan
from kproxy.spark.spark_errors import KafkaError
from kproxy.txn.visibility import entries

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Of record block in one Arrow batch: enough for thousands of records, little beside a worker's memory.
CHUNK_BYTES: Final = 1 << 20
#: The last time that microseconds in 64 bits can tell.
MOST_MS: Final = ((1 << 63) - 1) // 1000
_MAGIC_V2: Final = 2
_US: Final = pa.timestamp("us", tz="UTC")
_MS: Final = pa.timestamp("ms", tz="UTC")
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


class RecordColumns:
    """Arrow batches of the records of one range, about ``CHUNK_BYTES`` each; control batches are left out."""

    def __init__(self, wanted: Range, *, with_headers: bool, max_decompressed_bytes: int) -> None:
        """``max_decompressed_bytes`` bounds one batch's block of records."""
        self._wanted = wanted
        self._with_headers = with_headers
        self._most = max_decompressed_bytes
        self._schema = SCHEMA_WITH_HEADERS if with_headers else SCHEMA
        self._fields = Fields()
        self._bytes = 0
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
        """What is left at the end."""
        if self._fields.offsets:
            yield self._take()

    def _add_batch(self, entry: memoryview) -> Iterator[pa.RecordBatch]:
        header = read_header(entry)
        if header.is_control:
            return
        if not crc_ok(entry, 0, len(entry)):
            raise CorruptRecord("its checksum is wrong")
        yield from self._of_type(int(header.is_log_append_time))
        data = bytes(compression.decompress(header.codec, entry[HEADER_SIZE:], max_bytes=self._most))
        _, start, end = self._wanted
        is_whole = start <= header.base_offset and header.base_offset + header.last_offset_delta < end
        pos = count = 0
        while pos < len(data):
            fields, at = self._fields, len(self._fields.offsets)
            begin = pos
            stop = min(len(data), pos + CHUNK_BYTES - self._bytes)
            pos = scan(
                data, pos, stop, header.base_offset, header.base_timestamp, fields, with_headers=self._with_headers
            )
            count += len(fields.offsets) - at
            if header.is_log_append_time:
                fields.times[at:] = [header.max_timestamp] * (len(fields.offsets) - at)
            if not is_whole:
                fields.cut(at, start, end)
            yield from self._added(pos - begin)
        _check_count(header, count)

    def _add_old(self, entry: memoryview) -> Iterator[pa.RecordBatch]:
        """A message of magic 0 or 1, or what such a one wraps."""
        outer = read_entry(entry, 0)
        yield from self._of_type(int(outer.is_log_append_time) if outer.magic else -1)
        for record in iter_entry(entry, self._most):
            if self._wanted.start <= record.offset < self._wanted.end:
                fields = self._fields
                fields.keys.append(record.key)
                fields.values.append(record.value)
                fields.offsets.append(record.offset)
                fields.times.append(record.timestamp)
                if self._with_headers:
                    fields.headers.append(None)
                yield from self._added(len(record.key or b"") + len(record.value or b""))

    def _of_type(self, time_type: int) -> Iterator[pa.RecordBatch]:
        """Ends the chunk where records of another timestamp type begin: the column has one value then."""
        if time_type != self._time_type:
            yield from self.rest()
            self._time_type = time_type

    def _added(self, size: int) -> Iterator[pa.RecordBatch]:
        self._bytes += size
        if self._bytes >= CHUNK_BYTES:
            yield from self.rest()
            self._bytes = 0

    def _take(self) -> pa.RecordBatch:
        fields, self._fields, self._bytes = self._fields, Fields(), 0
        rows = len(fields.offsets)
        partition = self._wanted.partition
        columns = [
            pa.array(fields.keys, pa.binary()),
            pa.array(fields.values, pa.binary()),
            pa.repeat(pa.scalar(partition.topic, pa.string()), rows),
            pa.repeat(pa.scalar(partition.partition, pa.int32()), rows),
            pa.array(fields.offsets, pa.int64()),
            _times(fields.times),
            pa.repeat(pa.scalar(self._time_type, pa.int32()), rows),
        ]
        if self._with_headers:
            columns.append(_header_column(fields.headers))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _times(times: list[int]) -> pa.Array:
    """Times in ms as timestamps; what is beyond their reach, as nanoseconds taken for ms, is the last there is."""
    try:
        return pa.array(times, _MS).cast(_US)
    except pa.ArrowInvalid:
        return pa.array([max(-MOST_MS, min(time, MOST_MS)) for time in times], _MS).cast(_US)


def _header_column(rows: list[tuple[tuple[str, bytes | None], ...] | None]) -> pa.Array:
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


def _check_count(header: BatchHeader, count: int) -> None:
    if count != header.record_count:
        raise CorruptRecord(f"it holds {count} records where its header says {header.record_count}")
