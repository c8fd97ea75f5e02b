"""Small helpers that make metric families of Prometheus' client from counters."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from kproxy.proxy.durations import LATENCY_BUCKETS, Durations

_BOUNDS = tuple("+Inf" if bound == LATENCY_BUCKETS[-1] else repr(bound) for bound in LATENCY_BUCKETS)


def single(counts: Mapping[str, int], expected: Iterable[str] = ()) -> dict[tuple[str, ...], int]:
    """Counts by one label, as ``counter`` takes them.

    What is expected stands there as 0 before it happens: ``increase`` does not see a series begin at 1.
    """
    return {(label,): count for label, count in {**dict.fromkeys(expected, 0), **counts}.items()}


def counter(name: str, text: str, labels: tuple[str, ...], counts: Mapping[Any, float]) -> CounterMetricFamily:
    """A counter with labels; the keys of ``counts`` are tuples of their values."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def add_durations(family: HistogramMetricFamily, labels: Sequence[str], durations: Durations) -> None:
    """One histogram of a family; buckets are cumulative there."""
    buckets = list(zip(_BOUNDS, accumulate(durations.buckets), strict=True))
    family.add_metric(labels, buckets, durations.seconds_sum)


def age(since: float | None, now: float) -> float:
    """Seconds since a moment, never negative; 0 if there was none."""
    return 0.0 if since is None else max(now - since, 0.0)


def printable(label: str) -> str:
    """A label that a client may have chosen; one lone surrogate must not cost us the whole page."""
    return label.encode("utf-8", "replace").decode()
