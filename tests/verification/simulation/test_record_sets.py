"""Record sets of three generations."""

import pytest

from kproxy.budget import unbounded
from kproxy.codec.batch import iter_records
from kproxy.codec.message_formats import to_v2
from verification.simulation.contents import Content
from verification.simulation.record_sets import record_set

ROWS = [(5, Content(b"a", b"k", (("h", b"1"),))), (6, Content(b"b")), (6, Content(b"c", b""))]


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)])
def test_what_is_written_can_be_read(magic: int, codec: int) -> None:
    data = record_set(magic, codec, ROWS)
    if magic < 2:
        batches = to_v2(data, arrival_ms=99, max_batch_bytes=1 << 20, budget=unbounded())
        data = b"".join(bytes(batch.data) for batch in batches)
    records = list(iter_records(data, max_decompressed_bytes=1 << 20))
    assert [record.value for record in records] == [b"a", b"b", b"c"]
    assert [record.key for record in records] == [b"k", None, b""]
    assert [record.headers for record in records] == [(("h", b"1"),) if magic == 2 else (), (), ()]
    if magic:
        assert [record.timestamp for record in records] == [5, 6, 6]
