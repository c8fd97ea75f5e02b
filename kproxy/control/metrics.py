"""The Prometheus page, made from the counters of ``Stats`` when it is asked for.

Most families are declared beside their counters (``kproxy.proxy.metric_fields``); here are those made of several.
"""

import math
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kproxy import __version__
from kproxy.codec import accelerator
from kproxy.codec.messages import ApiKey, api_name
from kproxy.proxy.api_stats import ApiStats
from kproxy.proxy.client_stats import ClientStats
from kproxy.proxy.durations import LATENCY_BUCKETS, Durations
from kproxy.proxy.metric_fields import METRIC, Kind
from kproxy.proxy.metric_fields import Metric as Declared
from kproxy.proxy.stats import Stats
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.proxy.upstream_stats import UpstreamStats

_BOUNDS = tuple("+Inf" if bound == LATENCY_BUCKETS[-1] else repr(bound) for bound in LATENCY_BUCKETS)


def make_registry(stats: Stats) -> CollectorRegistry:
    """A registry with kproxy's own metrics and those of the process (CPU, memory, file descriptors)."""
    registry = CollectorRegistry()
    registry.register(StatsCollector(stats))
    ProcessCollector(registry=registry)
    return registry


def make_declared_registry(stats: Any) -> CollectorRegistry:
    """A registry with the metrics that are declared in a class of counters, and those of the process."""
    registry = CollectorRegistry()
    registry.register(DeclaredCollector(stats))
    ProcessCollector(registry=registry)
    return registry


class DeclaredCollector(Collector):
    """Turns the counters of one class into metric families, by what is declared beside them."""

    def __init__(self, stats: Any, now: Callable[[], float] = time.time) -> None:
        """``now`` gives the seconds since the epoch."""
        self._stats = stats
        self._now = now

    def collect(self) -> Iterator[Metric]:
        yield _build_info()
        yield from _declared(self._stats, self._now())


class StatsCollector(Collector):
    """Turns counters into metric families."""

    def __init__(self, stats: Stats, now: Callable[[], float] = time.time) -> None:
        """``now`` gives the seconds since the epoch."""
        self._stats = stats
        self._now = now

    def collect(self) -> Iterator[Metric]:
        now = self._now()
        yield _build_info()
        for group in fields(self._stats):
            yield from _declared(getattr(self._stats, group.name), now)
        yield _ready(self._stats.upstream)
        yield from _clients(self._stats.clients)
        yield _bytes("client", "clients", self._stats.clients.bytes_in, self._stats.clients.bytes_out)
        yield _bytes("upstream", "brokers", self._stats.upstream.bytes_in, self._stats.upstream.bytes_out)
        yield from _requests(self._stats.apis)
        yield from _transactions(self._stats.transactions, now)


def _build_info() -> Metric:
    info = {(__version__, platform.python_version(), accelerator.STATE): 1}
    text = "Always 1; its labels name the version that runs, and whether the compiled functions are in use."
    return _add(GaugeMetricFamily("kproxy_build_info", text, labels=("version", "python", "accelerator")), info)


def _ready(stats: UpstreamStats) -> Metric:
    return GaugeMetricFamily("kproxy_ready", "1 if clients are served.", value=int(stats.ready))


def _declared(stats: Any, now: float) -> Iterator[Metric]:
    for field in fields(stats):
        declared: Declared | None = field.metadata.get(METRIC)
        if declared is not None:
            name = f"kproxy_{declared.name or field.name}"
            yield _family(name, declared, getattr(stats, field.name), now)


def _family(name: str, declared: Declared, value: Any, now: float) -> Metric:
    text, labels = declared.text, declared.labels
    if declared.kind is Kind.HISTOGRAM:
        return _add_durations(HistogramMetricFamily(name, text, labels=()), (), value)
    if declared.kind is Kind.AGE:
        return GaugeMetricFamily(name, text, value=0.0 if value is None else max(now - value, 0.0))
    family = CounterMetricFamily if declared.kind is Kind.COUNTER else GaugeMetricFamily
    if labels:
        return _add(family(name, text, labels=labels), {**dict.fromkeys(declared.expected, 0), **value})
    return family(name, text, value=value)


def _clients(stats: ClientStats) -> Iterator[Metric]:
    # A sum, because two names may become one when they are made printable.
    software: Counter[tuple[str, str]] = Counter()
    for (name, version), count in stats.software.open.items():
        software[_printable(name), _printable(version)] += count
    text = "Client connections open, by software name; unknown for clients that send none."
    labels = ("client_software", "client_software_version")
    yield _add(GaugeMetricFamily("kproxy_client_software_connections", text, labels=labels), software)


def _bytes(peer: str, peers: str, count_in: int, count_out: int) -> Metric:
    counts = {"in": count_in, "out": count_out}
    return _counter(f"kproxy_{peer}_bytes", f"Bytes from (in) and to (out) {peers}.", ("direction",), counts)


def _requests(stats: ApiStats) -> Iterator[Metric]:
    seconds = HistogramMetricFamily(
        "kproxy_request_duration_seconds",
        "Time from a request's last byte to its response; long for Fetch and JoinGroup, which wait.",
        labels=("api_key",),
    )
    durations: dict[str, Durations] = {}
    counts: dict[tuple[str, str], int] = {}
    bytes_in: Counter[str] = Counter()
    bytes_out: Counter[str] = Counter()
    for (key, version), stat in sorted(stats.requests.items()):
        labels = (api_name(key), str(version))
        counts[labels] = stat.count
        durations.setdefault(labels[0], Durations()).add(stat)
        bytes_in[labels[0]] += stat.bytes_in
        bytes_out[labels[0]] += stat.bytes_out
    for name, summed in durations.items():
        _add_durations(seconds, (name,), summed)
    yield _counter("kproxy_requests", "Requests of clients that were answered.", ("api_key", "api_version"), counts)
    yield seconds
    yield _counter("kproxy_request_bytes", "Bytes of requests that were answered.", ("api_key",), bytes_in)
    yield _counter("kproxy_response_bytes", "Bytes of responses to clients.", ("api_key",), bytes_out)
    seen = {api_name(ApiKey.PRODUCE), *(api_name(key) for key, _ in stats.requests)}
    yield _counter(
        "kproxy_requests_unanswered",
        "Requests without a response: kproxy closed the connection.",
        ("api_key",),
        dict.fromkeys(seen, 0) | {api_name(key): count for key, count in stats.requests_unanswered.items()},
    )
    # A sum, because two client ids may become one when they are made printable.
    legacy: Counter[tuple[str, ...]] = Counter()
    for (key, version, client_id, software), count in stats.legacy_requests.items():
        legacy[api_name(key), str(version), _printable(client_id), _printable(software)] += count
    yield _counter(
        "kproxy_legacy_requests",
        "Requests in versions that Kafka 4 removed: upgrade these clients before they connect directly.",
        ("api_key", "api_version", "client_id", "client_software"),
        legacy,
    )


def _transactions(stats: TransactionStats, now: float) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kproxy_transaction_prepared_seconds_left",
        "Time until the broker aborts the first prepared member; +Inf without one.",
        value=math.inf if stats.prepared_until is None else max(0.0, stats.prepared_until - now),
    )
    lag = GaugeMetricFamily(
        "kproxy_last_stable_offset_lag",
        "Offsets between the last stable offset and the high watermark, of the partitions with the most; if it "
        "grows, an undecided transaction blocks read_committed consumers.",
        labels=("topic", "partition"),
    )
    yield _add(lag, {(_printable(topic), part): count for (topic, part), count in stats.last_stable_lag.items()})


def _counter(name: str, text: str, labels: Sequence[str], counts: Mapping[Any, float]) -> Metric:
    return _add(CounterMetricFamily(name, text, labels=labels), counts)


def _add(family: CounterMetricFamily | GaugeMetricFamily, counts: Mapping[Any, float]) -> Metric:
    """The family with its samples, by the value of its label or by a tuple of the values of its labels."""
    for key, count in sorted(counts.items()):
        family.add_metric(list(map(str, key)) if isinstance(key, tuple) else [key], count)
    return family


def _add_durations(family: HistogramMetricFamily, labels: Sequence[str], durations: Durations) -> Metric:
    """The family with one histogram; its buckets are cumulative."""
    buckets = list(zip(_BOUNDS, accumulate(durations.buckets), strict=True))
    family.add_metric(labels, buckets, durations.seconds_sum)
    return family


def _printable(label: str) -> str:
    """A label that a client may have chosen: one lone surrogate must not break the whole page."""
    return label.encode("utf-8", "replace").decode()
