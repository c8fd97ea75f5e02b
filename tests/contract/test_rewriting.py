"""Batches that the broker rewrites on arrival: compression.type and LogAppendTime."""

import pytest

from kproxy.codec.batch import Record, build_batch, crc_ok, iter_records, read_header
from kproxy.codec.batch_reader import iter_block, records_of
from kproxy.codec.messages import ErrorCode
from kproxy.codec.records import LOG_APPEND_TIME
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.batches import START_MS
from tests.contract.questions import producers

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PID = 2**61 + 35


def _records() -> list[Record]:
    return [Record(n, START_MS + n, b"key", b"value" * 30, (("h", None),)) for n in range(3)]


def _sent(codec: int) -> bytearray:
    return build_batch(_records(), codec=codec, producer_id=PID, producer_epoch=2, base_sequence=4)


@pytest.mark.parametrize("sent_codec", [0, 1, 4])
@pytest.mark.parametrize("name", [*CODECS, "producer"])
def test_a_topic_may_choose_the_codec(client: ClusterClient, unique: str, name: str, sent_codec: int) -> None:
    client.create_topic(unique, config={"compression.type": name})
    sent = _sent(sent_codec)
    for _ in range(2):
        answer = client.produce(unique, 0, sent)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    kept = client.read_all(unique)
    header, before = read_header(kept), read_header(sent)
    codec = CODECS.get(name, sent_codec)
    assert header.codec == codec
    assert crc_ok(kept, 0, len(kept))
    unchanged = slice(BASE_TIMESTAMP, None)
    assert header[unchanged] == before[unchanged]
    assert list(iter_records(kept, max_decompressed_bytes=1 << 20)) == _records()
    assert (kept[16:] == sent[16:]) == (codec == sent_codec)


BASE_TIMESTAMP = 7
"""From this field of a header on, rewriting changes nothing but the time of LogAppendTime."""


def test_append_time_and_codec_together(client: ClusterClient, unique: str) -> None:
    client.create_topic(unique, config={"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"})
    first = client.produce(unique, 0, _sent(0))
    again = client.produce(unique, 0, _sent(0))
    assert (again.base_offset, again.log_append_time_ms) == (0, first.log_append_time_ms)
    kept = client.read_all(unique)
    header = read_header(kept)
    assert (header.attributes, header.base_timestamp) == (0x09, START_MS)
    assert header.max_timestamp == first.log_append_time_ms > START_MS
    times = {record.timestamp for record in iter_records(kept, max_decompressed_bytes=1 << 20)}
    assert times == {first.log_append_time_ms}
    assert producers(client.leader(unique, 0), unique) == {PID: (2, 6)}


@pytest.mark.parametrize("name", ["gzip", "producer"])
def test_append_time_leaves_the_times_of_the_client_in_the_batch(client: ClusterClient, unique: str, name: str) -> None:
    """No consumer sees them: the flag in the header says that all records have the time of the append."""
    client.create_topic(unique, config={"compression.type": name, "message.timestamp.type": "LogAppendTime"})
    client.produce(unique, 0, _sent(4))
    kept = client.read_all(unique)
    header = read_header(kept)
    assert header.is_log_append_time
    block = records_of(header, memoryview(kept), 1 << 20)
    as_sent = header._replace(attributes=header.attributes & ~LOG_APPEND_TIME)
    assert [record.timestamp for record in iter_block(as_sent, block)] == [START_MS + n for n in range(3)]
