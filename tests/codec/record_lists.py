"""Records for the tests of record batches, and how they read them back."""

from itertools import accumulate

from hypothesis import strategies as st

from kproxy.codec.batch_reader import iter_records
from kproxy.codec.records import Record

MIB = 1 << 20
NOW = 1_700_000_000_000

Headers = tuple[tuple[str, bytes | None], ...]

fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
bodies = st.tuples(st.integers(1, 100), st.integers(-1, NOW), fields, fields, headers)


def rising(drawn: list[tuple[int, int, bytes | None, bytes | None, Headers]]) -> list[Record]:
    """Records with offsets from 0 on that leave gaps, as compaction does."""
    offsets = accumulate((step for step, *_ in drawn), initial=0)
    return [Record(offset, *rest) for offset, (_, *rest) in zip(offsets, drawn, strict=False)]  # type: ignore[arg-type]


record_lists = st.lists(bodies, min_size=1, max_size=20).map(rising)


def plain(count: int = 3) -> list[Record]:
    return [Record(number, NOW + number, b"key%d" % number, b"value") for number in range(count)]


def records_in(data: bytes | bytearray | memoryview, limit: int = MIB, **options: bool) -> list[Record]:
    return list(iter_records(data, max_decompressed_bytes=limit, **options))
