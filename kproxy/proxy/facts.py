"""The state of a running kproxy: for the control API, the status page and ``kproxy status``.

Times are ms since 1970 where a name ends in ``_ms`` and says when, and ms where it says how long; sizes are bytes.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kproxy.proxy.upstream_stats import Outage, UpstreamStats

#: Rows of a list at most: building a list blocks all clients for that time.
MOST_ROWS = 500

_Row = TypeVar("_Row")


class Traffic(NamedTuple):
    """Bytes from and to clients and answered requests, each a second, over the last interval."""

    bytes_in: float = 0.0
    bytes_out: float = 0.0
    requests: float = 0.0


class Rows(NamedTuple, Generic[_Row]):
    """The first of a list, and how many there are."""

    total: int
    rows: Sequence[_Row]


class Failure(NamedTuple):
    """The last error: a word or two, and when."""

    reason: str
    at_ms: int


class ClientFact(NamedTuple):
    """All connections of one client: the same client.id, host, principal and software."""

    client_id: str
    #: As its ApiVersions v3 or later said (KIP-511); empty if it did not.
    software_name: str
    software_version: str
    host: str
    principal: str
    connections: int
    #: When the oldest of them was opened.
    connected_ms: int
    #: By API the version that was used last, as "Produce": 2.
    versions: dict[str, int]
    #: Requests answered on these connections.
    requests: int
    per_second: Traffic
    #: Of this client and host, also on connections that have ended.
    last_error: Failure | None


class LaneFact(NamedTuple):
    """A producer id of kproxy's own and its client, or a producer without one that has unconfirmed batches."""

    #: None: its lane was given up, but a retry of its may still come.
    producer_id: int | None
    #: The highest of its partitions', which rise by themselves.
    epoch: int | None
    #: "leased" by a connection, "resting" until its producer comes back, or "given up".
    state: str
    client_id: str
    host: str
    principal: str
    partitions: int
    in_flight: int
    #: How long its oldest batch is without a definite outcome.
    unacknowledged_ms: int
    #: Batches of the producer on ended connections whose responses it may not have received; the same for all its
    #: lanes.
    in_doubt: int


class BrokerDown(NamedTuple):
    """A broker that does not answer, or is no member of the cluster."""

    since_ms: int
    reason: str
    #: What kproxy does until it is up again, in words.
    next: str


class BrokerFact(NamedTuple):
    """One broker as this kproxy sees it."""

    node_id: int
    address: str
    rack: str | None
    #: Whether the last Metadata response named it, and it answered when it was asked last.
    up: bool
    #: None if it is up.
    down: BrokerDown | None
    #: The release of Kafka that it is most like, as its versions tell; None: not asked yet.
    release: str | None
    #: Finalized features, as "transaction.version": 2 (KIP-584).
    features: dict[str, int]
    #: kproxy's port for this broker.
    port: int | None
    #: Client connections that are relayed to it.
    connections: int
    errors: int
    last_error: Failure | None


class TransactionsFact(NamedTuple):
    """Transactions that kproxy decides, counted."""

    open: int
    prepared: int
    oldest_open_ms: int
    unknown_producer_ids: int
    log_lag: int
    log_losses: int
    commits: int
    aborts: int


class ClientError(NamedTuple):
    """An error of a client, which may be gone."""

    client_id: str
    host: str
    reason: str
    at_ms: int


class LegacyClient(NamedTuple):
    """A client that Kafka 4 would refuse, whether it is still connected or not."""

    client_id: str
    software: str
    #: Requests in versions that Kafka 4 removed, since the start.
    requests: int
    #: What it used of them, as "Produce v2".
    removed: list[str]
    #: Open now; 0: it has left.
    connections: int = 0
    #: Of its last request of this kind, to about two seconds; 0: not known.
    last_seen_ms: int = 0


class Trouble(NamedTuple):
    """Something that is wrong now."""

    what: str
    #: None: not known.
    since_ms: int | None
    #: The reason, and what kproxy does or the operator can do next; may be empty.
    detail: str
    #: Clients are hindered now; otherwise a warning.
    severe: bool


class History(NamedTuple):
    """The last few minutes, oldest first: one figure for each interval, each a second."""

    interval_ms: int
    bytes_in: list[float]
    bytes_out: list[float]
    requests: list[float]
    #: Median and 99th percentile of Produce over the whole time, ms, estimated within a bucket of the histogram; None
    #: if there was none.
    produce_p50_ms: float | None
    produce_p99_ms: float | None


class Status(NamedTuple):
    """The whole in short."""

    instance_id: str
    version: str
    started_ms: int
    now_ms: int
    ready: bool
    reasons: list[str]
    #: What is wrong now; what hinders clients comes first.
    troubles: list[Trouble]
    listen: str
    bootstrap_servers: str
    connections: int
    max_connections: int
    connections_total: int
    brokers_up: int
    brokers_known: int
    lanes: int
    in_flight: int
    in_doubt: int
    unacknowledged_ms: int
    buffered_bytes: int
    buffer_memory: int
    records_matched: int
    records_matched_untimed: int
    lost_records: int
    per_second: Traffic
    transactions: TransactionsFact
    refusals: dict[str, int]
    connections_refused: dict[str, int]
    broker_errors: dict[str, int]
    recent_errors: list[ClientError]
    #: The busiest; ``legacy_total`` counts all.
    legacy_clients: list[LegacyClient]
    legacy_total: int
    history: History


class InstanceFact(NamedTuple):
    """One instance of the fleet, as it announced itself last."""

    instance_id: str
    version: str
    #: Another instance has a newer version.
    old: bool
    host: str
    listen: str
    #: Of its status page; empty if there is none.
    http: str
    started_ms: int
    announced_ms: int
    connections: int
    legacy_total: int
    #: What is wrong there, in words.
    problems: list[str]


class FleetClient(NamedTuple):
    """A client that Kafka 4 would refuse, of all instances at which it was."""

    client_id: str
    software: str
    #: In versions that Kafka 4 removed, since the starts of these instances.
    requests: int
    instances: int
    #: What it used of them, as "Produce v2".
    removed: list[str]


class FleetFact(NamedTuple):
    """All instances that share a transaction log and announce themselves."""

    #: Whether this instance announces itself.
    announces: bool
    #: Not all announcements could be read.
    incomplete: bool
    #: Entries of the topic that are no announcements.
    ignored: int
    newest_version: str
    total: int
    in_trouble: int
    old: int
    connections: int
    #: Those in trouble first.
    instances: list[InstanceFact]
    legacy_total: int
    #: The busiest first.
    legacy_clients: list[FleetClient]


def fact_json(fact: Any) -> Any:
    """A fact as the API writes it: tuples with names become objects."""
    if hasattr(fact, "_asdict"):
        return {name: fact_json(value) for name, value in fact._asdict().items()}
    return [fact_json(item) for item in fact] if isinstance(fact, (list, tuple)) else fact


#: Other requests are served meanwhile.
UNPREPARED: Final = "producers wait: the log of producer ids is not open yet"


def not_ready_reasons(stats: UpstreamStats) -> list[str]:
    """Why clients are not served now; empty if they are."""
    if stats.stopping:
        return ["shutting down"]
    reasons = []
    if not stats.listening:
        reasons.append("not listening for clients")
    if not stats.reached:
        said = "no broker answers" if stats.brokers else "no broker has been reached yet"
        reasons.append(said if stats.outage is None else f"{said}{outage_text(stats.outage)}")
    elif not stats.prepared:
        reasons.append(UNPREPARED)
    return reasons


#: Errors that a reason lists; the others are counted.
_MOST_ERRORS: Final = 3


def outage_text(outage: Outage) -> str:
    """The words that follow "no broker answers": since when, which errors, and what is tried next."""
    errors = outage.errors[:_MOST_ERRORS]
    more = f"; and {len(outage.errors) - len(errors)} more" if len(outage.errors) > len(errors) else ""
    return f" since {utc(outage.since)}: {'; '.join(errors)}{more}; {retried(outage.pause_ms)}"


def retried(pause_ms: int) -> str:
    """The words for what is tried again, with this pause at most."""
    return f"tried again every {pause_ms / 1000:g} s"


def utc(seconds: float) -> str:
    """A moment in seconds since the epoch, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
