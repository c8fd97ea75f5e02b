"""Batches of the transaction log as a Fetch response holds them: whole and sound ones, each record decoded."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kproxy.codec.batch import BatchHeader, Record, crc_ok, iter_records, read_header
from kproxy.codec.batch_reader import entry_size
from kproxy.codec.records import CorruptRecord
from kproxy.errors import RemoteProtocolError

_DECOMPRESSED_BYTES: Final = 64 << 20


class LogBatch(NamedTuple):
    """A batch of format v2; ``records`` is empty for a marker (control batch)."""

    header: BatchHeader
    records: Sequence[Record]

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.header.base_offset + self.header.last_offset_delta + 1


def read_batches(data: memoryview, position: int) -> tuple[list[LogBatch], RemoteProtocolError | None]:
    """The whole batches from offset ``position`` on, up to one that is damaged, and then what is wrong with that.

    What is cut at the end is left out, and so are records below ``position``: a log may begin inside a batch.
    """
    batches: list[LogBatch] = []
    pos = 0
    try:
        while (size := entry_size(data, pos)) and pos + size <= len(data):
            batch = _read_batch(data[pos : pos + size], position)
            if batch.next_offset > position:
                batches.append(batch)
            pos += size
    except RemoteProtocolError as damage:
        return batches, damage
    return batches, None


def _read_batch(data: memoryview, position: int) -> LogBatch:
    header = read_header(data)
    if not crc_ok(data, 0, len(data)):
        raise CorruptRecord(f"batch at offset {header.base_offset} has a wrong checksum")
    rows = iter_records(data, max_decompressed_bytes=_DECOMPRESSED_BYTES)
    return LogBatch(header, [row for row in rows if row.offset >= position])
