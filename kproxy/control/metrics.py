"""The Prometheus page, made from the counters of ``Stats`` at the moment somebody asks for it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kproxy.codec.messages import ApiKey, api_name
from kproxy.control.connection_metrics import connection_families, process_families
from kproxy.control.families import add_durations, age, counter, printable, single
from kproxy.control.transaction_metrics import transaction_families
from kproxy.proxy.quotas.quota_rules import Limit
from kproxy.proxy.stats import Stats

_UNREAD = ("gone", "too_long", "too_many", "unreadable")
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
_UPSTREAM_ERRORS = ("authentication", "connect", "disconnected", "metadata", "protocol", "timeout")


def make_registry(stats: Stats) -> CollectorRegistry:
    """A registry with kproxy's own metrics and those of the process (CPU, memory, file descriptors)."""
    registry = CollectorRegistry()
    registry.register(StatsCollector(stats))
    ProcessCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The page and its content type, in the newest format that the ``Accept`` header allows."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class StatsCollector(Collector):
    """Turns counters into metric families."""

    def __init__(self, stats: Stats, now: Callable[[], float] = time.time) -> None:
        """``now`` gives the seconds since the epoch: ages are told, not moments."""
        self._stats = stats
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """All families, in the order of the page."""
        yield from process_families(self._stats)
        yield from connection_families(self._stats)
        yield from self._requests()
        yield from self._bytes()
        yield from self._batches()
        yield from self._retries()
        yield from self._recovery()
        yield from transaction_families(self._stats.transactions, self._now())
        yield from self._faults()

    def _requests(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "kproxy_requests", "Requests of clients that were answered.", labels=("api_key", "api_version")
        )
        seconds = HistogramMetricFamily(
            "kproxy_request_duration_seconds",
            "Time from a request's last byte to its response; long for Fetch and JoinGroup, which wait on purpose.",
            labels=("api_key", "api_version"),
        )
        seen = {api_name(ApiKey.PRODUCE), *(api_name(key) for key, _ in self._stats.requests)}
        bytes_in: Counter[tuple[str, ...]] = Counter()
        bytes_out: Counter[tuple[str, ...]] = Counter()
        for (key, version), stat in sorted(self._stats.requests.items()):
            labels = (api_name(key), str(version))
            total.add_metric(labels, stat.count)
            add_durations(seconds, labels, stat)
            bytes_in[labels[:1]] += stat.bytes_in
            bytes_out[labels[:1]] += stat.bytes_out
        yield total
        yield seconds
        yield counter("kproxy_request_bytes", "Bytes of requests that were answered.", ("api_key",), bytes_in)
        yield counter("kproxy_response_bytes", "Bytes of responses to clients.", ("api_key",), bytes_out)
        yield counter(
            "kproxy_requests_unanswered",
            "Requests without a response, for which kproxy closed the connection: the client sees a disconnect.",
            ("api_key",),
            single({api_name(key): count for key, count in self._stats.requests_unanswered.items()}, seen),
        )
        # A sum, because two client ids may become one when they are made printable.
        legacy: Counter[tuple[str, ...]] = Counter()
        for (key, version, client_id, software), count in self._stats.legacy_requests.items():
            legacy[api_name(key), str(version), printable(client_id), printable(software)] += count
        yield counter(
            "kproxy_legacy_requests",
            "Requests in versions that Kafka 4 removed, by client: upgrade these clients before they connect directly.",
            ("api_key", "api_version", "client_id", "client_software"),
            legacy,
        )

    def _bytes(self) -> Iterator[Metric]:
        stats = self._stats
        client = {("in",): stats.client_bytes_in, ("out",): stats.client_bytes_out}
        upstream = {("in",): stats.upstream_bytes_in, ("out",): stats.upstream_bytes_out}
        yield counter("kproxy_client_bytes", "Bytes from (in) and to (out) clients.", ("direction",), client)
        yield counter("kproxy_upstream_bytes", "Bytes from (in) and to (out) brokers.", ("direction",), upstream)
        yield GaugeMetricFamily(
            "kproxy_buffered_bytes",
            "Bytes held in buffers; if they stay near kproxy_buffered_bytes_limit, brokers or consumers are "
            "slower than producers.",
            value=stats.buffered_bytes,
        )
        yield GaugeMetricFamily(
            "kproxy_buffered_bytes_limit",
            "Above this kproxy stops reading: three quarters of buffer.memory.",
            value=stats.buffered_bytes_limit,
        )

    def _batches(self) -> Iterator[Metric]:
        stats = self._stats
        yield CounterMetricFamily("kproxy_batches_stamped", "Batches stamped.", value=stats.batches_stamped)
        yield CounterMetricFamily("kproxy_records_stamped", "Records in stamped batches.", value=stats.records_stamped)
        for what, counts in (("batches", stats.batches_converted), ("records", stats.records_converted)):
            yield counter(
                f"kproxy_{what}_converted",
                f"{what.capitalize()} converted from (up) or to (down) an old format.",
                ("direction", "magic"),
                {(direction, str(magic)): count for (direction, magic), count in counts.items()},
            )
        yield GaugeMetricFamily("kproxy_producer_ids_active", "Producer ids in use.", value=stats.producer_ids_active)
        yield GaugeMetricFamily("kproxy_batches_in_flight", "Stamped batches in flight.", value=stats.sends_in_flight)

    def _retries(self) -> Iterator[Metric]:
        stats = self._stats
        yield GaugeMetricFamily(
            "kproxy_oldest_unacknowledged_seconds",
            "Age of the oldest batch without an outcome, 0 if there is none; if it keeps growing, check the "
            "leader of its partition.",
            value=age(stats.oldest_unacknowledged, self._now()),
        )
        yield GaugeMetricFamily(
            "kproxy_batches_in_doubt",
            "Batches whose clients may not have received the response. Batches of connections that closed in good "
            "order after the response do not count. If it stays high, clients often time out or disconnect: raise "
            "their time-outs.",
            value=stats.in_doubt,
        )
        yield CounterMetricFamily(
            "kproxy_records_matched",
            "Records recognised as retries: answered, not written; each would have been a duplicate.",
            value=stats.records_matched,
        )
        yield CounterMetricFamily(
            "kproxy_records_stripped",
            "Of the matched records, those taken out of a batch whose others were new.",
            value=stats.records_stripped,
        )
        yield CounterMetricFamily(
            "kproxy_requests_dropped",
            "Produce requests read after their connection had closed, and dropped because a newer connection had "
            "used the partition.",
            value=stats.requests_dropped,
        )
        yield CounterMetricFamily(
            "kproxy_requests_timed_out",
            "Produce requests answered REQUEST_TIMED_OUT while kproxy keeps sending; if it rises, brokers are "
            "slower than the clients' time-outs.",
            value=stats.requests_timed_out,
        )

    def _recovery(self) -> Iterator[Metric]:
        stats = self._stats
        yield CounterMetricFamily(
            "kproxy_readbacks", "Reads of a partition's log to compare with retries.", value=stats.readbacks
        )
        yield CounterMetricFamily(
            "kproxy_readback_bytes",
            "Bytes read from partitions' logs to compare with retries.",
            value=stats.readback_bytes,
        )
        yield counter(
            "kproxy_readbacks_failed",
            "Reads that failed, so that records counted as new: each may have let a duplicate through; check the "
            "reason, and recovery.max.bytes.",
            ("reason",),
            single(stats.readbacks_failed, _UNREAD),
        )
        yield counter(
            "kproxy_fences",
            "Markers that fenced a producer epoch. refused: the broker refused the marker, and kproxy waited "
            "instead; grant it ClusterAction on the cluster.",
            ("outcome",),
            single(stats.fences, ("done", "refused")),
        )
        yield CounterMetricFamily(
            "kproxy_recoveries",
            "Partitions searched for what a former kproxy, or an abandoned producer id, had sent.",
            value=stats.recoveries,
        )
        yield CounterMetricFamily(
            "kproxy_recovery_seconds",
            "Total time of recoveries; producers of these partitions wait meanwhile.",
            value=stats.recovery_seconds,
        )

    def _faults(self) -> Iterator[Metric]:
        stats = self._stats
        yield CounterMetricFamily(
            "kproxy_epoch_bumps", "Producer epochs that kproxy abandoned.", value=stats.epoch_bumps
        )
        yield counter("kproxy_resends", "Batches sent again.", ("reason",), single(stats.resends))
        yield counter("kproxy_refusals", "Requests or batches refused.", ("reason",), single(stats.refusals, _REFUSALS))
        yield counter(
            "kproxy_http_requests_refused",
            "Refused requests to the status page (http) and the control API (control). token: a wrong or old "
            "token; host, origin: a web page of another site.",
            ("listener", "reason"),
            stats.http_refused,
        )
        yield counter(
            "kproxy_authorization_refusals",
            "Refusals by rules of acl.file; the log names operation, resource and principal.",
            ("operation", "resource_type"),
            stats.authorization_refusals,
        )
        yield counter(
            "kproxy_throttles",
            "Times that a client was muted because it exceeded a limit of quotas.file.",
            ("limit",),
            single(stats.throttles, (limit.value for limit in Limit if limit is not Limit.CONNECTIONS)),
        )
        yield counter(
            "kproxy_throttle_seconds",
            "Total time for which clients were muted; if it rises by a second each second, a client is always at "
            "its limit.",
            ("limit",),
            {(limit,): seconds for limit, seconds in stats.throttle_seconds.items()},
        )
        yield counter(
            "kproxy_upstream_errors",
            "Faults towards brokers.",
            ("kind",),
            single(stats.upstream_errors, _UPSTREAM_ERRORS),
        )
