"""The part of the Prometheus page that speaks of the process, its connections and what they may take."""

import platform
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from kproxy import __version__
from kproxy.control.families import add_durations, counter, printable, single
from kproxy.proxy.stats import Stats

_LIMITS = ("accept", "max_connections", "max_connections_per_ip")


def process_families(stats: Stats) -> Iterator[Metric]:
    """What runs, whether it serves, and whether its one thread keeps up."""
    info = GaugeMetricFamily(
        "kproxy_build_info", "Always 1; its labels name the version that runs.", labels=("version", "python")
    )
    info.add_metric((__version__, platform.python_version()), 1)
    yield info
    yield GaugeMetricFamily("kproxy_ready", "1 if clients are served.", value=int(stats.ready))
    yield GaugeMetricFamily("kproxy_brokers", "Brokers known.", value=stats.brokers)
    delays = HistogramMetricFamily(
        "kproxy_loop_delay_seconds",
        "Delay of the event loop, measured about four times a second; if it rises, one core is not enough: run "
        "more instances.",
        labels=(),
    )
    add_durations(delays, (), stats.loop_delays)
    yield delays
    yield counter(
        "kproxy_spans",
        "Spans of traces: exported, dropped because the queue was full, failed to be exported.",
        ("outcome",),
        single(stats.spans, ("dropped", "exported", "failed")),
    )


def connection_families(stats: Stats) -> Iterator[Metric]:
    """Who is connected, and how much of it is allowed."""
    open_now = GaugeMetricFamily(
        "kproxy_connections",
        "Client connections open; listener is bootstrap, or the id of the broker whose port it is.",
        labels=("listener",),
    )
    for listener, count in sorted(stats.connections.items()):
        open_now.add_metric((listener,), count)
    yield open_now
    yield GaugeMetricFamily(
        "kproxy_connections_limit",
        "Limit of client connections, max.connections; further ones are refused.",
        value=stats.connections_limit,
    )
    yield counter(
        "kproxy_connections_accepted",
        "Client connections since the start.",
        ("listener",),
        single(stats.connections_accepted),
    )
    yield counter(
        "kproxy_connections_refused",
        "Client connections refused.",
        ("reason",),
        single(stats.connections_refused, _LIMITS),
    )
    yield counter(
        "kproxy_client_logins",
        "Logins of clients by SASL; result is accepted, renewed, refused for its credentials, or unsupported for its "
        "mechanism.",
        ("mechanism", "result"),
        stats.logins,
    )
    software = GaugeMetricFamily(
        "kproxy_client_software_connections",
        "Client connections open, by the client's software name; unknown for clients that send none.",
        labels=("client_software", "client_software_version"),
    )
    # A sum, because two names may become one when they are made printable.
    named: Counter[tuple[str, str]] = Counter()
    for (name, version), count in stats.software.open.items():
        named[printable(name), printable(version)] += count
    for labels, count in sorted(named.items()):
        software.add_metric(labels, count)
    yield software
    yield GaugeMetricFamily(
        "kproxy_upstream_connections", "Connections to brokers open.", value=stats.upstream_connections_open
    )
