"""Connections to the leaders of a topic of kproxy's own, for requests that wait for all replicas."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.config import Config
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.pool import Pool
from kproxy.net.partition_client import NoLeader
from kproxy.proxy.routing import Address

#: To one broker at a time; more requests wait for a connection.
_MOST: Final = 8


class LogConnections:
    """Each carries one request at a time: a broker takes the next one only when it has answered the last.

    So that many requests can be under way, there are several to a broker; they are kept for the next requests.
    """

    def __init__(self, cluster: Cluster, config: Config, topic: str) -> None:
        """``cluster`` knows the leaders of ``topic``."""
        self._cluster = cluster
        self._topic = topic
        self._leaders: dict[int, Address] = {}
        self._connections = Pool(cluster.network, config, _MOST)

    @asynccontextmanager
    async def to_leader(self, partition: int) -> AsyncIterator[BrokerClient]:
        """A connection to the leader, for one request.

        NoLeader, OSError, RemoteProtocolError if there is none; where one of these leaves the block, the leader is
        looked for anew the next time.
        """
        try:
            address = self._leaders.get(partition) or await self._find(partition)
            async with self._connections.to(address) as client:
                yield client
        except (OSError, RemoteProtocolError):
            self.moved(partition)
            raise

    def moved(self, partition: int) -> None:
        """The leader has to be looked for anew."""
        self._leaders.pop(partition, None)

    async def _find(self, partition: int) -> Address:
        broker, error = await self._cluster.leader(self._topic.encode(), partition, False)
        if broker is None or error not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
            raise NoLeader(self._topic, partition, error)
        self._leaders[partition] = broker.address
        return broker.address

    def close(self) -> None:
        """Closes the connections that are idle, and each other one when its request is over."""
        self._connections.close()
