"""What only the fake can do: faults, memory streams, a virtual clock, brokers that come and go."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from kproxy.budget import unbounded
from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import ApiKey, ErrorCode, Message, response_class
from kproxy.testing.fake_broker import (
    Close,
    CloseAfter,
    Drop,
    FakeServer,
    open_fake_cluster,
)

TOPIC = "t"


def _virtual_ms() -> int:
    return int(trio.current_time() * 1000)


@asynccontextmanager
async def _memory_cluster(brokers: int = 1) -> AsyncIterator[FakeServer]:
    async with open_fake_cluster(brokers, clock=_virtual_ms, listen=False) as server:
        server.cluster.create_topic(TOPIC, replication=brokers)
        yield server


async def _call(stream: trio.abc.Stream, message: Message, version: int) -> Message:
    await stream.send_all(encode_request(message, version, 1, "test"))
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        more = await stream.receive_some(1 << 16)
        if not more:
            raise ConnectionError
        data += more
    frame = data[4:]
    return response_class(message.API_KEY).decode(
        frame, version, unbounded(), response_header_size(message.API_KEY, version, frame)
    )


async def _produce(stream: trio.abc.Stream, seq: int = -1, first_ms: int = 0) -> tuple[ErrorCode, int]:
    batch = build_batch(
        [Record(0, first_ms, None, b"v", ())],
        producer_id=7 if seq >= 0 else -1,
        producer_epoch=0 if seq >= 0 else -1,
        base_sequence=seq,
    )
    part = ProduceRequestPartitionProduceData(index=0, records=bytes(batch))
    data = ProduceRequestTopicProduceData(name=TOPIC, partition_data=[part])
    answer = await _call(stream, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    assert isinstance(answer, ProduceResponse)
    result = answer.responses[0].partition_responses[0]
    return ErrorCode(result.error_code), result.base_offset


def _end(server: FakeServer) -> int:
    return server.cluster.topics[TOPIC].partitions[0].log.end_offset


@pytest.mark.parametrize(("fault", "written"), [(Close(), 0), (CloseAfter(), 1)])
async def test_a_fault_closes_the_connection_before_or_after(fault: Close | CloseAfter, written: int) -> None:
    async with _memory_cluster() as server:
        stream = await server.connect("broker-1", 9092)
        server.cluster.control(ApiKey.PRODUCE, lambda call: fault, times=1)
        with pytest.raises(ConnectionError):
            await _produce(stream)
        assert _end(server) == written


async def test_a_dropped_answer_leaves_the_connection_open(autojump_clock: trio.testing.MockClock) -> None:
    async with _memory_cluster() as server:
        stream = await server.connect("broker-1", 9092)
        server.cluster.control(ApiKey.PRODUCE, lambda call: Drop(), times=1)
        with trio.move_on_after(60) as patience:
            await _produce(stream)
        assert patience.cancelled_caught
        assert await _produce(stream) == (ErrorCode.NONE, 1)


async def test_a_stopped_broker_hangs_up_and_its_partitions_move() -> None:
    async with _memory_cluster(brokers=2) as server:
        one, two = await server.connect("broker-1", 9092), await server.connect("broker-2", 9092)
        assert await _produce(one) == (ErrorCode.NONE, 0)
        assert (await _produce(two))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await server.stop_broker(1)
        with pytest.raises((ConnectionError, trio.BrokenResourceError)):
            await _produce(one)
        with pytest.raises(ConnectionRefusedError):
            await server.connect("broker-1", 9092)
        assert await _produce(two) == (ErrorCode.NONE, 1)
        assert server.cluster.topics[TOPIC].partitions[0].leader_epoch == 1
        await server.stop_broker(2)
        assert server.cluster.topics[TOPIC].partitions[0].leader == -1
        await server.start_broker(1)
        assert server.cluster.topics[TOPIC].partitions[0].leader == -1
        await server.start_broker(2)
        assert await _produce(await server.connect("broker-2", 9092)) == (ErrorCode.NONE, 2)


async def test_a_listening_broker_returns_on_its_port() -> None:
    async with open_fake_cluster() as server:
        host, _, port = server.bootstrap.partition(":")
        await server.stop_broker(1)
        with pytest.raises(OSError, match=r".*"):
            await trio.open_tcp_stream(host, int(port))
        await server.start_broker(1)
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            answer = await _call(stream, MetadataRequest(topics=None), 9)
            assert isinstance(answer, MetadataResponse)
            assert [broker.port for broker in answer.brokers] == [int(port)]


async def test_a_poll_learns_of_a_leader_that_moves(autojump_clock: trio.testing.MockClock) -> None:
    async with _memory_cluster(brokers=2) as server:
        stream = await server.connect("broker-1", 9092)
        errors: list[int] = []

        async def poll() -> None:
            part = FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            topics = [FetchRequestFetchTopic(topic=TOPIC, partitions=[part])]
            answer = await _call(stream, FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=topics), 11)
            assert isinstance(answer, FetchResponse)
            errors.append(answer.responses[0].partitions[0].error_code)

        begin = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await trio.sleep(1)
            server.cluster.move_leader(TOPIC, 0, 2)
        assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert trio.current_time() - begin == pytest.approx(1)


async def test_producers_expire_by_their_last_timestamp(autojump_clock: trio.testing.MockClock) -> None:
    async with _memory_cluster() as server:
        stream = await server.connect("broker-1", 9092)
        assert await _produce(stream, seq=0, first_ms=_virtual_ms() - 2 * 86_400_000) == (ErrorCode.NONE, 0)
        assert await _produce(stream, seq=0, first_ms=_virtual_ms()) == (ErrorCode.NONE, 0)
        await trio.sleep(601)
        wanted = DescribeProducersRequestTopicRequest(name=TOPIC, partition_indexes=[0])
        answer = await _call(stream, DescribeProducersRequest(topics=[wanted]), 0)
        assert isinstance(answer, DescribeProducersResponse)
        assert answer.topics[0].partitions[0].active_producers == []
        assert await _produce(stream, seq=0, first_ms=_virtual_ms()) == (ErrorCode.NONE, 1)


async def test_requests_may_come_byte_by_byte_or_many_at_once() -> None:
    async with _memory_cluster() as server:
        stream = await server.connect("broker-1", 9092)
        frame = encode_request(MetadataRequest(topics=None), 1, 5, "c")
        for byte in frame:
            await stream.send_all(bytes([byte]))
        await stream.send_all(frame * 3)
        data = b""
        while len(data) < 4 or len(data) < 4 * (4 + struct.unpack_from(">i", data)[0]):
            data += await stream.receive_some(1 << 16)
        size = 4 + struct.unpack_from(">i", data)[0]
        assert data == data[:size] * 4
