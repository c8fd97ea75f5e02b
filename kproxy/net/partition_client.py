"""kproxy's own requests to the leader of one partition, over a connection of their own."""

from typing import TypeVar

from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.version_choice import VersionRange
from kproxy.config import Config
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.brokers.cluster import Cluster

M = TypeVar("M", bound=Message)


class NoLeader(OSError):
    """Metadata names no leader; ``error_code`` says why, 0 if it does not."""

    def __init__(self, topic: str, partition: int, error_code: int) -> None:
        """The partition and Kafka's error."""
        super().__init__(f"{topic}-{partition} has no leader (error {error_code})")
        self.error_code = error_code


class PartitionClient:
    """Keeps a connection to the leader; looks for the leader again when a request fails or ``moved`` is called.

    A connection of its own, because what waits for all replicas would hold up kproxy's other requests.
    """

    def __init__(self, cluster: Cluster, config: Config, topic: str, partition: int) -> None:
        """``cluster`` knows the leaders."""
        self._cluster = cluster
        self._config = config
        self._topic = topic
        self.partition = partition
        self._client: BrokerClient | None = None

    async def call(self, request: Message, answer: type[M], versions: VersionRange, *, extra_ms: int = 0) -> M:
        """The leader's answer at the newest of ``versions`` that it serves.

        NoLeader; OSError or RemoteProtocolError: the fate of the request is open.
        """
        client = self._client
        if client is None or client.closed:
            client = self._client = await self._connect()
        return await client.call(request, answer, versions, extra_ms=extra_ms)

    async def _connect(self) -> BrokerClient:
        broker, error = await self._cluster.leader(self._topic.encode(), self.partition, False)
        if broker is None or error not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
            raise NoLeader(self._topic, self.partition, error)
        return await BrokerClient.open(
            self._cluster.network,
            broker.address,
            self._config.upstream_connect_timeout_ms,
            self._config.upstream_request_timeout_ms,
        )

    def moved(self) -> None:
        """Drops the connection: the broker does not lead any more, or the proxy stops."""
        if self._client is not None:
            self._client.close()
            self._client = None
