from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.batch import BatchHeader, Record, build_batch, read_header
from kproxy.codec.batch_reader import records_of
from kproxy.codec.records import CorruptRecord
from kproxy.spark.scan import Block, Columns, DamagedRecord

_FIELD = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _FIELD), max_size=3).map(tuple)
_RECORDS = st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 300), _FIELD, _FIELD, _HEADERS), min_size=1)
_Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def _block(rows: list[_Row]) -> tuple[list[Record], BatchHeader, bytes]:
    offset, records = 0, []
    for time, gap, key, value, headers in rows:
        records.append(Record(offset, time, key, value, headers))
        offset += gap
    batch = build_batch(records, base_offset=77)
    header = read_header(batch)
    return records, header, records_of(header, memoryview(batch), 1 << 30)


def _scan(header: BatchHeader, data: bytes, piece: int = 1 << 20) -> Columns:
    block, pos = Block(), 0
    while pos < len(data):
        _, pos = block.add(header, data, pos, min(len(data), pos + piece))
    return block.columns(0, 1 << 62, with_headers=True)


@settings(deadline=None, max_examples=60)
@given(_RECORDS, st.integers(1, 400))
def test_what_was_written_is_read_in_pieces_of_any_size(rows: list[_Row], piece: int) -> None:
    records, header, data = _block(rows)
    found = _scan(header, data, piece)
    assert found.keys.to_pylist() == [record.key for record in records]
    assert found.values.to_pylist() == [record.value for record in records]
    assert found.offsets.tolist() == [77 + record.offset for record in records]
    assert found.times.tolist() == [record.timestamp for record in records]
    assert found.headers == [record.headers or None for record in records]


@settings(deadline=None, max_examples=60)
@given(_RECORDS, st.data())
def test_a_damaged_block_is_an_error_or_other_records(rows: list[_Row], data: st.DataObject) -> None:
    _, header, block = _block(rows)
    at = data.draw(st.integers(0, len(block) - 1))
    with suppress(CorruptRecord):
        _scan(header, block[:at] + bytes([data.draw(st.integers(0, 255))]) + block[at + 1 :])


@settings(deadline=None, max_examples=60)
@given(_RECORDS, st.data())
def test_a_block_that_is_cut_is_an_error_or_has_fewer_records(rows: list[_Row], data: st.DataObject) -> None:
    _, header, block = _block(rows)
    cut = block[: data.draw(st.integers(1, len(block) - 1))]
    with suppress(CorruptRecord):
        assert len(_scan(header, cut).offsets) < header.record_count


@pytest.mark.parametrize(
    "record",
    [
        bytes([14, 0, 0, 0, 1, 40, 107, 0]),  # the value reaches beyond the record
        bytes([10, 0, 0, 0, 1, 1]),  # there is no number of headers
        bytes([14, 0, 0, 0, 1, 1, 0, 0]),  # something follows
        bytes([28, 0, 0, 0]) + b"\xff" * 11,  # a length of more than ten bytes
        bytes([28, 0, 0, 0]) + b"\xff" * 9 + b"\x01\x01",  # a length of nearly 2^63
    ],
)
def test_a_record_whose_fields_do_not_fit_is_reported_with_its_batch(record: bytes) -> None:
    _, header, data = _block([(1, 1, b"k", b"v", ())])
    block = Block()
    block.add(header, data, 0, len(data))
    assert block.add(header._replace(base_offset=90), record, 0, len(record)) == (1, len(record))
    with pytest.raises(DamagedRecord) as raised:
        block.columns(0, 1 << 62, with_headers=False)
    assert raised.value.base_offset == 90


def test_headers_are_passed_over_unless_wanted() -> None:
    _, header, data = _block([(1, 1, b"k", b"v", (("name", b"x"),)), (2, 1, None, None, ())])
    block = Block()
    assert block.add(header, data, 0, len(data)) == (2, len(data))
    found = block.columns(0, 100, with_headers=False)
    assert (found.keys.to_pylist(), found.values.to_pylist(), found.headers) == ([b"k", None], [b"v", None], [])


def test_records_outside_the_range_are_left_out() -> None:
    _, header, data = _block([(at, 1, b"%d" % at, None, (("n", b"%d" % at),)) for at in range(4)])
    block = Block()
    block.add(header, data, 0, len(data))
    found = block.columns(78, 80, with_headers=True)
    assert (found.keys.to_pylist(), found.offsets.tolist(), found.times.tolist()) == ([b"1", b"2"], [78, 79], [1, 2])
    assert found.headers == [(("n", b"1"),), (("n", b"2"),)]
