"""A broker that does nothing but answer: it throws away what is produced and serves one fixed record set.

A real broker would be the bottleneck, and its disk the noise; with this one the proxy is what is measured. Run as
`python -m bench.sink PORT [STALL_AFTER_BYTES]`: with the second argument it stops reading, on every connection and for
good, after so many bytes were produced.
"""

import itertools
import struct
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import trio

from bench.payloads import LARGE, RECORD_BYTES, SMALL, served, served_records
from kproxy.budget import unbounded
from kproxy.codec._generated.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from kproxy.codec._generated.create_topics import CreateTopicsResponse, CreateTopicsResponseCreatableTopicResult
from kproxy.codec._generated.fetch import (
    FetchResponse,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.find_coordinator import FindCoordinatorResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec._generated.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponseListOffsetsPartitionResponse,
    ListOffsetsResponseListOffsetsTopicResponse,
)
from kproxy.codec._generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import read_header
from kproxy.codec.header import decode_request_header, encode_response
from kproxy.codec.messages import ApiKey, ErrorCode, Message, request_class
from kproxy.proxy.routing import is_own_topic

if TYPE_CHECKING:
    from collections.abc import Callable

NODE_ID: Final = 1
SERVED: Final[dict[int, tuple[int, int]]] = {
    # Both end below the versions that name topics by id: those would make every response depend on Metadata.
    ApiKey.PRODUCE: (0, 12),
    ApiKey.FETCH: (0, 12),
    ApiKey.LIST_OFFSETS: (0, 7),
    ApiKey.METADATA: (0, 9),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (2, 5),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
}
_BUFFER_BYTES: Final = 1 << 20  # no request is bigger
_LENGTH: Final = struct.Struct(">i")
_CORRELATION: Final = struct.Struct(">i")
_CORRELATION_AT: Final = 4


class Sink:
    """The state of the broker: where each log ends, how much was produced, the responses that never change."""

    def __init__(self, port: int, stall_after_bytes: int | None = None) -> None:
        self.port = port
        self.ends: Counter[tuple[str, int]] = Counter()
        self.produced_bytes = 0
        self.stall_after_bytes = stall_after_bytes
        self._fetched: dict[tuple[int, str], bytearray] = {}
        self._producer_ids = itertools.count(1000)
        self._answers: dict[int, Callable[[Any, int], Message]] = {
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.CREATE_TOPICS: self._create_topics,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
        }

    @property
    def stalled(self) -> bool:
        """Whether it has been told to stop reading, and now has."""
        return self.stall_after_bytes is not None and self.produced_bytes >= self.stall_after_bytes

    def answer(self, frame: memoryview) -> bytes | bytearray:
        """The response, length prefix included, to a request without one."""
        header = decode_request_header(frame)
        version = header.api_version
        if not 0 <= version <= SERVED[header.api_key][1]:
            version = 0
            return encode_response(self._api_versions(None, version, error=35), version, header.correlation_id)
        request = request_class(header.api_key).decode(frame, version, unbounded(), header.size)
        if header.api_key == ApiKey.FETCH:
            return self._ready_fetch(request, version, header.correlation_id)
        return encode_response(self._answers[header.api_key](request, version), version, header.correlation_id)

    def _ready_fetch(self, request: Any, version: int, correlation_id: int) -> bytearray:
        """Fetch responses are a megabyte and all alike: encode each kind once."""
        kind = (version, request.topics[0].topic if request.topics else "")
        if kind not in self._fetched:
            self._fetched[kind] = bytearray(encode_response(self._fetch(request, version), version, 0))
        _CORRELATION.pack_into(self._fetched[kind], _CORRELATION_AT, correlation_id)
        return self._fetched[kind]

    def _fetch(self, request: Any, version: int) -> Message:
        magic = 2 if version >= 4 else 1 if version >= 2 else 0
        topics = []
        for topic in request.topics:
            known = topic.topic in RECORD_BYTES
            end = served_records(topic.topic) if known else 0
            records = served(topic.topic, magic) if known else b""
            partitions = [
                FetchResponsePartitionData(
                    partition_index=partition.partition,
                    high_watermark=end,
                    last_stable_offset=end,
                    log_start_offset=0,
                    aborted_transactions=None,
                    records=records,
                )
                for partition in topic.partitions
            ]
            topics.append(FetchResponseFetchableTopicResponse(topic=topic.topic, partitions=partitions))
        return FetchResponse(responses=topics)

    def _produce(self, request: Any, _version: int) -> Message:
        topics = []
        for topic in request.topic_data:
            partitions = []
            for partition in topic.partition_data:
                key = (topic.name, partition.index)
                partitions.append(
                    ProduceResponsePartitionProduceResponse(index=partition.index, base_offset=self.ends[key])
                )
                if len(partition.records) > 16 and partition.records[16] == 2:
                    self.ends[key] += read_header(partition.records).record_count
                self.produced_bytes += len(partition.records)
            topics.append(ProduceResponseTopicProduceResponse(name=topic.name, partition_responses=partitions))
        return ProduceResponse(responses=topics)

    def _list_offsets(self, request: Any, _version: int) -> Message:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponseListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsResponseListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            offset=self.ends[topic.name, partition.partition_index],
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _metadata(self, request: Any, _version: int) -> Message:
        names = [topic.name for topic in request.topics] if request.topics else [LARGE, SMALL]
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=NODE_ID, leader_epoch=0, replica_nodes=[NODE_ID], isr_nodes=[NODE_ID]
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE_ID, host="127.0.0.1", port=self.port)],
            cluster_id="sink",
            controller_id=NODE_ID,
            topics=[
                # a proxy's own topics are not there, and it does not look for more about them
                MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if is_own_topic(name)
                else MetadataResponseTopic(name=name, partitions=[partition])
                for name in names
            ],
        )

    def _find_coordinator(self, _request: Any, _version: int) -> Message:
        return FindCoordinatorResponse(node_id=NODE_ID, host="127.0.0.1", port=self.port)

    def _api_versions(self, _request: Any, _version: int, error: int = 0) -> Message:
        return ApiVersionsResponse(
            error_code=error,
            api_keys=[
                ApiVersionsResponseApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in SERVED.items()
            ],
        )

    def _create_topics(self, request: Any, _version: int) -> Message:
        return CreateTopicsResponse(
            topics=[CreateTopicsResponseCreatableTopicResult(name=topic.name) for topic in request.topics]
        )

    def _init_producer_id(self, _request: Any, _version: int) -> Message:
        return InitProducerIdResponse(producer_id=next(self._producer_ids), producer_epoch=0)


async def _converse(sink: Sink, connection: trio.SocketStream) -> None:
    """Answer one connection's requests in order until it ends."""
    buffer, filled = bytearray(_BUFFER_BYTES), 0
    with memoryview(buffer) as view:
        while got := await connection.socket.recv_into(view[filled:]):
            filled += got
            begin = 0
            while filled - begin >= 4 and filled - begin >= 4 + (size := _LENGTH.unpack_from(buffer, begin)[0]):
                await connection.send_all(sink.answer(view[begin + 4 : begin + 4 + size]))
                begin += 4 + size
            if sink.stalled:
                await trio.sleep_forever()
            view[: filled - begin] = view[begin:filled]
            filled -= begin


async def serve(sink: Sink) -> None:
    """Serve on the loopback address until cancelled."""

    async def handler(connection: trio.SocketStream) -> None:
        try:
            async with connection:
                await _converse(sink, connection)
        except (trio.BrokenResourceError, ConnectionError):
            return  # a client that leaves is none of ours

    await trio.serve_tcp(handler, sink.port, host="127.0.0.1", backlog=2048)


if __name__ == "__main__":
    trio.run(serve, Sink(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
