"""The connections for a transactional id's data; they outlive its transactions."""

from typing import TYPE_CHECKING

import trio

from kproxy.config.transaction_options import TransactionOptions
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.pipelined_client import PipelinedClient
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.proxy.produce_stats import ProduceStats
from kproxy.proxy.routing import Broker
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.outside import PLAIN, WriteTerms

if TYPE_CHECKING:
    from kproxy.net.txn.writer import TransactionWriter


class WriterConnections:
    """One connection to each broker, for one ``TransactionWriter`` after another; closed by the caller that made it."""

    def __init__(
        self,
        cluster: Cluster,
        config: TransactionOptions,
        stats: ProduceStats,
        nursery: trio.Nursery,
        turn: EndOfTurn,
    ) -> None:
        """All tasks of the connections and of their writers run in ``nursery``; ``turn`` is the process's."""
        self.cluster = cluster
        self.config = config
        self.stats = stats
        self.nursery = nursery
        self.turn = turn
        self._clients: dict[int, PipelinedClient] = {}
        self._connecting: dict[int, trio.Lock] = {}
        self._closed = False

    def writer(self, producer: Producer, terms: WriteTerms = PLAIN) -> "TransactionWriter":
        """A writer of one transaction, which has the connections until the next one is made."""
        from kproxy.net.txn.writer import TransactionWriter  # not before a transaction is asked for

        return TransactionWriter(self, *producer, terms)

    def client(self, broker: Broker) -> PipelinedClient | None:
        """The connection to a broker, if there is one."""
        known = self._clients.get(broker.node_id)
        return None if known is None or known.closed else known

    async def connect(self, broker: Broker) -> PipelinedClient:
        """The connection to a broker, made if there is none. OSError, RemoteProtocolError."""
        known = self.client(broker)
        if known is not None:
            return known
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
                io,
                broker.address,
                versions,
                self.config.upstream_request_timeout_ms,
                self.nursery,
                self.turn,
                self.cluster.room,
            )
            return made

    def drop(self, client: PipelinedClient) -> None:
        """Closes a connection on which something hangs that nobody waits for."""
        client.close()
        for node_id in [node_id for node_id, known in self._clients.items() if known is client]:
            del self._clients[node_id]

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return bool(self._clients)

    def rest(self) -> None:
        """Closes the connections on which nothing is in flight. The next request opens another one."""
        for node_id, client in list(self._clients.items()):
            if client.closed or client.is_idle:
                client.close()
                del self._clients[node_id]
                lock = self._connecting.get(node_id)
                if lock is not None and not lock.locked():
                    del self._connecting[node_id]

    def close(self) -> None:
        """Closes all connections, and any that is being made."""
        self._closed = True
        for client in self._clients.values():
            client.close()
