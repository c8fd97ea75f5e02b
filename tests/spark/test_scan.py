from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.batch import BatchHeader, Record, build_batch, read_header
from kproxy.codec.batch_reader import records_of
from kproxy.codec.records import CorruptRecord
from kproxy.spark.scan import Fields, scan

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


@settings(deadline=None, max_examples=60)
@given(_RECORDS, st.integers(1, 400))
def test_what_was_written_is_read_in_pieces_of_any_size(rows: list[_Row], piece: int) -> None:
    records, header, data = _block(rows)
    fields, pos = Fields(), 0
    while pos < len(data):
        pos = scan(data, pos, min(len(data), pos + piece), 77, header.base_timestamp, fields, with_headers=True)
    assert fields.keys == [record.key for record in records]
    assert fields.values == [record.value for record in records]
    assert fields.offsets == [77 + record.offset for record in records]
    assert fields.times == [record.timestamp for record in records]
    assert fields.headers == [record.headers or None for record in records]


@settings(deadline=None, max_examples=60)
@given(_RECORDS, st.data())
def test_a_damaged_block_is_an_error_or_other_records(rows: list[_Row], data: st.DataObject) -> None:
    _, header, block = _block(rows)
    at = data.draw(st.integers(0, len(block) - 1))
    damaged = block[:at] + bytes([data.draw(st.integers(0, 255))]) + block[at + 1 :]
    with suppress(CorruptRecord):
        scan(damaged, 0, len(damaged), 0, header.base_timestamp, Fields(), with_headers=True)


@settings(deadline=None, max_examples=60)
@given(_RECORDS, st.data())
def test_a_block_that_is_cut_is_an_error_or_has_fewer_records(rows: list[_Row], data: st.DataObject) -> None:
    _, header, block = _block(rows)
    cut = block[: data.draw(st.integers(0, len(block) - 1))]
    fields = Fields()
    try:
        scan(cut, 0, len(cut), 0, header.base_timestamp, fields, with_headers=True)
    except CorruptRecord:
        return
    assert len(fields.offsets) < header.record_count


def test_headers_are_passed_over_unless_wanted() -> None:
    _, header, data = _block([(1, 1, b"k", b"v", (("name", b"x"),)), (2, 1, None, None, ())])
    fields = Fields()
    assert scan(data, 0, len(data), 0, header.base_timestamp, fields, with_headers=False) == len(data)
    assert (fields.keys, fields.values, fields.headers) == ([b"k", None], [b"v", None], [])


def test_rows_outside_a_range_are_cut_after_an_index() -> None:
    fields = Fields([b"a", b"b", b"c", b"d"], [None] * 4, [5, 6, 7, 8], [1, 2, 3, 4])
    fields.cut(1, 7, 8)
    assert (fields.keys, fields.offsets, fields.times, len(fields.values)) == ([b"a", b"c"], [5, 7], [1, 3], 2)
