"""Record batches made of Arrow columns, read by kproxy's own reader of record batches."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.codec import compression
from kproxy.codec.batch import Record, build_batch, crc_ok, iter_records
from kproxy.spark.record_encoding import Packing, Rows, encoded_headers, pack

_Given: TypeAlias = list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]]

_MS: Final = 1_700_000_000_000
_BYTES = st.one_of(st.none(), st.binary(max_size=300))
_HEADERS = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)
_ROWS = st.lists(st.tuples(_BYTES, _BYTES, st.integers(0, 1 << 45), _HEADERS), min_size=1, max_size=150)


def _columns(rows: Sequence[Record], *, is_bare: bool = False) -> Rows:
    return Rows(
        pa.array([row.value for row in rows], pa.binary()),
        None if is_bare else pa.array([row.key for row in rows], pa.binary()),
        None if is_bare else encoded_headers([row.headers for row in rows]),
        np.array([row.timestamp for row in rows], np.int64),
        None,
    )


def _records(data: bytearray) -> list[Record]:
    return list(iter_records(data, max_decompressed_bytes=1 << 30))


def _read(rows: Rows, how: Packing) -> list[list[Record]]:
    found = []
    for packed in pack(rows, how):
        assert crc_ok(packed.data, 0, len(packed.data))
        found.append(_records(packed.data))
    return found


@given(_ROWS, st.sampled_from([60, 1000, 1_000_000]))
def test_what_is_written_is_read(given_rows: _Given, most: int) -> None:
    rows = [Record(0, time, key, value, tuple(headers)) for key, value, time, headers in given_rows]
    batches = _read(_columns(rows), Packing(batch_bytes=most))
    assert [record._replace(offset=0) for batch in batches for record in batch] == rows
    for batch in batches:
        assert [record.offset for record in batch] == list(range(len(batch)))


@given(_ROWS)
def test_a_batch_is_what_kproxys_own_writer_makes(given_rows: _Given) -> None:
    rows = [Record(at, time, key, value, tuple(headers)) for at, (key, value, time, headers) in enumerate(given_rows)]
    (packed,) = pack(_columns(rows), Packing())
    assert packed.data == build_batch(rows)


def test_columns_that_are_not_there_are_null() -> None:
    rows = [Record(0, _MS, None, b"v%d" % number, ()) for number in range(3)]
    ((first, *_),) = _read(_columns(rows, is_bare=True), Packing())
    assert first == rows[0]


@pytest.mark.parametrize(
    ("codec", "level"),
    [(compression.GZIP, 1), (compression.SNAPPY, None), (compression.LZ4, None), (compression.ZSTD, 9)],
)
def test_batches_are_compressed(codec: int, level: int | None) -> None:
    rows = [Record(0, _MS, b"k", b"x" * 1000, ()) for _ in range(50)]
    (packed,) = pack(_columns(rows), Packing(codec, level))
    assert len(packed.data) < 5000
    assert [record._replace(offset=0) for record in _records(packed.data)] == rows


def test_batches_are_as_large_as_they_may_be() -> None:
    rows = [Record(0, _MS, None, b"x" * size, ()) for size in (10, 10, 10_000, 10, 10)]
    made = list(pack(_columns(rows), Packing(batch_bytes=200)))
    assert [len(_records(each.data)) for each in made] == [2, 1, 2]
    assert [each.largest > 10_000 for each in made] == [False, True, False]
    assert all(len(each.data) <= 300 for each in made[::2])


def test_slices_of_columns_are_read_at_their_place() -> None:
    rows = [Record(0, _MS + number, b"k%d" % number, b"v%d" % number, ()) for number in range(9)]
    whole = _columns(rows)
    assert [record.key for record in _read(whole.slice(3, 7), Packing())[0]] == [b"k3", b"k4", b"k5", b"k6"]
    assert [record.key for record in _read(whole.take(np.array([8, 0])), Packing())[0]] == [b"k8", b"k0"]
