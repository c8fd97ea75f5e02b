"""Compaction: what is left of batches, and that producers outlive it.

Not compared, since the fake keeps both for good: deletions and markers, which 4.3.0 marks with a horizon
(attribute 0x40, base timestamp) and drops ``delete.retention.ms`` later; of a producer's last marker the header stays.
"""

import time

import pytest

from kproxy.codec.batch import Record, build_batch, crc_ok, iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.faults.levers import Levers
from tests.contract.questions import producers, send
from tests.support.patience import eventually

FIRST_MS = int(time.time() * 1000)
"""Not long ago: the broker forgets producers by their last timestamp, and then compaction drops their batches."""
PID = 2**61 + 25
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.0"}


def _keyed(*pairs: tuple[bytes | None, bytes], at: int, pid: int = -1, seq: int = -1, codec: int = 0) -> bytes:
    records = [Record(n, FIRST_MS + at + n, key, value, (("h", b"1"),)) for n, (key, value) in enumerate(pairs)]
    epoch = 0 if pid >= 0 else -1
    return bytes(build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=seq, codec=codec))


def _batches(data: bytes) -> list[tuple[int, int, int, int, int, int, int, int]]:
    """Per batch: offsets, count, producer id, sequence, times after ``FIRST_MS`` (-1: none), codec."""
    found = []
    while data:
        header = read_header(data)
        assert crc_ok(data, 0, header.size)
        base = header.base_timestamp - FIRST_MS if header.base_timestamp >= 0 else -1
        figures = (header.record_count, header.producer_id, header.base_sequence)
        last = header.base_offset + header.last_offset_delta
        found.append((header.base_offset, last, *figures, base, header.max_timestamp - FIRST_MS, header.codec))
        data = data[header.size :]
    return found


@pytest.mark.parametrize("codec", [0, 1])
def test_the_last_record_of_each_key_stays(eager: Levers, tidy_client: ClusterClient, unique: str, codec: int) -> None:
    tidy_client.create_topic(unique, config=COMPACTED)
    broker = tidy_client.leader(unique, 0)
    first = _keyed((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), at=0, pid=PID, seq=0, codec=codec)
    second = _keyed((b"a", b"4"), at=10, pid=PID, seq=3, codec=codec)
    for data, offset in (
        (first, 0),
        (second, 3),
        (_keyed((b"a", b"5"), at=20, pid=PID + 1, seq=0, codec=codec), 4),
        (_keyed((b"a", b"6"), at=30, codec=codec), 5),
        (_keyed((b"b", b"7"), (b"d", b"8"), at=40, codec=codec), 6),
        (_keyed((b"a", b"9"), at=50, codec=codec), 8),
    ):
        assert send(broker, unique, data) == (ErrorCode.NONE, offset)
    before = len(_batches(tidy_client.read_all(unique)))
    # The active segment is never compacted: a record that is later by segment.ms closes it.
    assert send(broker, unique, _keyed((b"q", b"0"), at=5_000)) == (ErrorCode.NONE, 9)
    eventually(lambda: len(_batches(tidy_client.read_all(unique))) < before + 1, eager.tidy)
    assert _batches(tidy_client.read_all(unique)) == [
        (0, 2, 1, PID, 0, 2, 2, codec),
        (3, 3, 0, PID, 3, -1, 10, 0),
        (4, 4, 0, PID + 1, 0, -1, 20, 0),
        (6, 7, 2, -1, -1, 40, 41, codec),
        (8, 8, 1, -1, -1, 50, 50, codec),
        (9, 9, 1, -1, -1, 5_000, 5_000, 0),
    ]
    records = iter_records(tidy_client.read_all(unique), max_decompressed_bytes=1 << 20)
    assert [(record.offset, record.value, record.timestamp - FIRST_MS, len(record.headers)) for record in records] == [
        (2, b"3", 2, 1),
        (6, b"7", 40, 1),
        (7, b"8", 41, 1),
        (8, b"9", 50, 1),
        (9, b"0", 5_000, 1),
    ]
    assert producers(broker, unique) == {PID: (0, 3), PID + 1: (0, 0)}
    assert [send(broker, unique, data) for data in (first, second)] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 3)]
    for offset, begin in ((1, 0), (5, 6)):
        data = bytes(tidy_client.fetch(unique, 0, offset).responses[0].partitions[0].records or b"")
        assert read_header(data).base_offset == begin


def test_records_without_a_key_are_refused(tidy_client: ClusterClient, unique: str) -> None:
    tidy_client.create_topic(unique, config={"cleanup.policy": "compact"})
    broker = tidy_client.leader(unique, 0)
    for data in (_keyed((None, b"1"), at=0), _keyed((b"a", b"1"), (None, b"2"), at=0, codec=1)):
        assert send(broker, unique, data) == (ErrorCode.INVALID_RECORD, -1)
    assert tidy_client.offset(unique, 0) == 0
