"""Frames and record sets built beforehand: what the clients send and what the sink serves."""

import random
from functools import cache

from bench.load import Call, LoadError
from kproxy.budget import unbounded
from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.fetch import FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import build_batch
from kproxy.codec.header import encode_request
from kproxy.codec.message_formats import from_v2
from kproxy.codec.records import Record

LARGE = "bench-1kb"
"""The topic of 1 KB records."""
SMALL = "bench-100b"
"""The topic of 100-byte records."""
TINY = "bench-tiny"
"""The topic of batches with one record of 100 bytes each."""
RECORD_BYTES = {LARGE: 1024, SMALL: 100, TINY: 100}

BATCH_BYTES = 16 * 1024
FETCH_BYTES = 1 << 20
CLIENT_ID = "bench"
MODERN_PRODUCE, MODERN_FETCH = 7, 11
LAST_WITHOUT_ZSTD = 9
"""The newest version that can't carry zstd, so that kproxy has to search for it."""
OLD_PRODUCE, OLD_FETCH = 2, 2
JAVA_PRODUCE = 12
"""The newest version that names topics, as those of a broker that does nothing but answer must be named."""
_BIG_RECORDS = 800
_JAVA_REQUESTS = 24
_JAVA_ERROR_AT = 4 + 1 + 1 + 1 + 1 + 4
"""Correlation id, tags, number of topics, length of the topic's name, number of partitions, partition. Add the name."""
_JAVA_ROW_BYTES = 33
_TIMESTAMP_MS = 1_700_000_000_000
_CORRELATION_BYTES = 4
_PARTITION_ERROR_AT = 4 + 4 + 2 + 4 + 4
"""Correlation id, number of topics, length of the topic's name, number of partitions, partition. Add the name."""


def records_per_batch(topic: str) -> int:
    """How many records of the topic are in a batch: as many as fill 16 KB, or one."""
    return 1 if topic == TINY else max(1, BATCH_BYTES // RECORD_BYTES[topic])


@cache
def batch(topic: str, base_offset: int = 0) -> bytes:
    """One batch of format v2 as the topic has them; values are random, so that nobody compresses them by accident."""
    values = random.Random(1)
    return bytes(
        build_batch(
            [
                Record(base_offset + number, _TIMESTAMP_MS + number, None, values.randbytes(RECORD_BYTES[topic]), ())
                for number in range(records_per_batch(topic))
            ],
            base_offset=base_offset,
        )
    )


@cache
def served(topic: str, magic: int) -> bytes:
    """About 1 MB of batches from offset 0 on, or the same records as a message set of `magic` 0 or 1."""
    count, step = FETCH_BYTES // len(batch(topic)), records_per_batch(topic)
    record_set = b"".join(batch(topic, number * step) for number in range(count))
    return record_set if magic == 2 else message_set(record_set, magic)


def message_set(record_set: bytes, magic: int) -> bytes:
    """Batches of format v2 as a message set of `magic` 0 or 1."""
    converted = from_v2(
        record_set,
        magic=magic,
        first_offset=0,
        transcode={},
        max_decompressed_bytes=1 << 30,
        max_bytes=1 << 30,
    )
    return bytes(converted.data)


def served_records(topic: str) -> int:
    """How many records `served` holds."""
    return FETCH_BYTES // len(batch(topic)) * records_per_batch(topic)


def produce_call(topic: str, version: int) -> Call:
    """A Produce request with one 16 KB batch, acks=all: format v2, or magic 1 below version 3."""
    data = batch(topic) if version >= 3 else message_set(batch(topic), 1)
    count = records_per_batch(topic)
    return _produce(topic, version, data, count, count * RECORD_BYTES[topic])


def java_calls(partitions: int) -> list[Call]:
    """Produce requests as Kafka's own producer sends them: a batch for each partition, their order and sizes change."""
    sizes, values = random.Random(3), random.Random(1)
    value = [values.randbytes(RECORD_BYTES[LARGE]) for _ in range(records_per_batch(LARGE))]
    calls = []
    for turn in range(_JAVA_REQUESTS):
        counts = [sizes.randint(len(value) * 3 // 4, len(value) - 1) for _ in range(partitions)]
        parts = [
            ProduceRequestPartitionProduceData(
                index=(index - turn) % partitions,
                records=bytes(build_batch([Record(at, _TIMESTAMP_MS, None, value[at], ()) for at in range(count)])),
            )
            for index, count in enumerate(counts)
        ]
        topics = [ProduceRequestTopicProduceData(name=LARGE, partition_data=parts)]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
        frame = bytearray(encode_request(request, JAVA_PRODUCE, 0, CLIENT_ID))
        records = sum(counts)
        error_at = _JAVA_ERROR_AT + len(LARGE)
        calls.append(Call(frame, error_at, records, records * RECORD_BYTES[LARGE], partitions, _JAVA_ROW_BYTES))
    return calls


def small_produce_call() -> Call:
    """A Produce request with one record of 100 bytes."""
    record = Record(0, _TIMESTAMP_MS, None, bytes(RECORD_BYTES[SMALL]), ())
    return _produce(SMALL, MODERN_PRODUCE, bytes(build_batch([record])), 1, RECORD_BYTES[SMALL])


def sized_produce_call(size: int, client_id: str = CLIENT_ID) -> Call:
    """A Produce request with one record of `size` bytes."""
    record = Record(0, _TIMESTAMP_MS, None, random.Random(4).randbytes(size), ())
    return _produce(LARGE, MODERN_PRODUCE, bytes(build_batch([record])), 1, size, client_id)


def big_produce_call() -> Call:
    """A Produce request with one batch of 800 KB, near what a topic takes: few of them fill the proxy's memory."""
    value = random.Random(2).randbytes(RECORD_BYTES[LARGE])
    records = [Record(number, _TIMESTAMP_MS, None, value, ()) for number in range(_BIG_RECORDS)]
    data = bytes(build_batch(records))
    return _produce(LARGE, MODERN_PRODUCE, data, _BIG_RECORDS, _BIG_RECORDS * RECORD_BYTES[LARGE])


def many_partitions_frame(topic: str, partitions: int, timestamp_ms: int) -> bytes:
    """A Produce request of version 2 with one record, as a message set of magic 1, for each of a topic's partitions.

    A real broker soon deletes records of long ago, so they have the time that is given.
    """
    data = message_set(bytes(build_batch([Record(0, timestamp_ms, b"key", b"value", ())])), 1)
    parts = [ProduceRequestPartitionProduceData(index=index, records=data) for index in range(partitions)]
    topics = [ProduceRequestTopicProduceData(name=topic, partition_data=parts)]
    return encode_request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), OLD_PRODUCE, 0, CLIENT_ID)


def many_batches_frame(topic: str, partitions: int, client_id: str) -> bytearray:
    """A Produce request as Kafka's producer sends it: one 16 KB batch of format v2 for each of a topic's partitions."""
    data = batch(LARGE)
    parts = [ProduceRequestPartitionProduceData(index=index, records=data) for index in range(partitions)]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[ProduceRequestTopicProduceData(name=topic, partition_data=parts)]
    )
    return bytearray(encode_request(request, MODERN_PRODUCE, 0, client_id))


def check_many_batches(answer: memoryview) -> None:
    """Raise LoadError unless the response to ``many_batches_frame`` holds no error code."""
    response = ProduceResponse.decode(bytes(answer), MODERN_PRODUCE, unbounded(), _CORRELATION_BYTES)
    errors = {part.error_code for topic in response.responses for part in topic.partition_responses} - {0}
    if errors:
        raise LoadError(f"error codes {sorted(errors)}")


def _produce(
    topic: str, version: int, data: bytes, records: int, payload_bytes: int, client_id: str = CLIENT_ID
) -> Call:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequestTopicProduceData(
                name=topic, partition_data=[ProduceRequestPartitionProduceData(index=0, records=data)]
            )
        ],
    )
    frame = bytearray(encode_request(request, version, 0, client_id))
    return Call(frame, _PARTITION_ERROR_AT + len(topic), records, payload_bytes)


def fetch_call(topic: str, version: int, *, committed: bool = False) -> Call:
    """A Fetch request for about 1 MB from offset 0 on; ``committed``: of what is decided only."""
    partition = FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=2 * FETCH_BYTES,
        isolation_level=int(committed),
        topics=[FetchRequestFetchTopic(topic=topic, partitions=[partition])],
    )
    # Before the topics a response has: the throttle time from v1 on, error code and session id from v7 on.
    ahead = (4 if version >= 1 else 0) + (6 if version >= 7 else 0)
    return Call(bytearray(encode_request(request, version, 0, CLIENT_ID)), ahead + _PARTITION_ERROR_AT + len(topic))


def hello(software: str) -> bytes:
    """An ApiVersions request in which a client names its software."""
    return encode_request(ApiVersionsRequest(client_software_name=software), 3, 0, CLIENT_ID)


def list_offsets_call() -> Call:
    """A ListOffsets request for the end of one partition."""
    partition = ListOffsetsRequestListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequestListOffsetsTopic(name=SMALL, partitions=[partition])]
    )
    return Call(bytearray(encode_request(request, 1, 0, CLIENT_ID)), _PARTITION_ERROR_AT + len(SMALL))


def metadata_frame(topics: list[str]) -> bytes:
    """A Metadata request, version 1, that names the topics."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
    return encode_request(request, 1, 0, CLIENT_ID)
