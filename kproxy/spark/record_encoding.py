"""Record batches of format v2 made of Arrow columns, never row by row; the way back is ``kproxy.spark.scan``.

A record is its length, attributes, time and offset since the first ones, then key, value and headers (Kafka's
``DefaultRecord``). Numpy computes the numbers of all records at once, and Arrow joins them with the columns.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kproxy.codec import compression
from kproxy.codec.batch import encode_headers
from kproxy.codec.batch_header import assemble_plain

_Numbers: TypeAlias = npt.NDArray[np.int64]
_Unsigned: TypeAlias = npt.NDArray[np.uint64]

#: Of a record, beside key, value and headers: five numbers of up to five bytes, a time of ten, attributes.
_MOST_OVERHEAD: Final = 36
_BITS: Final = 7
_LOW: Final = np.uint64(0x7F)
_MORE: Final = np.uint8(0x80)
_NO_HEADERS: Final = b"\0"
_NULL: Final = -1
#: For a row that may go to any partition.
ANYWHERE: Final = -1


class Packing(NamedTuple):
    """How records become batches; ``codec`` as in ``kproxy.codec.compression``, ``level`` None for its default."""

    codec: int = compression.NONE
    level: int | None = None
    #: Of one batch, before it is compressed; one record may be larger.
    batch_bytes: int = 1_000_000


USUAL: Final = Packing()


class Rows(NamedTuple):
    """Some rows, in Arrow's type binary; ``headers`` as ``encoded_headers`` makes them, ``times`` in ms."""

    values: pa.Array
    keys: pa.Array | None
    headers: pa.Array | None
    times: _Numbers
    #: Where each is to go, or ``ANYWHERE``; None where all may go anywhere.
    partitions: _Numbers | None

    def take(self, places: _Numbers) -> Self:
        """The rows at some places."""
        indexes = pa.array(places)
        return self._replace(
            values=self.values.take(indexes),
            keys=self.keys and self.keys.take(indexes),
            headers=self.headers and self.headers.take(indexes),
            times=self.times[places],
            partitions=None if self.partitions is None else self.partitions[places],
        )

    def slice(self, start: int, end: int) -> Self:
        """The rows from a place up to another."""
        return self._replace(
            values=self.values.slice(start, end - start),
            keys=self.keys and self.keys.slice(start, end - start),
            headers=self.headers and self.headers.slice(start, end - start),
            times=self.times[start:end],
            partitions=None if self.partitions is None else self.partitions[start:end],
        )

    def most_sizes(self) -> _Numbers:
        """The most bytes that each record takes."""
        found = np.full(len(self.values), _MOST_OVERHEAD, np.int64)
        for part in (self.values, self.keys, self.headers):
            if part is not None:
                found += np.maximum(_sizes(part), 0)
        return found


class Packed(NamedTuple):
    """A record batch, ready to be sent, and how many bytes its largest record has, at most."""

    data: bytearray
    largest: int


def pack(rows: Rows, how: Packing) -> Iterator[Packed]:
    """The rows as batches, in order."""
    sizes = rows.most_sizes()
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(ends):
        end = max(start + 1, int(np.searchsorted(ends, before + how.batch_bytes, side="right")))
        yield Packed(_batch(rows.slice(start, end), how), int(sizes[start:end].max()))
        start, before = end, int(ends[end - 1])


def encoded_headers(rows: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.Array:
    """The headers of each row as they end a record."""
    return pa.array([encode_headers(row or ()) for row in rows], pa.binary())


def _batch(rows: Rows, how: Packing) -> bytearray:
    first = int(rows.times[0])
    records = _records(rows, first)
    return assemble_plain(
        records if how.codec == compression.NONE else compression.compress(how.codec, records, level=how.level),
        codec=how.codec,
        count=len(rows.values),
        base_timestamp=first,
        max_timestamp=int(rows.times.max()),
    )


def _records(rows: Rows, first: int) -> memoryview:
    count = len(rows.values)
    no_keys = np.full(count, _NULL, np.int64)
    keys, values = no_keys if rows.keys is None else _sizes(rows.keys), _sizes(rows.values)
    ends = np.int64(len(_NO_HEADERS)) if rows.headers is None else _sizes(rows.headers)
    inner = [_zigzag(each) for each in (rows.times - first, np.arange(count), keys)]
    size_of_value = _zigzag(values)
    lengths = sum((_widths(each) for each in (*inner, size_of_value)), np.int64(1))
    lengths = lengths + np.maximum(keys, 0) + np.maximum(values, 0) + ends
    before = _numbers([_zigzag(lengths), np.zeros(count, np.uint64), *inner])
    columns = [before, *([] if rows.keys is None else [rows.keys]), _numbers([size_of_value]), rows.values]
    end = _NO_HEADERS if rows.headers is None else rows.headers
    nothing = b""  # the bytes of a null key or value, and those between the columns
    joined = pc.binary_join_element_wise(*columns, end, nothing, null_handling="replace", null_replacement="")
    _, places, data = joined.buffers()
    size = np.frombuffer(places, np.int32)[joined.offset + count]
    return memoryview(data)[: int(size)]


def _sizes(column: pa.Array) -> _Numbers:
    """How many bytes each has; of a null -1."""
    found: _Numbers = pc.fill_null(pc.binary_length(column), _NULL).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _zigzag(numbers: _Numbers) -> _Unsigned:
    return (numbers << 1 ^ numbers >> 63).astype(np.uint64)


def _widths(numbers: _Unsigned) -> _Numbers:
    """How many bytes the varint of each takes."""
    found, shift = np.ones(len(numbers), np.int64), _BITS
    while shift < 64 and (larger := numbers >= np.uint64(1 << shift)).any():
        found += larger
        shift += _BITS
    return found


def _numbers(columns: Sequence[_Unsigned]) -> pa.Array:
    """The varints of each row, one after the other."""
    bytes_, used = [], []
    total = np.zeros(len(columns[0]), np.int64)
    for numbers in columns:
        width = _widths(numbers)
        total += width
        for index in range(int(width.max())):
            byte = (numbers >> np.uint64(_BITS * index) & _LOW).astype(np.uint8)
            bytes_.append(byte | np.where(width > index + 1, _MORE, np.uint8(0)))
            used.append(width > index)
    ends = np.zeros(len(total) + 1, np.int32)
    np.cumsum(total, out=ends[1:])
    data = np.stack(bytes_, 1)[np.stack(used, 1)]
    return pa.Array.from_buffers(pa.binary(), len(total), [None, pa.py_buffer(ends), pa.py_buffer(data)])
