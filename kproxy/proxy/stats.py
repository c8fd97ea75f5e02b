"""Counters that the data path raises and the metrics page shows.

Plain attributes and dictionaries: counting must cost next to nothing; the page is formatted when it is requested.
"""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass, field

from kproxy.proxy.durations import Durations, Requests
from kproxy.proxy.metric_fields import counter, counters, durations, gauge, gauges, moment
from kproxy.proxy.quotas.quota_rules import Limit
from kproxy.proxy.software import SoftwareCounts
from kproxy.proxy.transaction_stats import TransactionStats

OTHER_CLIENTS = "(other)"
"""Counts all clients beyond ``legacy_clients_max``, both as client.id and as software."""

_LABEL_LIMIT = 128
_REFUSALS = (
    "acks",
    "elements",
    "evicted",
    "forged_producer_id",
    "idle",
    "malformed",
    "own_topic",
    "quota",
    "slow_frame",
    "slow_reader",
    "tls_handshake",
    "topic_name",
    "transactional_id",
)


@dataclass(slots=True)
class Stats:
    """What one kproxy process has done since it began, and its state now.

    Keys of ``requests`` must be versions that kproxy serves, else a peer could make the dictionary grow.
    """

    legacy_clients_max: int = 200

    ready: bool = gauge("1 if clients are served.")
    brokers: int = gauge("Brokers known.")
    loop_delays: Durations = durations(
        "Delay of the event loop, measured about four times a second; if it rises, one core is not enough: run more "
        "instances.",
        "loop_delay_seconds",
    )
    spans: dict[str, int] = counters(
        "Spans of traces: exported, dropped because the queue was full, failed to be exported.",
        "outcome",
        expected=("dropped", "exported", "failed"),
    )

    connections: dict[str, int] = gauges(
        "Client connections open; listener is bootstrap, or the id of the broker whose port it is.", "listener"
    )
    connections_limit: int = gauge("Limit of client connections, max.connections; further ones are refused.")
    connections_accepted: dict[str, int] = counters("Client connections since the start.", "listener")
    connections_refused: dict[str, int] = counters(
        "Client connections refused.",
        "reason",
        expected=("accept", "max_connections", "max_connections_per_ip", "proxy_protocol"),
    )
    logins: dict[tuple[str, str], int] = counters(
        "Logins of clients by SASL; result is accepted, renewed, refused for its credentials, or unsupported for its "
        "mechanism.",
        "mechanism",
        "result",
        name="client_logins",
    )
    software: SoftwareCounts = field(default_factory=SoftwareCounts)
    """Open connections by the name that the client's software sends."""
    upstream_connections_open: int = gauge("Connections to brokers open.", "upstream_connections")

    requests: dict[tuple[int, int], Requests] = field(default_factory=dict)
    """By API key and version."""
    requests_unanswered: dict[int, int] = field(default_factory=dict)
    """By API key."""
    legacy_requests: dict[tuple[int, int, str, str], int] = field(default_factory=dict)
    """Requests in versions that Kafka 4 removed, by API key, version, client.id and client software."""

    client_bytes_in: int = 0
    client_bytes_out: int = 0
    upstream_bytes_in: int = 0
    upstream_bytes_out: int = 0
    buffered_bytes: int = gauge(
        "Bytes held in buffers; if they stay near kproxy_buffered_bytes_limit, brokers or consumers are slower than "
        "producers."
    )
    buffered_bytes_limit: int = gauge("Above this kproxy stops reading: three quarters of buffer.memory.")

    batches_stamped: int = counter("Batches stamped.")
    records_stamped: int = counter("Records in stamped batches.")
    batches_converted: dict[tuple[str, int], int] = counters(
        "Batches converted from (up) or to (down) an old format.", "direction", "magic"
    )
    records_converted: dict[tuple[str, int], int] = counters(
        "Records converted from (up) or to (down) an old format.", "direction", "magic"
    )
    producer_ids_active: int = gauge("Producer ids in use.")
    sends_in_flight: int = gauge("Stamped batches in flight.", "batches_in_flight")

    oldest_unacknowledged: float | None = moment(
        "Age of the oldest batch without an outcome, 0 if there is none; if it keeps growing, check the leader of its "
        "partition.",
        "oldest_unacknowledged_seconds",
    )
    in_doubt: int = gauge(
        "Batches whose clients may not have received the response. Batches of connections that closed in good order "
        "after the response do not count. If it stays high, clients often time out or disconnect: raise their "
        "time-outs.",
        "batches_in_doubt",
    )
    records_matched: int = counter(
        "Records recognised as retries: answered, not written; each would have been a duplicate."
    )
    records_stripped: int = counter("Of the matched records, those taken out of a batch whose others were new.")
    requests_dropped: int = counter(
        "Produce requests read after their connection had closed, and dropped because a newer connection had used the "
        "partition."
    )
    requests_timed_out: int = counter(
        "Produce requests answered REQUEST_TIMED_OUT while kproxy keeps sending; if it rises, brokers are slower than "
        "the clients' time-outs."
    )

    readbacks: int = counter("Reads of a partition's log to compare with retries.")
    readback_bytes: int = counter("Bytes read from partitions' logs to compare with retries.")
    readbacks_failed: dict[str, int] = counters(
        "Reads that failed, so that records counted as new: each may have let a duplicate through; check the reason, "
        "and recovery.max.bytes.",
        "reason",
        expected=("gone", "too_long", "too_many", "unreadable"),
    )
    fences: dict[str, int] = counters(
        "Markers that fenced a producer epoch. refused: the broker refused the marker, and kproxy waited instead; "
        "grant it ClusterAction on the cluster.",
        "outcome",
        expected=("done", "refused"),
    )
    recoveries: int = counter("Partitions searched for what a former kproxy, or an abandoned producer id, had sent.")
    recovery_seconds: float = counter("Total time of recoveries; producers of these partitions wait meanwhile.")

    epoch_bumps: int = counter("Producer epochs that kproxy abandoned.")
    resends: dict[str, int] = counters("Batches sent again.", "reason")
    refusals: dict[str, int] = counters("Requests or batches refused.", "reason", expected=_REFUSALS)
    http_refused: dict[tuple[str, str], int] = counters(
        "Refused requests to the status page (http) and the control API (control). token: a wrong or old token; host, "
        "origin: a web page of another site.",
        "listener",
        "reason",
        name="http_requests_refused",
    )
    authorization_refusals: dict[tuple[str, str], int] = counters(
        "Refusals by rules of acl.file; the log names operation, resource and principal.", "operation", "resource_type"
    )
    throttles: dict[str, int] = counters(
        "Times that a client was muted because it exceeded a limit of quotas.file.",
        "limit",
        expected=tuple(limit.value for limit in Limit if limit is not Limit.CONNECTIONS),
    )
    throttle_seconds: dict[str, float] = counters(
        "Total time for which clients were muted; if it rises by a second each second, a client is always at its "
        "limit.",
        "limit",
    )
    upstream_errors: dict[str, int] = counters(
        "Faults towards brokers.",
        "kind",
        expected=("authentication", "connect", "disconnected", "metadata", "protocol", "timeout"),
    )

    transactions: TransactionStats = field(default_factory=TransactionStats)

    _legacy_clients: set[tuple[str, str]] = field(default_factory=set)

    @property
    def connections_open(self) -> int:
        """Client connections that are open, of all listeners."""
        return sum(self.connections.values())

    def connected(self, listener: str) -> None:
        """Counts one client connection more."""
        self.connections[listener] = self.connections.get(listener, 0) + 1
        self.connections_accepted[listener] = self.connections_accepted.get(listener, 0) + 1

    def observe(self, api_key: int, api_version: int, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """Counts one answered request: the seconds from its last byte to its answer, and the bytes of both."""
        stat = self.requests.get((api_key, api_version))
        if stat is None:
            stat = self.requests[api_key, api_version] = Requests()
        stat.observe(seconds)
        stat.bytes_in += bytes_in
        stat.bytes_out += bytes_out

    def unanswered(self, api_key: int) -> None:
        """Counts one request that ended its connection in place of an answer."""
        self.requests_unanswered[api_key] = self.requests_unanswered.get(api_key, 0) + 1

    def count_http_refused(self, listener: str, reason: str) -> None:
        """Counts one request to a page of kproxy's own that was refused."""
        self.http_refused[listener, reason] = self.http_refused.get((listener, reason), 0) + 1

    def count_converted(self, direction: str, magic: int, batches: int, records: int) -> None:
        """Add to the conversion counters."""
        key = (direction, magic)
        self.batches_converted[key] = self.batches_converted.get(key, 0) + batches
        self.records_converted[key] = self.records_converted.get(key, 0) + records

    def observe_legacy(self, api_key: int, api_version: int, client_id: str | None, software: str) -> None:
        """Count one request in a removed version; clients beyond the limit are counted as one."""
        client = ((client_id or "")[:_LABEL_LIMIT], software[:_LABEL_LIMIT])
        if client not in self._legacy_clients:
            if len(self._legacy_clients) < self.legacy_clients_max:
                self._legacy_clients.add(client)
            else:
                client = (OTHER_CLIENTS, OTHER_CLIENTS)
        key = (api_key, api_version, *client)
        self.legacy_requests[key] = self.legacy_requests.get(key, 0) + 1
