"""The cluster that kproxy serves: another one that comes up at a broker's address is refused.

A broker's address outlives its cluster: another Kafka may be started there while the broker is down. In that cluster
nothing is true of what kproxy remembers (producer ids, unconfirmed batches, transactions), and clients would lose the
records that they believe to be in the first one. So kproxy serves the cluster that it reached first until it is
restarted.
"""

from collections.abc import Callable
from typing import Final

import structlog

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.version_choice import NoCommonVersion
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.proxy.routing import Address

log = structlog.get_logger("kproxy.cluster")

#: Metadata says the cluster's id from version 2 on (KIP-78).
_VERSIONS: Final = (2, 12)


class AnotherCluster(RemoteProtocolError):
    """A broker belongs to another cluster than the one that this process serves."""


class ClusterIdentity:
    """The id of the cluster that was reached first."""

    def __init__(self, count_error: Callable[[str], None]) -> None:
        """``count_error`` counts a fault towards the brokers, by kind."""
        self._count_error = count_error
        #: None until a broker has said it; brokers before Kafka 0.10.1 say none.
        self.cluster_id: str | None = None
        self._refused: set[str] = set()

    def check(self, cluster_id: str | None, address: Address | None = None) -> None:
        """Takes what a broker said. AnotherCluster if that is not the cluster that was reached first."""
        if cluster_id is None or cluster_id == self.cluster_id:
            return
        if self.cluster_id is None:
            self.cluster_id = cluster_id
            return
        self._count_error("another_cluster")
        where = str(address) if address is not None else "a broker"
        if cluster_id not in self._refused:
            self._refused = {cluster_id}
            log.error(
                "a broker belongs to another cluster and is not used",
                broker=where,
                cluster_id=cluster_id,
                served=self.cluster_id,
                advice="correct bootstrap.servers; to serve the other cluster restart kproxy",
            )
        raise AnotherCluster(f"{where} belongs to cluster {cluster_id}, not to {self.cluster_id}, which kproxy serves")

    async def verify(self, client: BrokerClient, address: Address) -> None:
        """Asks a broker over a new connection. AnotherCluster, OSError, other RemoteProtocolErrors."""
        try:
            response = await client.call(MetadataRequest(topics=[]), MetadataResponse, _VERSIONS)
        except NoCommonVersion:
            return
        self.check(response.cluster_id, address)
