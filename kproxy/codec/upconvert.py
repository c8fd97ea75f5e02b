"""Message sets of magic 0 and 1, as old producers send them, to record batches of format v2.

One tight loop, no object for a record: this is what every legacy producer pays for each of its messages.
"""

import zlib
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from kproxy.budget import CONVERTED_RECORD_STEPS, RequestBudget, TooManySteps
from kproxy.codec import compression
from kproxy.codec.batch import HEADER_SIZE, build_batch, iter_records
from kproxy.codec.batch_header import assemble_plain
from kproxy.codec.message_set import read_entry, unwrap
from kproxy.codec.records import CODEC_MASK, MAGIC_OFFSET, NO_TIMESTAMP, CorruptRecord
from kproxy.codec.varint import VARINTS

# Size, CRC, magic, attributes, length of the key, and the four bytes after it: the value's length if the key is null.
_FIXED: Final = (Struct(">8xiIbbii").unpack_from, Struct(">8xiIbb8xii").unpack_from)
_KEY_AT: Final = (22, 30)
_I32: Final = Struct(">i").unpack_from
_TIMESTAMP: Final = Struct(">18xq").unpack_from
_UNLIMITED: Final = 1 << 62
_CHUNK: Final = 1 << 16
#: A batch gets no more records than this and one chunk: one that has to be cut is read as a list of them.
_MOST_RECORDS: Final = 1 << 16


class ConvertedBatch(NamedTuple):
    """A batch of format v2 and the number of its records."""

    data: bytearray
    record_count: int


def to_v2(
    message_set: bytes | bytearray | memoryview,
    *,
    arrival_ms: int,
    max_batch_bytes: int,
    budget: RequestBudget,
) -> list[ConvertedBatch]:
    """Convert what a producer sent: entries, wrappers, or both, in their order and numbered from 0.

    The codec is that of the first wrapper. A record without a timestamp gets ``arrival_ms``; what a LogAppendTime
    wrapper holds gets the wrapper's. One batch, several only where one would exceed ``max_batch_bytes`` (a
    single record may) or have very many records; none for an empty set. ``budget`` pays for what
    wrappers hold: bytes and records.

    Raises ``CorruptRecord`` for a bad CRC (outer or inner), a cut-off or malformed entry, nested compression or
    magic 2; ``UnsupportedCodec`` as its name says, and ``UsedUp`` (``DecompressionLimit`` for bytes).
    """
    builder = _Builder(arrival_ms, max_batch_bytes)
    data = bytes(message_set)
    view = memoryview(data)
    pos = 0
    while pos < len(data):
        magic = data[pos + MAGIC_OFFSET] if pos + MAGIC_OFFSET < len(data) else -1
        if magic not in (0, 1):
            raise CorruptRecord("entry cut short, or not of magic 0 or 1")
        pos = builder.add_entries(data, pos, magic, None)
        if pos < len(data) and data[pos + MAGIC_OFFSET] == magic:
            wrapper = read_entry(view, pos)
            inner = unwrap(wrapper, budget.bytes)
            budget.take_bytes(len(inner))
            builder.start_codec(wrapper.codec)
            builder.start_counting(budget.steps // CONVERTED_RECORD_STEPS)
            timestamp = wrapper.timestamp if wrapper.is_log_append_time else None
            if builder.add_entries(inner, 0, magic, timestamp) < len(inner):
                raise CorruptRecord("wrapper holds a compressed entry, or one of another magic")
            budget.take_steps(builder.stop_counting() * CONVERTED_RECORD_STEPS)
            pos += wrapper.size
    builder.flush()
    return builder.batches


class _Builder:
    """The batch under construction and those that are done."""

    __slots__ = (
        "_arrival",
        "_base",
        "_began",
        "_chunks",
        "_codec",
        "_count",
        "_flushed",
        "_latest",
        "_limit",
        "_max_batch",
        "_most",
        "_parts",
        "_size",
        "batches",
    )

    def __init__(self, arrival_ms: int, max_batch_bytes: int) -> None:
        self.batches: list[ConvertedBatch] = []
        self._arrival = arrival_ms
        self._max_batch = max_batch_bytes
        # Uncompressed, the size is known while records are added, and the limit is that of the batch. Compressed, it is
        # known only at the end (``flush``), and the limit is where the small pieces are joined to keep memory low.
        self._limit = max_batch_bytes
        self._codec = compression.NONE
        self._flushed = self._began = 0
        self._most: int | None = None
        self._reset()

    def _reset(self) -> None:
        self._chunks: list[bytes] = []
        self._parts: list[bytes] = []
        self._count = 0
        self._size = HEADER_SIZE
        self._base = 0
        self._latest = NO_TIMESTAMP

    def start_codec(self, codec: int) -> None:
        """Compress with this codec unless an earlier wrapper has chosen one."""
        if self._codec == compression.NONE:
            self._codec = codec
            self._limit = self._size + _CHUNK

    def start_counting(self, most: int) -> None:
        """From here on at most so many records may be added."""
        self._began, self._most = self._flushed + self._count, most
        self._check_count()

    def stop_counting(self) -> int:
        """The records that were added since ``start_counting``. Raises TooManySteps if they were too many."""
        self._check_count()
        self._most = None
        return self._flushed + self._count - self._began

    def _check_count(self) -> None:
        if self._most is not None and self._flushed + self._count - self._began > self._most:
            raise TooManySteps("the wrappers of a request hold too many records")

    def add_entries(self, data: bytes, pos: int, magic: int, timestamp: int | None) -> int:
        """Add plain entries of one magic; returns where it stopped: the end, a wrapper, or an entry of another magic.

        ``timestamp`` (ms) replaces the records' own.
        """
        try:
            while (stopped := self._fill(data, pos, magic, timestamp)) < 0:
                pos = ~stopped
                self._make_room()
        except StructError as error:
            raise CorruptRecord("entry cut short") from error
        return stopped

    def _fill(self, data: bytes, pos: int, magic: int, timestamp: int | None) -> int:
        """Add entries until ``add_entries`` has to stop; or until the limit, which the inverted position says.

        The key's length, the value's, and the end of the entry are read three ways and must agree. A null value needs
        no branch: its length, -1, has an encoding like any other, and its slice is empty.
        """
        unpack, key_at, limit = _FIXED[magic], _KEY_AT[magic], self._limit
        own_timestamps = magic == 1 and timestamp is None
        fixed = self._arrival if timestamp is None else timestamp
        varints, crc32, i32, read_timestamp = VARINTS, zlib.crc32, _I32, _TIMESTAMP
        parts, count, total, base, latest = self._parts, self._count, self._size, self._base, self._latest
        stop = len(data)
        while pos < stop:
            size, crc, entry_magic, attributes, key_size, value_size = unpack(data, pos)
            if entry_magic != magic or attributes & CODEC_MASK:
                break
            end = pos + 12 + size
            if end > stop or crc32(data[pos + 16 : end]) != crc:
                raise CorruptRecord("entry cut short, or fails its CRC")
            time = read_timestamp(data, pos)[0] if own_timestamps else fixed
            if time < 0:
                time = self._arrival
            if not count:
                base = time
            value_at = pos + key_at
            if key_size < 0:
                value_at += 4
                head = b"\0%b%b\x01%b" % (varints[time - base], varints[count], varints[value_size])
            else:
                key = data[value_at : value_at + key_size]
                value_at += key_size + 4
                value_size = i32(data, value_at - 4)[0]
                head = b"\0%b%b%b%b%b" % (
                    varints[time - base],
                    varints[count],
                    varints[key_size],
                    key,
                    varints[value_size],
                )
            rest = end - value_at
            if rest < 0 or key_size < -1 or (rest != value_size and (rest or value_size != -1)):
                raise CorruptRecord("lengths inside an entry contradict each other")
            length = varints[len(head) + rest + 1]
            grown = total + len(length) + len(head) + rest + 1
            if grown > limit and parts:
                pos = ~pos
                break
            total = grown
            parts += length, head, data[value_at:end], b"\0"
            latest = time if time > latest else latest
            count += 1
            pos = end
        self._count, self._size, self._base, self._latest = count, total, base, latest
        return pos

    def _make_room(self) -> None:
        self._check_count()
        if self._codec == compression.NONE:
            self.flush()
        elif self._count >= _MOST_RECORDS:
            self.flush()
            self._limit = self._size + _CHUNK
        else:
            self._chunks.append(b"".join(self._parts))
            self._parts = []
            self._limit = self._size + _CHUNK

    def flush(self) -> None:
        """Finish the batch under construction, if it has a record."""
        if self._count:
            batch = assemble_plain(
                compression.compress(self._codec, b"".join((*self._chunks, *self._parts))),
                codec=self._codec,
                count=self._count,
                base_timestamp=self._base,
                max_timestamp=self._latest,
            )
            self._add(batch, self._count)
            self._flushed += self._count
        self._reset()

    def _add(self, batch: bytearray, count: int) -> None:
        """Keep a finished batch; one that compression left too large is cut into parts that should fit.

        Rare but in the hands of a client, so only one part is in memory as records, and few parts have to be cut again.
        """
        if len(batch) <= self._max_batch or count == 1:
            self.batches.append(ConvertedBatch(batch, count))
            return
        share = min(count // 2, count * self._max_batch * 7 // (len(batch) * 8)) or 1
        records = iter_records(batch, max_decompressed_bytes=_UNLIMITED)
        while part := list(islice(records, share)):
            self._add(build_batch(part, codec=self._codec), len(part))
