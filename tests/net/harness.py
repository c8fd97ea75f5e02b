"""kproxy's shell in front of a fake cluster, in one process over loopback sockets, and a client for frames."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import trio

from kproxy.budget import unbounded
from kproxy.codec._generated.fetch import FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import Record, build_batch, iter_records
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import Message, response_class
from kproxy.config import Address, Config
from kproxy.net.broker_sasl.sasl_networks import open_networks
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.server import Server
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.resources import open_authorization, open_logins, open_quotas
from kproxy.testing.fake_broker import ClusterConfig, FakeCluster, FakeServer, SaslRules, open_fake_cluster
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from kproxy.net.txn.service import Transactions

PATIENCE = PATIENCE_S

#: Makes what decides transactions for a server.
CoordinatorMaker: TypeAlias = Callable[[Cluster, Config, Stats, trio.Nursery], "Transactions"]

_LOOK_S = 0.005
_LATE = 0.1


async def eventually(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until something is so; trio.TooSlowError if it does not become so.

    The longer it waits, the more seldom it looks: each look takes an idle clock the same time, however far it moves.
    """
    began = trio.current_time()
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - counters have no event to wait for
            await trio.sleep(max(_LOOK_S, (trio.current_time() - began) * _LATE))


class FrameClient:
    """A client that sends requests of any version and takes the responses in order."""

    def __init__(self, stream: trio.abc.Stream, client_id: str | None, patience: float = PATIENCE) -> None:
        """``patience``: seconds that a response may take, or the end of the connection."""
        self.stream = stream
        self.client_id = client_id
        self._patience = patience
        self._buffer = b""
        self._correlation_id = 0
        self._sent: list[tuple[int, int, int]] = []

    async def send(self, message: Message, version: int) -> None:
        """Send a request; its response is taken by ``receive``."""
        await self.stream.send_all(self.encode(message, version))

    def encode(self, message: Message, version: int, *, silent: bool = False) -> bytes:
        """The frame of a request that will be sent; ``silent``: it has no response."""
        self._correlation_id += 1
        if not silent:
            self._sent.append((message.API_KEY, version, self._correlation_id))
        return encode_request(message, version, self._correlation_id, self.client_id)

    async def receive(self) -> Any:
        """The response to the oldest request that has none yet."""
        api_key, version, correlation_id = self._sent.pop(0)
        frame = await self.frame()
        assert int.from_bytes(frame[:4], "big") == correlation_id
        return response_class(api_key).decode(
            frame, version, unbounded(), response_header_size(api_key, version, frame)
        )

    async def call(self, message: Message, version: int) -> Any:
        """The response to a request."""
        await self.send(message, version)
        return await self.receive()

    async def frame(self) -> bytes:
        """The next frame without its length; EOFError at the end."""
        with trio.fail_after(self._patience):
            size = int.from_bytes(await self._exactly(4), "big")
            return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = await self.stream.receive_some(1 << 18)
            if not data:
                raise EOFError
            self._buffer += data
        part, self._buffer = self._buffer[:size], self._buffer[size:]
        return part

    async def ended(self) -> bool:
        """Whether the proxy ends the connection; trio.TooSlowError if it does not."""
        try:
            with trio.fail_after(self._patience):
                while await self.stream.receive_some(1 << 18):
                    pass
        except trio.BrokenResourceError:
            pass
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self.stream)


@dataclass
class Proxied:
    """A running proxy and, if it has one, its fake cluster."""

    config: Config
    stats: Stats
    cluster: Cluster
    server: Server
    port: int
    transactions: Any = None
    fake: FakeServer = field(default=None)  # type: ignore[assignment]  # set by ``proxied``

    @property
    def brokers(self) -> FakeCluster:
        """The state of the fake cluster."""
        return self.fake.cluster

    async def client(self, broker_id: int | None = None, *, client_id: str | None = "test") -> FrameClient:
        """A connection to the port to bootstrap from, or to that of a broker."""
        port = self.port if broker_id is None else self.cluster.map.brokers[broker_id].port
        assert port is not None
        return FrameClient(await trio.open_tcp_stream("127.0.0.1", port), client_id)

    async def at_rest(self) -> None:
        """Wait until no connection is left, and nothing of one; trio.TooSlowError if something is."""

        def nothing_left() -> bool:
            stats = self.stats
            return not (
                stats.clients.connections_open
                or stats.produce.sends_in_flight
                or stats.clients.buffered_bytes
                or stats.upstream.connections_open
                or stats.produce.producer_ids_active
            )

        try:
            await eventually(nothing_left)
        except trio.TooSlowError:
            raise AssertionError(f"something is left: {self.stats}") from None


@asynccontextmanager
async def running(
    bootstrap: str, coordinator: CoordinatorMaker | None = None, **options: Any
) -> AsyncIterator[Proxied]:
    """The shell, without signals and HTTP, until the block ends; with ``coordinator`` it decides transactions."""
    places = [place.rpartition(":") for place in bootstrap.split(",")]
    given: dict[str, Any] = {
        "listen": Address("127.0.0.1", 0),
        "http": None,
        "retry_backoff_ms": 5,
        "retry_backoff_max_ms": 20,
        "delivery_timeout_ms": 5000,
        "crash_recovery_enable": False,
        **options,
    }
    config = Config(bootstrap_servers=tuple(Address(host, int(port)) for host, _, port in places), **given)
    stats = Stats()
    networks, known = open_networks(config, stats), ClusterMap(host_pattern=config.broker_host_pattern)
    cluster = Cluster(config, stats.upstream, known, networks.own, networks)
    async with trio.open_nursery() as nursery:
        transactions = None if coordinator is None else coordinator(cluster, config, stats, nursery)
        authorization, quotas = open_authorization(config, stats.refused), open_quotas(config, stats.refused)
        server = Server(config, stats, cluster, nursery, transactions, authorization, quotas, open_logins(config))
        cluster.open_port = server.open_broker_port
        nursery.start_soon(server.watch)
        nursery.start_soon(cluster.run)
        nursery.start_soon(networks.run)
        if transactions is not None:
            await nursery.start(transactions.run)
        address = await server.listen()
        try:
            yield Proxied(config, stats, cluster, server, address.port, transactions)
        finally:
            with trio.move_on_after(1, shield=True):
                await server.drain()
            nursery.cancel_scope.cancel()
            cluster.close()


@asynccontextmanager
async def proxied(
    brokers: int = 1, coordinator: CoordinatorMaker | None = None, sasl: SaslRules | None = None, **options: Any
) -> AsyncIterator[Proxied]:
    """The shell in front of a fake cluster. At the end nothing may be left of the connections."""
    made = open_fake_cluster(brokers, config=ClusterConfig(sasl=sasl))
    async with made as fake, running(fake.bootstrap, coordinator, **options) as proxy:
        proxy.fake = fake
        await eventually(lambda: proxy.stats.upstream.ready)
        yield proxy
        await proxy.at_rest()


def records(*values: bytes) -> list[Record]:
    """Records with these values."""
    return [Record(offset, int(time.time() * 1000), None, value, ()) for offset, value in enumerate(values)]


def produce(topic: str, *values: bytes, acks: int = -1, partition: int = 0, timeout_ms: int = 60_000) -> ProduceRequest:
    """A request with one batch."""
    part = ProduceRequestPartitionProduceData(index=partition, records=bytes(build_batch(records(*values))))
    data = ProduceRequestTopicProduceData(name=topic, partition_data=[part])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def fetch(topic: str, offset: int = 0, *, max_bytes: int = 1 << 20, max_wait_ms: int = 0, **more: Any) -> FetchRequest:
    """A request for one partition."""
    part = FetchRequestFetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    data = FetchRequestFetchTopic(topic=topic, partitions=[part])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, topics=[data], **more)


def metadata(*topics: str) -> MetadataRequest:
    """A request for topics."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])


def records_in(fake: FakeCluster, topic: str, partition: int = 0) -> list[Record]:
    """What the broker's log holds, in order."""
    log = fake.topics[topic].partitions[partition].log
    data = log.read(log.start_offset, 1 << 30, whole_first_batch=True)
    return list(iter_records(data, max_decompressed_bytes=1 << 24))


def values_in(fake: FakeCluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values that the broker's log holds, in order."""
    return [record.value for record in records_in(fake, topic, partition)]


def errors_of(response: Any) -> list[int]:
    """The error code of each partition in a Produce response."""
    return [row.error_code for topic in response.responses for row in topic.partition_responses]
