"""Where a transactional id's data are sent: connections that outlive its transactions, and who leads a partition."""

from collections.abc import Collection
from typing import Final

import trio

from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config import Config
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.pipelined_client import PipelinedClient
from kproxy.proxy.routing import Address, Broker
from kproxy.proxy.stats import Stats

_METADATA: Final = (4, 12)
#: Leaders that are remembered for one transactional id.
_MOST_LEADERS: Final = 10_000


class WriterConnections:
    """One connection to each broker, for one ``TransactionWriter`` after the other; closed by whoever made it."""

    def __init__(self, cluster: Cluster, config: Config, stats: Stats, nursery: trio.Nursery) -> None:
        """All tasks of the connections and of their writers run in ``nursery``."""
        self.cluster = cluster
        self.config = config
        self.stats = stats
        self.nursery = nursery
        self._clients: dict[int, PipelinedClient] = {}
        self._connecting: dict[int, trio.Lock] = {}
        self._leaders: dict[TopicPartition, Broker] = {}
        self._closed = False

    def leader(self, place: TopicPartition) -> Broker | None:
        """Who leads a partition, as far as that was learnt."""
        return self._leaders.get(place)

    def forget(self, place: TopicPartition) -> None:
        """Has the leader learnt anew: it did not take a batch."""
        self._leaders.pop(place, None)

    async def learn(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Asks who leads these; Kafka's error code for each that nobody leads. OSError, RemoteProtocolError."""
        names = dict.fromkeys(name for name, _ in places)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        response = await self.cluster.ask_any(request, MetadataResponse, _METADATA)
        alive = [(row.node_id, Address(row.host, row.port)) for row in response.brokers]
        await self.cluster.learn(alive)
        nodes = {node_id for node_id, _ in alive}
        if len(self._leaders) + len(places) > _MOST_LEADERS:
            self._leaders.clear()
        errors: dict[TopicPartition, int] = dict.fromkeys(places, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for topic in response.topics:
            rows = {(topic.name or "", row.partition_index): row for row in topic.partitions}
            for place in [place for place in errors if place[0] == topic.name]:
                row = rows.get(place)
                if row is not None and row.leader_id in nodes:
                    self._leaders[place] = self.cluster.map.brokers[row.leader_id]
                    del errors[place]
                elif row is not None:
                    errors[place] = ErrorCode.LEADER_NOT_AVAILABLE
                elif topic.error_code:
                    errors[place] = topic.error_code
        return errors

    def client(self, broker: Broker) -> PipelinedClient | None:
        """The connection to a broker, if there is one."""
        known = self._clients.get(broker.node_id)
        return None if known is None or known.closed else known

    async def connect(self, broker: Broker) -> PipelinedClient:
        """The connection to a broker, made if there is none. OSError, RemoteProtocolError."""
        async with self._connecting.setdefault(broker.node_id, trio.Lock()):
            known = self.client(broker)
            if known is not None:
                return known
            if broker.node_id in self._clients:
                broker.versions = None  # the connection was lost: it may come back upgraded
            versions = await self.cluster.versions(broker)
            io = await self.cluster.network.connect(
                broker.address.host, broker.address.port, self.config.upstream_connect_timeout_ms
            )
            if self._closed:
                io.close()
                raise OSError("the proxy stops")
            made = self._clients[broker.node_id] = PipelinedClient(
                io, broker.address, versions, self.config.upstream_request_timeout_ms, self.nursery
            )
            return made

    def drop(self, client: PipelinedClient) -> None:
        """Closes a connection on which something hangs that nobody waits for."""
        client.close()
        for node_id in [node_id for node_id, known in self._clients.items() if known is client]:
            del self._clients[node_id]

    def close(self) -> None:
        """Closes all connections, and any that is being made."""
        self._closed = True
        for client in self._clients.values():
            client.close()
