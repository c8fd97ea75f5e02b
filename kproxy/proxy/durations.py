"""How long things took, as a histogram keeps it."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf, isinf

LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, inf)
"""Upper bounds in seconds, each included. Fine below 1 ms, since that is what kproxy itself may add."""


@dataclass(slots=True)
class Durations:
    """How many there were, how long they took in all (seconds), and how many fell into which bucket."""

    count: int = 0
    seconds_sum: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * len(LATENCY_BUCKETS))

    def observe(self, seconds: float) -> None:
        """Counts one."""
        self.count += 1
        self.seconds_sum += seconds
        self.buckets[bisect_left(LATENCY_BUCKETS, seconds)] += 1

    def add(self, other: "Durations") -> None:
        """Counts what ``other`` has counted, too."""
        self.count += other.count
        self.seconds_sum += other.seconds_sum
        self.buckets = [ours + theirs for ours, theirs in zip(self.buckets, other.buckets, strict=True)]


def quantile_ms(buckets: Sequence[int], share: float) -> float | None:
    """Estimate the time below which ``share`` of the durations are, in ms; None if there are none.

    As Prometheus' histogram_quantile does: the durations of a bucket are taken to be spread evenly over it. In the last
    bucket, which has no upper bound, the estimate is its lower bound.
    """
    total = sum(buckets)
    if not total:
        return None
    counts = list(accumulate(buckets))
    at = bisect_left(counts, share * total)
    upper, lower = LATENCY_BUCKETS[at], LATENCY_BUCKETS[at - 1] if at else 0.0
    if isinf(upper):
        return 1000 * lower
    within = (share * total - (counts[at] - buckets[at])) / buckets[at]
    return round(1000 * (lower + (upper - lower) * within), 3)


@dataclass(slots=True)
class Requests(Durations):
    """Requests of one kind: how long they took, and the bytes of all, and of their responses, prefixes included."""

    bytes_in: int = 0
    bytes_out: int = 0
