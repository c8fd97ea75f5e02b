"""Listeners: one port to bootstrap from, one for each broker; and the limits on connections."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import structlog
import trio

from kproxy.config import Config, cannot_listen
from kproxy.config.os_limits import clients_for_files
from kproxy.config.values import READ_COMMITTED
from kproxy.dedup.identity import normal_host
from kproxy.dedup.kept.clients import KeptClients
from kproxy.dedup.losses import KnownEnds
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log import BrokerLog
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.budget import Budget, Unfinished
from kproxy.net.connection import Connection
from kproxy.net.draining import Draining
from kproxy.net.heap_keeper import HeapKeeper
from kproxy.net.kept_repairs import KeptRepairs
from kproxy.net.lane_leases import Lanes
from kproxy.net.lane_log import LaneLog
from kproxy.net.log_limit import LogLimit
from kproxy.net.loss_log import LossLog
from kproxy.net.network import ByteIO, FilesShort, NetworkListener
from kproxy.net.retry_ledger_keeper import RetryLedgerKeeper
from kproxy.net.shared import READ_BYTES, Shared
from kproxy.net.succession import Succession
from kproxy.proxy.context import Client, Context, Policy, Services
from kproxy.proxy.last_faults import LastFaults
from kproxy.proxy.permits import Permits, is_listed
from kproxy.proxy.routing import Address, Broker, ClusterMap, preferred_ports
from kproxy.proxy.senders import sender_of
from kproxy.proxy.session import Session
from kproxy.proxy.slots import RESPONSE_ELEMENT_BYTES
from kproxy.proxy.stats import Stats
from kproxy.proxy.traces import Traces
from kproxy.txn.last_stable import LastStable

if TYPE_CHECKING:
    from kproxy.net.authorization import Authorization
    from kproxy.net.client_login.login_worker import LoginWorker
    from kproxy.net.quotas import QuotaKeeper
    from kproxy.net.txn.service import Transactions
    from kproxy.proxy.authorization.access import Access

log = structlog.get_logger("kproxy.server")

_BACKLOG = 1024
#: How often connections are checked for what has lasted too long.
_WATCH_SECONDS = 1.0
#: And how often, between these looks, for requests that must be answered before their clients' time-outs.
_OPEN_CHECKS = 4
#: What a connection takes beside its requests, about: its task, its session and, with TLS, OpenSSL's state.
_CONNECTION_BYTES = 32_768
#: Where others wait for memory, connections that hold this part of it in unfinished requests are ended at a time.
_EVICTED_PART = 4
#: The system gives no connection: wait so long before accepting again.
_ACCEPT_PAUSE_SECONDS = 0.1
#: A look that comes so much too late shows that this process stood still.
_STALL_SECONDS = 0.5


class Server:
    """Accepts clients and runs their connections in the nursery it is given."""

    def __init__(
        self,
        config: Config,
        stats: Stats,
        cluster: Cluster,
        nursery: trio.Nursery,
        transactions: "Transactions | None" = None,
        authorization: "Authorization | None" = None,
        quotas: "QuotaKeeper | None" = None,
        logins: "LoginWorker | None" = None,
        succession: Succession | None = None,
        traces: Traces | None = None,
    ) -> None:
        """``nursery`` owns the listeners and the connections. ``transactions``: None if kproxy decides none.

        ``authorization``: None if all is allowed. ``quotas``: None if nothing is limited. ``logins``: None if clients
        do not log in at kproxy. ``succession``: the process that this one replaces, if any. ``traces``: None if
        requests are not traced.
        """
        self._traces = traces
        self.authorization = authorization
        self.quotas = quotas
        self._succession = succession or Succession()
        self._config = config
        self._stats = stats
        self._cluster = cluster
        self._nursery = nursery
        lane_log = transactions.lane_log if transactions is not None else None
        lane_log = lane_log or LaneLog(cluster, config, replaces=self._succession.replaces)
        self.lanes = Lanes(cluster, config, stats, lane_log)
        broker_log = BrokerLog(cluster, config, stats.retries)
        self.keeper = RetryLedgerKeeper(config, stats.retries, self.lanes, broker_log, nursery)
        self._kept = KeptClients(config.idempotent_clients, may_move=config.fleet_retries_enable)
        # the limit holds for what the process grows by, so an eighth is left to what the interpreter needs beside
        eighth = config.buffer_memory // 8
        self._budget = Budget(6 * eighth, reserve=eighth)
        self._unfinished = Unfinished(6 * eighth, eighth, self._budget)
        stats.clients.connections_limit = min(config.max_connections, clients_for_files())
        stats.clients.buffered_bytes_limit = 6 * eighth
        self._heap = HeapKeeper()
        #: For the memory of unconfirmed batches, which expire together where a balancer or a broker failed.
        self._unconfirmed_heap = HeapKeeper()
        self._listeners: list[NetworkListener] = []
        #: Where clients bootstrap, once it listens.
        self.address = config.listen
        #: Set once the port to bootstrap from is known.
        self._bound = trio.Event()
        self._connections: set[Connection] = set()
        self.last_faults = LastFaults()
        #: How all of it ends.
        self.draining = Draining(self._connections, transactions)
        self._serial = count(1)
        self._by_sender: Counter[str] = Counter()
        self._introductions = LogLimit()
        self._logins = logins
        self._wall = cluster.network.wall() - trio.current_time()
        ends = KnownEnds(LossLog(stats.kept, cluster.map.topic_names).report, cut=self.keeper.cut)
        self._shared = Shared(
            cluster,
            stats,
            self.lanes,
            self.keeper,
            self._budget,
            self._unfinished,
            self._wall,
            memoryview(bytearray(READ_BYTES)),
            transactions,
            transactions.reading if transactions is not None else None,
            logins,
            KeptRepairs(cluster, config, broker_log, stats.kept, ends.lost),
        )
        self._services = _services(cluster.map, transactions, self._kept, ends)
        self._policy = _policy(config, decides=transactions is not None, logs_in=logins is not None)

    def reconfigure(self, config: Config) -> None:
        """Use this configuration from now on; what a connection took over at its beginning stays as it was."""
        self._config = config
        self._policy = _policy(config, decides=self._shared.transactions is not None, logs_in=self._logins is not None)
        for connection in self._connections:
            connection.config = config

    @property
    def connections(self) -> Collection[Connection]:
        """The clients' connections."""
        return self._connections

    async def listen(self) -> Address:
        """Opens the port to bootstrap from. StartupError (CANNOT_BIND) if it is unavailable."""
        host, port = self._config.listen
        try:
            listeners = await self._cluster.network.listen(host, port, _BACKLOG)
        except OSError as error:
            raise cannot_listen("listen", self._config.listen, error) from None
        self._nursery.start_soon(self._run_lanes)
        if self.authorization is not None:
            self._nursery.start_soon(self.authorization.file.watch)
        if self.quotas is not None:
            self._nursery.start_soon(self.quotas.file.watch)
        self._serve(listeners, None)
        self.address = Address(host, listeners[0].port)
        self._stats.upstream.listening = True
        self._bound.set()
        return self.address

    async def _run_lanes(self) -> None:
        await self._succession.departed()
        self._nursery.start_soon(self._claim)
        await self.lanes.run()

    async def _claim(self) -> None:
        await self.lanes.log.opened.wait()
        self._succession.named()
        self._kept.learns(self.lanes.log.topic_id)

    async def watch(self) -> None:
        """Ends what has lasted too long, for ever."""
        try:
            while True:
                config = self._config
                shortest = min(config.frame_timeout_ms, config.connections_max_idle_ms, config.ssl_handshake_timeout_ms)
                pause = min(_WATCH_SECONDS, shortest / 4000)
                checks = _OPEN_CHECKS if self._connections else 1
                for _ in range(checks):
                    due = trio.current_time() + pause / checks
                    await trio.sleep_until(due)
                    delay = trio.current_time() - due
                    self._stats.process.loop_delays.observe(delay)
                    if delay > _STALL_SECONDS:
                        self.lanes.fleet.stalled(delay + pause / checks)
                    self._check_open(trio.current_time())
                    self._evict(trio.current_time())
                    self._heap.note(self._held_bytes())
                now = trio.current_time()
                for connection in list(self._connections):
                    connection.check(now)
                self.keeper.sweep(now + self._wall)
                self._heap.look(self._held_bytes(), now)
                self._unconfirmed_heap.look(self.keeper.size, now)
        finally:
            self.keeper.broker_log.close()

    def _check_open(self, now: float) -> None:
        oldest: float | None = None
        for connection in self._connections:
            connection.look_while_busy()
            connection.look_between(now)
            producer = connection.session.producer
            if producer.is_open:
                connection.check_open(now)
                since = producer.oldest
                oldest = since if oldest is None or (since is not None and since < oldest) else oldest
        self._stats.produce.oldest_unacknowledged = oldest

    def _held_bytes(self) -> int:
        """The memory that clients take now; the most that their requests took since this was last asked is noted."""
        own = len(self._connections) * _CONNECTION_BYTES
        self._heap.note(self._budget.peak + own)
        self._budget.peak = self._budget.used
        return self._budget.used + own

    def _evict(self, now: float) -> None:
        """Ends connections whose unfinished requests keep others waiting: of the sender that holds most, the oldest."""
        if not self._budget.crowded:
            return
        found = [(age, one) for one in self._connections if (age := one.crowds_out(now)) is not None]
        found.sort(key=lambda row: (-self._unfinished.used(row[1].sender), -row[0]))
        wanted = self._budget.used // _EVICTED_PART
        for _, connection in found:
            wanted -= connection.evict()
            if wanted <= 0:
                break

    async def open_broker_port(self, broker: Broker) -> None:
        """Opens a port for a broker; logs what to do if none of the range is free. With one port for all that one."""
        if self._cluster.map.host_pattern is not None:
            await self._bound.wait()
            broker.port = self._listeners[0].port
            return
        ports = self._config.broker_port_range
        preferred = preferred_ports(ports[0], ports[-1], broker.node_id) if ports else [0]
        former = dict(self._succession.ports)
        own = former.pop(broker.node_id, None)
        wanted = preferred if own is None else [own, *preferred]
        taken = {other.port for other in self._cluster.map.brokers.values()}.union(former.values())
        for port in wanted:
            if port and port in taken:
                continue
            try:
                listeners = await self._cluster.network.listen(self._config.listen.host, port, _BACKLOG)
            except OSError:
                continue
            broker.port = listeners[0].port
            self._serve(listeners, broker)
            log.debug("port opened", broker=broker.node_id, port=broker.port, upstream=str(broker.address))
            return
        log.error(
            "no free port for a broker: clients can't reach it; widen broker.ports",
            broker=broker.node_id,
            broker_ports=f"{ports[0]}-{ports[-1]}" if ports else "any",
        )

    def _serve(self, listeners: Sequence[NetworkListener], broker: Broker | None) -> None:
        """``broker``: whose port it is; None: the port to bootstrap from."""
        self._listeners += listeners
        for listener in listeners:
            self._nursery.start_soon(self._accept, listener, broker)

    def _meant(self, io: ByteIO, broker: Broker | None) -> Broker | None:
        """The broker that a connection is for, whatever it asks; any if it came to bootstrap."""
        if broker is not None:
            return broker
        node_id = self._cluster.map.meant(io.server_name)
        return self._cluster.any_broker() if node_id is None else self._cluster.map.brokers.get(node_id)

    async def _accept(self, listener: NetworkListener, broker: Broker | None) -> None:
        await self._succession.may_accept()
        while True:
            try:
                io = await listener.accept()
            except trio.ClosedResourceError:
                return
            except FilesShort:
                self._refuse("files")
                continue
            except OSError as error:
                self._refuse("accept")
                log.warning("cannot accept a connection", error=str(error))
                await trio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            if (reason := self._full()) is not None:
                self._refuse(reason)
                io.close()
                continue
            # Counted here: the next one may be accepted before this one's task runs for the first time.
            name = "bootstrap" if broker is None else str(broker.node_id)
            self._stats.clients.connected(name)
            self._nursery.start_soon(self._run, io, broker, name)

    def _full(self) -> str | None:
        """The reason to take no further client; None: there is room. Each may need a descriptor for its broker, too."""
        clients = self._stats.clients
        clients.connections_limit = min(self._config.max_connections, clients_for_files())
        if clients.connections_open < clients.connections_limit:
            return None
        return "max_connections" if clients.connections_limit == self._config.max_connections else "files"

    def _refuse(self, reason: str) -> None:
        refused = self._stats.clients.connections_refused
        refused[reason] = refused.get(reason, 0) + 1

    async def _run(self, io: ByteIO, broker: Broker | None, listener: str) -> None:
        """``listener``: where it is counted, from before this task on."""
        try:
            if await self._introduced(io):
                await self._serve_client(io, broker)
        finally:
            self._stats.clients.connections[listener] -= 1

    async def _introduced(self, io: ByteIO) -> bool:
        """Whether it is known who the client is; if not, its connection is closed."""
        known = False
        try:
            with trio.fail_after(self._config.frame_timeout_ms / 1000):
                await io.introduced()
            known = True
        except OSError:
            log.debug("a connection ended before its first byte", peer=io.peer)
        except (RemoteProtocolError, trio.TooSlowError) as error:
            self._refuse("proxy_protocol")
            if self._introductions.take() > 0:
                reason = str(error) or "no PROXY protocol header within frame.timeout.ms"
                log.warning("a load balancer did not name its client", peer=io.peer, reason=reason)
        finally:
            if not known:
                io.close()
        return known

    async def _serve_client(self, io: ByteIO, broker: Broker | None) -> None:
        sender = sender_of(io.peer_host)
        if self._by_sender[sender] >= self._config.max_connections_per_ip:
            self._refuse("max_connections_per_ip")
            io.close()
            return
        self._by_sender[sender] += 1
        try:
            connection = self._connection(io, partial(self._meant, io, broker))
            self._connections.add(connection)
            try:
                await connection.run()
            finally:
                self._connections.discard(connection)
                session = connection.session
                self.last_faults.note(session.client.client_id, io.peer_host, session.fault)
        except OSError:
            io.close()  # it was gone before it was set up
        except Exception:
            # one connection's fault, even if it is a bug of ours, is not the others'
            log.exception("connection failed; this is a bug of kproxy, please report it")
        finally:
            self._by_sender[sender] -= 1
            if not self._by_sender[sender]:
                del self._by_sender[sender]

    def _connection(self, io: ByteIO, choose: Callable[[], Broker | None]) -> Connection:
        return Connection(io, self._session(io), self._shared, self._config, choose)

    def _session(self, io: ByteIO) -> Session:
        host = normal_host(io.peer_host)
        is_admin = is_listed(host, self._config.transaction_admin_hosts)
        context = Context(
            self._services,
            self._policy,
            Client(next(self._serial), host, io.local_host),
            Permits(self._config.transactional_id_clients, is_admin),
            access=self._access(io.peer_host),
            meter=None if self.quotas is None else self.quotas.meter(),
            logged_in=not self._config.clients_log_in,
        )
        return Session(context, self._stats, None if self._logins is None else self._logins.policy, self._traces)

    def _access(self, host: str) -> "Access | None":
        """The access that a connection from a host has; None: to all."""
        if self.authorization is None:
            return None
        return self.authorization.access(host, self._cluster.map.topic_names)

    def stop_accepting(self) -> None:
        """Takes no new clients."""
        self._stats.upstream.listening = False
        for listener in self._listeners:
            listener.close()

    async def drain(self) -> None:
        """Takes no new clients and no new requests; returns when all that were taken are answered and decided."""
        self.stop_accepting()
        await self.draining.run()
        self.keeper.list_again()  # all outcomes are known: the next kproxy compares what is in doubt now, no more
        await self.lanes.log.written()


def _policy(config: Config, *, decides: bool, logs_in: bool) -> Policy:
    """``decides``: whether there is a coordinator of kproxy's own; ``logs_in``: whether clients log in at kproxy."""
    return Policy(
        max_in_flight=config.max_in_flight_per_partition,
        max_batch_bytes=config.max_message_bytes,
        max_decompressed_bytes=config.decompression_max_bytes,
        held_bytes=config.connection_buffer_bytes,
        idempotence=config.idempotence_enable,
        by_address=config.identity_by == "address",
        fetch_max_bytes=config.fetch_max_bytes,
        transcode=config.transcode,
        max_request_elements=config.request_max_elements,
        max_response_elements=config.buffer_memory // RESPONSE_ELEMENT_BYTES,
        passes_sasl=config.clients_log_in or not config.logs_in,
        logs_in_here=logs_in,
        legacy_committed=config.legacy_isolation_level == READ_COMMITTED,
        committed_for=config.committed_for,
        homes=config.transactions_home if decides else None,
    )


def _services(cluster: ClusterMap, transactions: "Transactions | None", kept: KeptClients, ends: KnownEnds) -> Services:
    if transactions is None:
        return Services(cluster, kept=kept, ends=ends)
    reading = transactions.reading
    implicit = transactions.implicit_transactions
    return Services(
        cluster,
        decisions=reading.decisions if reading is not None else None,
        stable=LastStable() if reading is None else reading.last_stable,
        follows_groups=reading is not None and reading.groups is not None,
        views=transactions.views,
        implicit_transactions=implicit,
        applications=implicit if implicit.watches else None,
        memberships=transactions.memberships,
        kept=kept,
        ends=ends,
    )
