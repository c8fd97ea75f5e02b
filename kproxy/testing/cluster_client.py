"""A small blocking Kafka client over plain sockets, for tests, benchmarks and the demo.

``RawConnection`` speaks any message in any version to one broker; ``ClusterClient`` finds leaders and offers what a
test needs: create and delete topics, produce a ready-made batch, read a partition back, ask for offsets. Neither
retries a produce on its own: what a test sends is what the broker gets. ``ClusterClient`` repeats its questions
(offsets, Fetch) when their connection dies: a Kafka that replaces or deletes a segment closes those that read it.

It is apart from ``kproxy.spark``'s client, which retries, chooses versions and logs in. Both block, so neither can be
the trio client of ``kproxy.net.brokers``.
"""

import contextlib
import struct
import time
from collections.abc import Callable, Mapping
from typing import Final, Self, TypeVar

from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
    CreateTopicsResponse,
)
from kproxy.codec._generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
)
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.testing.raw_connection import PATIENCE_S, RawConnection
from kproxy.txn.visibility import Aborted, visible

__all__ = ["EARLIEST", "LATEST", "ClusterClient", "RawConnection"]

_MessageT = TypeVar("_MessageT", bound=Message)
_FETCH_BYTES: Final = 8 << 20
_API_VERSIONS: Final = 3
_RETRIES: Final = 2
EARLIEST: Final = -2
LATEST: Final = -1


class ClusterClient:
    """A client of a whole cluster, reached through any of its brokers.

    :param bootstrap: ``host:port`` or several of them joined by commas.
    """

    def __init__(self, bootstrap: str, *, client_id: str = "kproxy-test", timeout: float = PATIENCE_S) -> None:
        places = [place.rpartition(":") for place in bootstrap.split(",")]
        self._bootstrap = [(host, int(port)) for host, _, port in places]
        self._client_id = client_id
        self._timeout = timeout
        self._connections: dict[tuple[str, int], RawConnection] = {}
        self._named: set[RawConnection] = set()

    def any_broker(self) -> RawConnection:
        """Return a connection to the first bootstrap broker that can be reached.

        :raises OSError: none can.
        """
        for place in self._bootstrap[:-1]:
            try:
                return self._connect(place)
            except OSError:
                continue
        return self._connect(self._bootstrap[-1])

    def metadata(self, *topics: str) -> MetadataResponse:
        """Return the metadata of the topics (all of them if none is named); creates none."""
        wanted = [MetadataRequestTopic(name=topic) for topic in topics] or None
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self._ask_anyone(request, 9, MetadataResponse)

    def controller(self) -> RawConnection:
        """Return a connection to the broker that is named as the controller: others may refuse changes of topics."""
        answer = self._ask_anyone(MetadataRequest(topics=[]), 9, MetadataResponse)
        places = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        place = places.get(answer.controller_id)
        return self._connect(place) if place else self.any_broker()

    def leader(self, topic: str, partition: int) -> RawConnection:
        """Return a connection to a partition's leader, waiting up to a minute for there to be one.

        :raises TimeoutError: there is none.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            place = self._leader_place(topic, partition)
            if place is not None:
                return self._connect(place)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}-{partition} has no leader")
            time.sleep(0.05)

    def create_topic(
        self, name: str, partitions: int = 1, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until every partition's leader serves it.

        :raises RuntimeError: the cluster refuses it; the message has Kafka's error.
        """
        configs = [
            CreateTopicsRequestCreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()
        ]
        topic = CreateTopicsRequestCreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        _check(self.controller().call(request, 5, CreateTopicsResponse).topics[0].error_code, f"create topic {name}")
        for partition in range(partitions):
            self.wait_served(name, partition)

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        :raises RuntimeError: the cluster refuses it; the message has Kafka's error.
        """
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
        _check(self.controller().call(request, 4, DeleteTopicsResponse).responses[0].error_code, f"delete topic {name}")

    def wait_served(self, topic: str, partition: int) -> None:
        """Wait until the leader knows that it leads: metadata names it a moment earlier, after a restart, too.

        :raises RuntimeError: it does not within a minute; the message has Kafka's error.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.offset(topic, partition)
                return
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def produce(
        self,
        topic: str,
        partition: int,
        batch: bytes | bytearray,
        *,
        acks: int = -1,
        version: int = 9,
        transactional_id: str | None = None,
    ) -> ProduceResponsePartitionProduceResponse:
        """Send one record set to a partition's leader and return the partition's response, good or bad."""
        part = ProduceRequestPartitionProduceData(index=partition, records=bytes(batch))
        data = ProduceRequestTopicProduceData(name=topic, partition_data=[part])
        request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=[data])
        response = self.leader(topic, partition).call(request, version, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def offset(self, topic: str, partition: int, timestamp: int = LATEST, *, isolation_level: int = 0) -> int:
        """Return an offset by time in ms, ``EARLIEST`` or ``LATEST``; -1 when there is no such record.

        :raises RuntimeError: the leader refuses; the message has Kafka's error.
        """
        part = ListOffsetsRequestListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        wanted = ListOffsetsRequestListOffsetsTopic(name=topic, partitions=[part])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[wanted])
        answer = self._ask(self.leader, topic, partition, request, 5, ListOffsetsResponse).topics[0].partitions[0]
        _check(answer.error_code, f"list offsets of {topic}-{partition}")
        return answer.offset

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = _FETCH_BYTES,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        isolation_level: int = 0,
        version: int = 11,
    ) -> FetchResponse:
        """Fetch once from one partition and return the whole response."""
        part = FetchRequestFetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            topics=[FetchRequestFetchTopic(topic=topic, partitions=[part])],
        )
        return self._ask(self._reader, topic, partition, request, version, FetchResponse)

    def _reader(self, topic: str, partition: int) -> RawConnection:
        """The leader, which knows this client's software: kproxy hides control batches from clients without a name."""
        connection = self.leader(topic, partition)
        if connection not in self._named:
            self._named.add(connection)
            connection.call(ApiVersionsRequest(client_software_name="kproxy"), _API_VERSIONS, ApiVersionsResponse)
        return connection

    def read_all(self, topic: str, partition: int = 0, *, isolation_level: int = 0) -> bytes:
        """Return all record batches of a partition, from its start to its present end, as the broker keeps them.

        At ``isolation_level`` 1 only what is committed: the broker's list of aborted transactions is applied.

        :raises RuntimeError: the leader refuses; the message has Kafka's error.
        """
        offset = self.offset(topic, partition, EARLIEST)
        end = self.offset(topic, partition, LATEST, isolation_level=isolation_level)
        data = bytearray()
        while offset < end:
            answer = self.fetch(topic, partition, offset, isolation_level=isolation_level).responses[0].partitions[0]
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # what it had has been deleted meanwhile
                offset = self.offset(topic, partition, EARLIEST)
                continue
            _check(answer.error_code, f"fetch {topic}-{partition} at {offset}")
            start, (whole, offset) = offset, _whole_batches(bytes(answer.records or b""), offset)
            data += _committed(whole, start, answer) if isolation_level else whole
        return bytes(data)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._named.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, place: tuple[str, int]) -> RawConnection:
        known = self._connections.pop(place, None)
        if known is None or not known.idle():
            if known is not None:
                known.close()
                self._named.discard(known)
            known = RawConnection(*place, client_id=self._client_id, timeout=self._timeout)
        self._connections[place] = known
        return known

    def _ask_anyone(self, request: Message, version: int, answer: type[_MessageT]) -> _MessageT:
        """Ask a bootstrap broker; once more, on a new connection, if the first one fails."""
        try:
            return self.any_broker().call(request, version, answer)
        except ConnectionError:
            return self.any_broker().call(request, version, answer)

    def _ask(
        self,
        find: Callable[[str, int], RawConnection],
        topic: str,
        partition: int,
        request: Message,
        version: int,
        answer: type[_MessageT],
    ) -> _MessageT:
        """Ask a partition's leader what changes nothing; ask it again, twice at most, if its connection dies."""
        for _ in range(_RETRIES):
            with contextlib.suppress(ConnectionError):
                return find(topic, partition).call(request, version, answer)
        return find(topic, partition).call(request, version, answer)

    def _leader_place(self, topic: str, partition: int) -> tuple[str, int] | None:
        metadata = self.metadata(topic)
        found: MetadataResponseTopic = metadata.topics[0]
        leader = next((part.leader_id for part in found.partitions if part.partition_index == partition), -1)
        return next(((broker.host, broker.port) for broker in metadata.brokers if broker.node_id == leader), None)


def _check(error_code: int, what: str) -> None:
    if error_code != ErrorCode.NONE:
        raise RuntimeError(f"cannot {what}: {ErrorCode(error_code).name}")


def _committed(batches: bytes, start: int, answer: FetchResponsePartitionData) -> bytes:
    """Return the batches that a read_committed consumer shows, without the markers of transactions."""
    aborted = [Aborted(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
    seen = visible(
        batches, topic="", partition=answer.partition_index, first_offset=start, aborted=aborted, decisions=None
    )
    return b"".join(seen.pieces)


def _whole_batches(data: bytes, offset: int) -> tuple[bytes, int]:
    """Return the part of ``data`` without a cut batch at its end, and the offset after it."""
    position = 0
    while position + 61 <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        if position + 12 + length > len(data):
            break
        (last_offset_delta,) = struct.unpack_from(">i", data, position + 23)
        offset = base_offset + last_offset_delta + 1
        position += 12 + length
    if position == 0:
        raise RuntimeError(f"no whole batch at offset {offset}")
    return data[:position], offset
