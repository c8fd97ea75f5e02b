"""kproxy's own view of the cluster: its brokers and their versions, leaders and coordinators."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import structlog
import trio

from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.version_choice import ANY, VersionRange
from kproxy.config import show
from kproxy.config.broker_options import BrokerOptions
from kproxy.dedup.producer_ids import is_reserved_producer_id
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.broker_client import BrokerClient, M, as_it_is
from kproxy.net.brokers.cluster_identity import ClusterIdentity
from kproxy.net.brokers.contacts import Contacts
from kproxy.net.brokers.coordinators import Coordinators
from kproxy.net.brokers.metadata import Metadata
from kproxy.net.brokers.pool import Pool
from kproxy.net.brokers.response_room import ResponseRoom
from kproxy.net.network import ByteIO, ClientNetworks, Network
from kproxy.proxy.facts import outage_text, utc
from kproxy.proxy.routing import Address, Broker, ClusterMap
from kproxy.proxy.upstream_stats import Outage, UpstreamStats
from kproxy.txn.ids import turn_of

log = structlog.get_logger("kproxy.cluster")

#: The newest Metadata that kproxy asks at: topics by name or id; older brokers are asked at what they have.
_METADATA = 12
#: A producer id without a transactional id has no transactions to time out; brokers want a figure all the same.
_UNUSED_TIMEOUT_MS = 60_000
#: A broker without a block of producer ids asks its controller for one, and has none to give meanwhile.
_PRODUCER_ID_TRIES = 30
#: The list of brokers is refreshed earlier by up to this part of its time, by the instance.
_SPREAD: Final = 0.2
#: Connections of kproxy's own to one broker.
_MOST_CONNECTIONS: Final = 4
#: A broker that owes a response is asked for its versions over a new connection, which every broker answers at once:
#: within so long, and then not again for so long.
PROBE_SECONDS: Final = 4.0
_PROBE_AGAIN_SECONDS: Final = 15.0
_LOOK_FOR_SUSPECTS_SECONDS: Final = 1.0
#: A broker that has ended kproxy's connection, or did not answer, is asked again after so long.
LOOK_SECONDS: Final = 2.0


class Cluster:
    """The one place that asks brokers on kproxy's own account."""

    def __init__(
        self,
        config: BrokerOptions,
        stats: UpstreamStats,
        cluster_map: ClusterMap,
        network: Network,
        clients: ClientNetworks | None = None,
        room: ResponseRoom | None = None,
    ) -> None:
        """``cluster_map`` is shared with the sessions, which only read it.

        ``clients``: the networks for what clients ask for; None: ``network``. ``room``: for the responses to all of
        kproxy's own requests; None: as with the default options.
        """
        #: For the responses to kproxy's own requests, over whichever connections.
        self.room = room or ResponseRoom()
        self._config = config
        self._stats = stats
        self.map = cluster_map
        self.network = network
        self._networks = clients
        #: Which brokers answer kproxy's own requests.
        self.contacts = Contacts(network.wall, self.refresh_soon)
        #: For what is answered soon.
        self.identity = ClusterIdentity(self.count_error)
        self.pool = self.new_pool(most=_MOST_CONNECTIONS)
        self.metadata = Metadata(self)
        self.coordinators = Coordinators(self)
        self._turn = 0
        #: Opens a port for a broker that is new; set by the server.
        self.open_port: Callable[[Broker], Awaitable[None]] | None = None
        self._learning = trio.Lock()
        #: Brokers for which no port was free; tried again at each refresh, not at each response that names them.
        self._portless: set[int] = set()
        self._outdated = trio.Event()
        #: Brokers that owe a response, by address, and until when those that were probed are left alone (trio's clock).
        self._suspects: set[Address] = set()
        self._probed: dict[Address, float] = {}

    # -- members

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps the list of brokers fresh, and asks those that do not answer, for ever.

        ``started`` once the first response came.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_members)
            nursery.start_soon(self._watch_suspects)
            await self._keep_fresh(task_status)

    async def _keep_fresh(self, task_status: trio.TaskStatus[None]) -> None:
        backoff, warned, started = Backoff(self._config), False, False
        # Instances that began at the same time are not to ask at the same time for ever.
        spread = 1 - _SPREAD * turn_of(self._config.instance_id)
        while True:
            began = self.network.wall()
            try:
                await self.refresh()
            except (OSError, RemoteProtocolError) as error:
                self._stats.reached = False
                self._stats.outage = self._outage(error, began)
                self.count_error("metadata")
                if not warned:
                    log.warning(
                        "no broker reachable; retrying",
                        bootstrap=show(self._config.bootstrap_servers),
                        error=str(error),
                    )
                    warned = True
                await backoff.pause()
                continue
            if warned:
                log.info("broker reached", brokers=len(self.map.brokers))
            backoff.reset()
            warned = False
            self._stats.reached, self._stats.outage = True, None
            if not started:
                started = True
                task_status.started()
            await trio.sleep(self._config.retry_backoff_ms / 1000)
            with trio.move_on_after(self._config.metadata_max_age_ms / 1000 * spread):
                await self._outdated.wait()
            self._outdated = trio.Event()

    def _outage(self, error: OSError | RemoteProtocolError, began: float) -> Outage:
        """The outage, after all brokers were asked in vain since ``began`` and the last one failed with ``error``.

        It began when the last broker fell silent, not when the first one did.
        """
        known = self._stats.outage
        silent = self.contacts.silent(self._addresses())
        since = max((min(each.since, began) for each in silent), default=began) if known is None else known.since
        errors = dict.fromkeys([each.error for each in silent] or [str(error)])
        return Outage(since, tuple(errors), self._config.retry_backoff_max_ms)

    def silence(self) -> str:
        """Words for which brokers do not answer, since when and why; empty if all do, as far as that is known."""
        if self._stats.outage is not None:
            return f"no broker answers{outage_text(self._stats.outage)}"
        silent = self.contacts.silent(self._addresses())
        return "; ".join(f"{each.error}, no answer since {utc(each.since)}" for each in silent)

    async def _watch_members(self) -> None:
        """Asks brokers that have ended kproxy's connection, or did not answer, for ever; while none does, ``run`` asks.

        So the loss of a broker is known before somebody needs it, and its return, too.
        """
        while True:
            await trio.sleep(LOOK_SECONDS)
            if self._stats.reached:
                async with trio.open_nursery() as nursery:
                    for broker in [self.map.brokers[node_id] for node_id in sorted(self.map.members)]:
                        lost = self.pool.has_lost(broker.address)
                        if lost or self.contacts.silence(broker.address) is not None:
                            nursery.start_soon(self._ask_again, broker)

    async def _ask_again(self, broker: Broker) -> None:
        self.pool.close_idle(broker.address)
        try:
            async with self.pool.to(broker.address):
                pass
        except (OSError, RemoteProtocolError) as error:
            self.count_error("connect", broker, error)

    def suspect(self, address: Address) -> None:
        """Probes a broker that has owed a response for some seconds: it may hang, or the response takes its time."""
        self._suspects.add(address)

    async def _watch_suspects(self) -> None:
        """Probes the suspects, for ever; what clients wait for is left as it is."""
        while True:
            await trio.sleep(_LOOK_FOR_SUSPECTS_SECONDS)
            now = trio.current_time()
            suspects, self._suspects = self._suspects, set()
            self._probed = {address: until for address, until in self._probed.items() if now < until}
            async with trio.open_nursery() as nursery:
                for address in suspects:
                    if self.contacts.silence(address) is None and address not in self._probed:
                        self._probed[address] = now + _PROBE_AGAIN_SECONDS
                        nursery.start_soon(self._probe, address)

    async def _probe(self, address: Address) -> None:
        config = self._config
        limits = config.upstream_connect_timeout_ms, config.upstream_request_timeout_ms
        try:
            with trio.fail_after(PROBE_SECONDS):
                (await BrokerClient.open(self.network, address, *limits, self.room)).close()
        except trio.TooSlowError:
            error = OSError(f"{address} did not answer a probe within {PROBE_SECONDS:g} s")
            self.contacts.failed(address, error, PROBE_SECONDS)
        except (OSError, RemoteProtocolError) as error:
            self.contacts.failed(address, error)

    def refresh_soon(self) -> None:
        """Asks for a refresh soon: something that was believed of the brokers turned out wrong."""
        self._outdated.set()

    async def refresh(self) -> None:
        """Asks any broker for all brokers, and gives new ones a port."""
        response = await self.ask_any(MetadataRequest(topics=[]), MetadataResponse, (1, _METADATA))
        if not response.brokers:
            raise RemoteProtocolError("a broker says that its cluster has no brokers")
        self._portless.clear()
        await self.learn([(row.node_id, Address(row.host, row.port)) for row in response.brokers])
        self.map.members = {row.node_id for row in response.brokers}
        for row in response.brokers:
            self.map.brokers[row.node_id].rack = row.rack
            self.map.brokers[row.node_id].missing_since = None
        for node_id in set(self.map.brokers) - self.map.members:
            # its port stays: a broker that restarts comes back under its id
            missing = self.map.brokers[node_id]
            missing.versions, missing.missing_since = None, missing.missing_since or self.network.wall()
        self._stats.brokers = len(response.brokers)

    async def learn(self, brokers: Iterable[tuple[int, Address]]) -> None:
        """Records brokers and gives each a port of kproxy's, before any client learns of it."""
        async with self._learning:
            for node_id, address in brokers:
                broker = self.map.brokers.setdefault(node_id, Broker(node_id, address))
                if broker.address != address:
                    self.contacts.forget(broker.address)
                    broker.address, broker.versions = address, None
                if broker.port is None and node_id not in self._portless and self.open_port is not None:
                    await self.open_port(broker)
                    if broker.port is None:
                        self._portless.add(node_id)

    def any_broker(self) -> Broker | None:
        """A broker for a connection that may go to any, in turn."""
        brokers = [broker for node_id, broker in sorted(self.map.brokers.items()) if node_id in self.map.members]
        if not brokers:
            return None
        self._turn += 1
        return brokers[self._turn % len(brokers)]

    # -- asking

    async def call(
        self,
        address: Address,
        request: Message,
        answer: type[M],
        versions: VersionRange = ANY,
        *,
        extra_ms: int = 0,
        trim: Callable[[Any, int], None] = as_it_is,
    ) -> M:
        """A broker's response, as ``Caller``, over one of the connections for what is answered soon."""
        async with self.pool.to(address) as client:
            return await client.call(request, answer, versions, extra_ms=extra_ms, trim=trim)

    def new_pool(self, principal: str | None = None, most: int = 1 << 30) -> Pool:
        """Connections beside those for what is answered soon, at most so many to each broker; the caller closes them.

        ``principal``: that of the client for which they are; None: kproxy's own.
        """
        network = self.network if principal is None else self.network_on_behalf(principal)
        # A login that fails for a client says nothing of the broker.
        contacts = self.contacts if principal is None else None
        return Pool(network, self._config, self.room, self.identity.verify, most, contacts)

    async def versions(self, broker: Broker) -> Mapping[int, VersionRange]:
        """The versions that a broker serves. OSError, RemoteProtocolError.

        Asked again after a connection to it was lost: it may have been upgraded, or belong to another cluster.
        """
        if broker.versions is None or not self.pool.has_witness(broker.address):
            self.pool.close_idle(broker.address)  # they may be from before an upgrade
            async with self.pool.to(broker.address) as client:
                broker.versions, broker.said = client.versions, client.said
                broker.release, broker.features = client.release, client.features
        return broker.versions

    async def connect_for(self, principal: str, broker: Broker) -> ByteIO:
        """A connection on behalf of a client. OSError, RemoteProtocolError."""
        clients = self._networks
        network = self.network if clients is None else clients.for_client(principal)
        host, port = broker.address
        return await network.connect(host, port, self._config.upstream_connect_timeout_ms)

    def network_on_behalf(self, principal: str) -> Network:
        """The network for what kproxy does for a client, beside the client's own connection."""
        return self.network if self._networks is None else self._networks.on_behalf(principal)

    async def ask_any(self, request: Message, answer: type[M], versions: VersionRange = ANY) -> M:
        """The first response that any broker gives. OSError, RemoteProtocolError."""
        error: OSError | RemoteProtocolError = OSError("no broker is known")
        addresses = self._addresses()
        connected = [address for address in addresses if self.pool.is_connected(address)]
        self._turn += 1
        first = self._turn % max(1, len(connected))  # in turn: one that is cut off from the others knows old leaders
        for address in dict.fromkeys([*connected[first:], *connected[:first], *addresses]):
            try:
                return await self.call(address, request, answer, versions)
            except (OSError, RemoteProtocolError) as failed:
                error = failed.with_traceback(None)  # that would keep this frame, and so the error and all it read
        raise error

    def _addresses(self) -> list[Address]:
        """The addresses at which brokers may be, each once."""
        known = (broker.address for broker in self.map.brokers.values())
        return list(dict.fromkeys([*self._config.bootstrap_servers, *known]))

    async def new_producer_id(self) -> int:
        """A new producer id of the cluster's (KIP-98). OSError, RemoteProtocolError if none is available."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_UNUSED_TIMEOUT_MS)
        error = 0
        for _ in range(_PRODUCER_ID_TRIES):
            response = await self.ask_any(request, InitProducerIdResponse, (0, 4))
            error = response.error_code
            if not error and not is_reserved_producer_id(response.producer_id):
                return response.producer_id
            if error not in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                break
            await trio.sleep(self._config.retry_backoff_ms / 1000)
        if not error:
            raise OSError("the brokers assign producer ids of 2^61 and more, which kproxy reserves for its own batches")
        raise OSError(f"InitProducerId failed with error {error}")

    def count_error(self, kind: str, broker: Broker | None = None, error: Exception | None = None) -> None:
        """Counts a failure towards the brokers, or towards one, of which ``error`` is shown."""
        self._stats.errors[kind] = self._stats.errors.get(kind, 0) + 1
        if broker is not None:
            broker.errors += 1
            broker.last_error = kind if error is None else f"{kind}: {error}", self.network.wall()

    def close(self) -> None:
        """Closes kproxy's own connections."""
        self.pool.close()
