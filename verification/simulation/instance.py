"""A kproxy in the simulation: its shell on a virtual host, which can be killed and comes back under its name."""

from typing import Any, Final

import trio

from kproxy.config import Address, Config
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.server import Server
from kproxy.net.txn.service import Transactions
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from verification.simulation.history import History
from verification.simulation.invariants import AWAKE
from verification.simulation.network import Host, VirtualNetwork
from verification.simulation.plan import RENEWING
from verification.simulation.sleepers import Sleepers

PORT: Final = 9092
LEG: Final = "client"
_BROKER_PORTS: Final = range(9093, 9113)
#: Times that are short beside a client's, so that much happens within few virtual seconds.
_OPTIONS: Final[dict[str, Any]] = {
    "http": None,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 400,
    "upstream_connect_timeout_ms": 1000,
    "upstream_request_timeout_ms": 2000,
    "delivery_timeout_ms": 60_000,
    "clients_request_timeout_ms": 6000,
    "clients_new_timestamps": (f"{RENEWING}*",),
    "buffer_memory": 1 << 20,
}


class Instance:
    """One kproxy, from one start to the next."""

    def __init__(
        self,
        name: str,
        network: VirtualNetwork,
        bootstrap: str,
        history: History,
        options: dict[str, Any],
        *,
        decides: bool = False,
    ) -> None:
        """``bootstrap`` as in the configuration; ``options`` beside those of all runs; ``decides`` transactions."""
        self.name = name
        self.stats = Stats()
        #: Of all its runs.
        self.all_stats = [self.stats]
        self.buffer_memory = 0
        self.most_buffered = 0
        self._network = network
        self._history = history
        places = [place.rpartition(":") for place in bootstrap.split(",")]
        self._config = Config(
            bootstrap_servers=tuple(Address(host, int(port)) for host, _, port in places),
            listen=Address(name, PORT),
            broker_ports=_BROKER_PORTS,
            instance_id=name,
            **{**_OPTIONS, **options},
        )
        self._host: Host | None = None
        self._scope = trio.CancelScope()
        self._decides = decides
        #: Ends with it.
        self.nursery: trio.Nursery | None = None
        #: The coordinator of transactions, while it runs.
        self.transactions: Transactions | None = None
        #: Of the last run.
        self.server: Server | None = None

    @property
    def up(self) -> bool:
        """Whether it runs."""
        return self._host is not None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs until it is killed. ``started`` when it listens."""
        self._host = host = Host(self._network, self.name, LEG)
        self.stats = Stats()
        self.all_stats.append(self.stats)
        self.buffer_memory = self._config.buffer_memory
        cluster = Cluster(self._config, self.stats.upstream, ClusterMap(), host)
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                transactions = Transactions(cluster, self._config, self.stats, nursery) if self._decides else None
                self.nursery, self.transactions = nursery, transactions
                self.server = server = Server(self._config, self.stats, cluster, nursery, transactions)
                Sleepers(server.keeper, nursery, self._slept_through)
                cluster.open_port = server.open_broker_port
                nursery.start_soon(server.watch)
                await nursery.start(cluster.run)
                if transactions is not None:
                    nursery.start_soon(transactions.run)
                await server.listen()
                task_status.started()
        cluster.close()

    def _slept_through(self) -> None:
        self._history.breaks(AWAKE, f"{self.name} had a request wait until it was asked again")

    def kill(self) -> None:
        """``kill -9``."""
        if self._host is None:
            return
        self._history.note(f"{self.name} is killed")
        self._host.kill()
        self._host = None
        self._scope.cancel()

    @property
    def leftovers(self) -> str:
        """The things that are left when all clients have gone; empty if none are."""
        stats = self.stats
        counts = {
            "connections_open": stats.clients.connections_open,
            "sends_in_flight": stats.produce.sends_in_flight,
            "buffered_bytes": stats.clients.buffered_bytes,
            "upstream_connections_open": stats.upstream.connections_open,
            "producer_ids_active": stats.produce.producer_ids_active,
        }
        return ", ".join(f"{name}={value}" for name, value in counts.items() if value)
