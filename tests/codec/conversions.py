"""Both conversions with the figures that most tests want, and what they are to give."""

from collections.abc import Sequence

from hypothesis import strategies as st

from kproxy.budget import UNLIMITED, RequestBudget
from kproxy.codec.batch import Record, iter_records
from kproxy.codec.message_formats import ConvertedBatch, Downconverted, from_v2, to_v2
from tests.codec.message_sets import Triple

MIB = 1 << 20
NOW = 1_700_000_000_000
ARRIVAL = NOW + 999

fields = st.none() | st.binary(max_size=100) | st.integers(0, 300).map(lambda size: bytes(size))
records = st.lists(st.tuples(st.integers(-1, NOW), fields, fields), min_size=1, max_size=20)


def up(data: bytes | memoryview, *, limit: int = MIB, unpacked: int = MIB) -> list[ConvertedBatch]:
    return to_v2(data, arrival_ms=ARRIVAL, max_batch_bytes=limit, budget=RequestBudget(0, unpacked, UNLIMITED))


def down(
    data: bytes | bytearray, *, magic: int, first: int = 0, limit: int = MIB, unpacked: int = MIB
) -> Downconverted:
    return from_v2(data, magic=magic, first_offset=first, max_decompressed_bytes=unpacked, max_bytes=limit)


def read(data: bytes | bytearray) -> list[Record]:
    return list(iter_records(data, max_decompressed_bytes=16 * MIB))


def numbered(triples: Sequence[Triple], *, magic: int) -> list[Record]:
    return [
        Record(number, ARRIVAL if magic == 0 or time < 0 else time, key, value)
        for number, (time, key, value) in enumerate(triples)
    ]
