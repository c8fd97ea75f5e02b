"""Counters that the data path raises and the metrics page reads.

Plain attributes and dictionaries: counting must cost next to nothing, all formatting happens when somebody asks.
"""

from dataclasses import dataclass, field

from kproxy.proxy.durations import Durations, Requests
from kproxy.proxy.software import SoftwareCounts
from kproxy.proxy.transaction_stats import TransactionStats

OTHER_CLIENTS = "(other)"
"""Stands for all clients beyond ``legacy_clients_max``, both as client.id and as software."""

_LABEL_LIMIT = 128


@dataclass(slots=True)
class Stats:
    """What one kproxy process has done since it began, and its state now.

    Keys of ``requests`` must be versions that kproxy serves, else a peer could make the dictionary grow.
    """

    legacy_clients_max: int = 200

    ready: bool = False
    brokers: int = 0

    connections: dict[str, int] = field(default_factory=dict)
    """Open, by listener: ``bootstrap``, or the id of the broker whose port it is."""
    connections_accepted: dict[str, int] = field(default_factory=dict)
    """Since the beginning, by listener."""
    connections_limit: int = 0
    software: SoftwareCounts = field(default_factory=SoftwareCounts)
    """Open connections by what the client's software calls itself."""
    connections_refused: dict[str, int] = field(default_factory=dict)
    """By reason."""

    requests: dict[tuple[int, int], Requests] = field(default_factory=dict)
    """By API key and version."""
    requests_unanswered: dict[int, int] = field(default_factory=dict)
    """By API key: their connections were ended, as no answer could be had."""
    legacy_requests: dict[tuple[int, int, str, str], int] = field(default_factory=dict)
    """Requests in versions that Kafka 4 removed, by API key, version, client.id and client software."""

    client_bytes_in: int = 0
    client_bytes_out: int = 0
    upstream_bytes_in: int = 0
    upstream_bytes_out: int = 0
    upstream_connections_open: int = 0
    upstream_errors: dict[str, int] = field(default_factory=dict)
    """By kind."""

    batches_stamped: int = 0
    records_stamped: int = 0
    batches_converted: dict[tuple[str, int], int] = field(default_factory=dict)
    """By direction ("up": from a producer, "down": to a consumer) and the magic of the old format."""
    records_converted: dict[tuple[str, int], int] = field(default_factory=dict)
    """As ``batches_converted``."""

    logins: dict[tuple[str, str], int] = field(default_factory=dict)
    """Clients' logins by SASL, by mechanism and result: "accepted", "renewed", "refused" or "unsupported"."""

    producer_ids_active: int = 0
    sends_in_flight: int = 0
    epoch_bumps: int = 0
    resends: dict[str, int] = field(default_factory=dict)
    """By reason."""
    refusals: dict[str, int] = field(default_factory=dict)
    """By reason."""
    http_refused: dict[tuple[str, str], int] = field(default_factory=dict)
    """Requests to kproxy's own pages, by listener ("http", "control") and reason ("host", "origin", "token", ...)."""
    authorization_refusals: dict[tuple[str, str], int] = field(default_factory=dict)
    """By operation and type of resource."""
    throttles: dict[str, int] = field(default_factory=dict)
    """How often clients had to wait, by the limit."""
    throttle_seconds: dict[str, float] = field(default_factory=dict)
    """For how long in all, by the limit."""
    buffered_bytes: int = 0
    buffered_bytes_limit: int = 0
    loop_delays: Durations = field(default_factory=Durations)
    """How late the event loop came to what was due, looked at a few times in each second."""

    in_doubt: int = 0
    """Batches on ended connections whose clients may not have had the answer."""
    records_matched: int = 0
    """Records recognised as retries and answered, not written."""
    records_stripped: int = 0
    """Of these, the ones that were taken out of a batch whose others were new."""
    requests_dropped: int = 0
    """Produce requests behind the end of their connection which a newer one had outrun."""
    requests_timed_out: int = 0
    """Produce requests answered REQUEST_TIMED_OUT while kproxy goes on to send."""
    readbacks: int = 0
    """Reads of a partition's log to compare with retries."""
    readback_bytes: int = 0
    readbacks_failed: dict[str, int] = field(default_factory=dict)
    """By reason; what could not be read was taken as new (a record is never lost for it)."""
    fences: dict[str, int] = field(default_factory=dict)
    """Markers that fenced an epoch, by outcome: "done", or "refused" where kproxy waited instead."""
    recoveries: int = 0
    """Partitions looked through for what a former kproxy, or a lane given up, had sent."""
    recovery_seconds: float = 0.0
    oldest_unacknowledged: float | None = None
    """When the oldest batch whose fate is open was taken, in seconds since the epoch; None if there is none."""

    spans: dict[str, int] = field(default_factory=dict)
    """Of traces, by what became of them: "exported", "dropped" as the queue was full, "failed" to be exported."""

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
