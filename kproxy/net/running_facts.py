"""The state of one running kproxy: read on request, and sampled for rates."""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import trio

from kproxy import __version__
from kproxy.codec.messages import api_name
from kproxy.config import Config, show
from kproxy.dedup.identity import Identity
from kproxy.net.brokers.cluster import LOOK_SECONDS, Cluster
from kproxy.net.connection import Connection
from kproxy.net.sampler import INTERVAL_SECONDS, Sampler
from kproxy.net.server import Server
from kproxy.proxy.api_stats import legacy_label
from kproxy.proxy.context import Fault
from kproxy.proxy.facts import (
    MOST_ROWS,
    BrokerDown,
    BrokerFact,
    ClientError,
    ClientFact,
    Failure,
    FleetFact,
    LaneFact,
    LegacyClient,
    Rows,
    Status,
    Traffic,
    TransactionsFact,
    not_ready_reasons,
    retried,
)
from kproxy.proxy.last_faults import ClientOrigin
from kproxy.proxy.routing import Broker
from kproxy.proxy.stats import Stats
from kproxy.proxy.troubles import DownBroker, troubles

if TYPE_CHECKING:
    from kproxy.net.fleet_log import FleetLog

_MOST_ERRORS: Final = 20
_MOST_LEGACY: Final = 100


class Facts:
    """Reads the shell's state; changes nothing."""

    def __init__(self, config: Config, stats: Stats, cluster: Cluster, server: Server) -> None:
        """``server`` has the clients, ``cluster`` the brokers."""
        self._config = config
        self._stats = stats
        self._cluster = cluster
        self._server = server
        self._sampler = Sampler(stats)
        self._wall = cluster.network.wall() - trio.current_time()
        self._started_ms = self._now_ms()

    async def run(self) -> None:
        """Samples, for ever."""
        while True:
            self.sample()
            await trio.sleep(INTERVAL_SECONDS)

    def sample(self) -> None:
        """Samples once."""
        self._sampler.sample(self._server.connections, trio.current_time())

    def _now_ms(self) -> int:
        return int(self._cluster.network.wall() * 1000)

    def status(self) -> Status:
        """The whole in short."""
        config, stats = self._config, self._stats
        now = self._cluster.network.wall()
        down = self._all_down()
        return Status(
            instance_id=config.instance_id,
            version=__version__,
            started_ms=self._started_ms,
            now_ms=int(now * 1000),
            ready=stats.upstream.ready,
            reasons=not_ready_reasons(stats.upstream),
            troubles=troubles(stats, down, self._sampler.refused(), now),
            listen=str(config.listen),
            bootstrap_servers=show(config.bootstrap_servers),
            connections=stats.clients.connections_open,
            max_connections=stats.clients.connections_limit,
            connections_total=sum(stats.clients.connections_accepted.values()),
            brokers_up=len(self._cluster.map.brokers) - len(down),
            brokers_known=len(self._cluster.map.brokers),
            lanes=stats.produce.producer_ids_active,
            in_flight=stats.produce.sends_in_flight,
            in_doubt=stats.retries.in_doubt,
            unacknowledged_ms=_age_ms(stats.produce.oldest_unacknowledged, now),
            buffered_bytes=stats.clients.buffered_bytes,
            buffer_memory=config.buffer_memory,
            records_matched=stats.retries.records_matched,
            records_matched_untimed=stats.retries.records_matched_untimed,
            lost_records=stats.kept.lost_records,
            per_second=self._sampler.total,
            transactions=self._transactions(now),
            refusals=dict(stats.refused.refusals),
            connections_refused=dict(stats.clients.connections_refused),
            broker_errors=dict(stats.upstream.errors),
            recent_errors=self._recent_errors(),
            legacy_clients=(legacy := self._legacy_clients())[:_MOST_LEGACY],
            legacy_total=len(legacy),
            history=self._sampler.history(),
        )

    def _transactions(self, now: float) -> TransactionsFact:
        stats = self._stats.transactions
        return TransactionsFact(
            open=stats.open,
            prepared=stats.prepared,
            oldest_open_ms=_age_ms(stats.oldest_open, now),
            unknown_producer_ids=stats.unknown,
            log_lag=stats.log_lag,
            log_losses=sum(stats.log_losses.values()),
            commits=stats.commits,
            aborts=sum(stats.aborts.values()),
        )

    def _faults(self) -> dict[ClientOrigin, Fault]:
        """The last of each client and host, whether it is still connected or not."""
        faults = dict(self._server.last_faults.by_client)
        for connection in self._server.connections:
            session = connection.session
            whose = ClientOrigin(session.client.client_id, connection.client.peer_host)
            known = faults.get(whose)
            if session.fault is not None and (known is None or known.at < session.fault.at):
                faults[whose] = session.fault
        return faults

    def _recent_errors(self) -> list[ClientError]:
        newest = sorted(self._faults().items(), key=lambda row: -row[1].at)[:_MOST_ERRORS]
        return [ClientError(*whose, fault.reason, int(fault.at * 1000)) for whose, fault in newest]

    def _legacy_clients(self) -> list[LegacyClient]:
        """Those that sent requests which Kafka 4 refuses: the busiest that are connected, then those that left last."""
        apis, now = self._stats.apis, trio.current_time()
        used: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for api_key, version, client_id, software in apis.legacy_requests:
            used.setdefault((client_id, software), []).append((api_key, version))
        connected = Counter(
            legacy_label(each.session.client.client_id, each.session.client.software)
            for each in self._server.connections
        )
        found = [
            LegacyClient(
                *who,
                requests=count,
                removed=[f"{api_name(key)} v{version}" for key, version in sorted(used[who])],
                connections=connected[who],
                last_seen_ms=int((self._sampler.last_legacy(who, count, now) + self._wall) * 1000),
            )
            for who, count in apis.legacy_counts().items()
        ]
        return sorted(found, key=_legacy_order)

    # -- clients

    def clients(self, client_id: str | None = None) -> Rows[ClientFact]:
        """One row for each client, the busiest first; of ``client_id`` alone, if it is given."""
        groups: dict[tuple[str, ...], list[Connection]] = {}
        for connection in self._server.connections:
            who = connection.session.client
            if client_id not in (None, who.client_id):
                continue
            key = (who.client_id, who.software, who.software_version, connection.client.peer_host, who.principal)
            groups.setdefault(key, []).append(connection)
        busiest = sorted(groups.items(), key=lambda row: (-sum(map(self._sampler.answered, row[1])), row[0]))
        faults = self._faults()
        return Rows(len(groups), [self._client(key, group, faults) for key, group in busiest[:MOST_ROWS]])

    def _client(self, key: tuple[str, ...], group: list[Connection], faults: dict[ClientOrigin, Fault]) -> ClientFact:
        client_id, software, software_version, host, principal = key
        versions: dict[int, int] = {}
        for connection in group:
            versions.update(connection.session.used)
        fault = faults.get(ClientOrigin(client_id, host))
        return ClientFact(
            client_id=client_id,
            software_name=software,
            software_version=software_version,
            host=host,
            principal=principal,
            connections=len(group),
            connected_ms=int((min(connection.opened_at for connection in group) + self._wall) * 1000),
            versions={api_name(api_key): version for api_key, version in sorted(versions.items())},
            requests=sum(connection.session.answered for connection in group),
            per_second=_sum(self._sampler.rate(connection) for connection in group),
            last_error=None if fault is None else Failure(fault.reason, int(fault.at * 1000)),
        )

    # -- lanes

    def lanes(self) -> Rows[LaneFact]:
        """One row for each producer id, those that wait for something first."""
        users = {
            connection.session.producer.lane: connection
            for connection in self._server.connections
            if connection.session.producer.lane is not None
        }
        unconfirmed = self._server.keeper.counts()
        now = self._cluster.network.wall()
        rows, seen = [], set()
        for held in self._server.lanes.held():
            lane, identity = held.lane, held.identity
            seen.add(identity)
            user = users.get(lane)
            producer = None if user is None else user.session.producer
            rows.append(
                _lane(identity, unconfirmed.get(identity, 0))._replace(
                    producer_id=lane.producer_id,
                    epoch=held.used_epoch,
                    state="leased" if held.is_leased else "resting",
                    partitions=held.partitions,
                    in_flight=0 if producer is None else producer.in_flight,
                    unacknowledged_ms=0 if producer is None else _age_ms(producer.oldest, now),
                )
            )
        rows += [_lane(identity, count) for identity, count in unconfirmed.items() if identity not in seen]
        rows.sort(key=lambda row: (-row.unacknowledged_ms, -row.in_doubt, row.state, row.client_id))
        return Rows(len(rows), rows[:MOST_ROWS])

    # -- fleet

    @cached_property
    def fleet_log(self) -> "FleetLog":
        """The announcements of all instances; imported by those that announce themselves or are asked for it."""
        from kproxy.net.fleet_log import FleetLog

        return FleetLog(self._config, self._cluster, self._stats.process)

    def close(self) -> None:
        """Closes the connections by which the fleet was read."""
        if "fleet_log" in vars(self):
            self.fleet_log.close()

    async def fleet(self) -> FleetFact:
        """All instances that announce themselves on the same brokers. OSError if their announcements are unreadable."""
        if self._stats.upstream.outage is not None:
            raise OSError(self._cluster.silence())  # nobody is to wait for what cannot be read
        return await self.fleet_log.read()

    # -- brokers

    def brokers(self) -> Rows[BrokerFact]:
        """One row for each broker that was ever named, by id."""
        places = [connection.node_id for connection in self._server.connections]
        rows = [
            BrokerFact(
                node_id=node_id,
                address=str(broker.address),
                rack=broker.rack,
                up=(down := self._down(broker)) is None,
                down=down,
                release=broker.release,
                features=dict(broker.features),
                port=broker.port,
                connections=places.count(node_id),
                errors=broker.errors,
                last_error=self._last_error(broker),
            )
            for node_id, broker in sorted(self._cluster.map.brokers.items())[:MOST_ROWS]
        ]
        return Rows(len(self._cluster.map.brokers), rows)

    def _all_down(self) -> list[DownBroker]:
        return [
            DownBroker(node_id, str(broker.address), down)
            for node_id, broker in sorted(self._cluster.map.brokers.items())
            if (down := self._down(broker)) is not None
        ]

    def _down(self, broker: Broker) -> BrokerDown | None:
        """The reason why a broker is down: it does not answer, or the others name it no more. None if it is up."""
        silence, outage = self._cluster.contacts.silence(broker.address), self._stats.upstream.outage
        if outage is not None:
            since, error = (silence.since, silence.error) if silence is not None else (outage.since, outage.errors[-1])
            return BrokerDown(int(since * 1000), error, retried(outage.pause_ms))
        if broker.missing_since is not None:
            max_age = f"{self._config.metadata_max_age_ms / 1000:g} s"
            error = "the other brokers do not name it as a member of the cluster"
            return BrokerDown(int(broker.missing_since * 1000), error, f"they are asked again every {max_age}")
        if silence is not None:
            return BrokerDown(int(silence.since * 1000), silence.error, retried(int(LOOK_SECONDS * 1000)))
        return None

    def _last_error(self, broker: Broker) -> Failure | None:
        silence = self._cluster.contacts.silence(broker.address)
        errors = [*filter(None, [broker.last_error]), *([] if silence is None else [(silence.error, silence.at)])]
        return max((Failure(reason, int(at * 1000)) for reason, at in errors), key=lambda row: row.at_ms, default=None)


def _legacy_order(row: LegacyClient) -> tuple[Any, ...]:
    return not row.connections, -row.requests if row.connections else -row.last_seen_ms, row.client_id


def _lane(identity: Identity, in_doubt: int) -> LaneFact:
    """A producer that has no lane."""
    return LaneFact(
        producer_id=None,
        epoch=None,
        state="given up",
        client_id=identity.client_id,
        host=identity.host,
        principal=identity.principal,
        partitions=0,
        in_flight=0,
        unacknowledged_ms=0,
        in_doubt=in_doubt,
    )


def _age_ms(since: float | None, now: float) -> int:
    return 0 if since is None else max(int((now - since) * 1000), 0)


def _sum(rates: Iterable[Traffic]) -> Traffic:
    return Traffic(*(sum(column) for column in zip(*rates, strict=True)))
