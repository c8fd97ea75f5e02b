"""The part of the Prometheus page that speaks of transactions."""

import math
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kproxy.control.families import add_durations, age, counter, printable, single
from kproxy.proxy.transaction_stats import TransactionStats

_LOSSES = ("beginning", "recreated", "truncated")
_ABORTS = ("client", "failed", "fenced", "initialized")


def transaction_families(stats: TransactionStats, now: float) -> Iterator[Metric]:
    """All families, in the order of the page; ``now`` in seconds since the epoch."""
    yield from _states(stats, now)
    yield from _decisions(stats)
    yield from _log(stats)
    yield from _unknown(stats, now)
    yield from _reading(stats)


def _states(stats: TransactionStats, now: float) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kproxy_transactions_open", "Transactions that this kproxy has begun and not decided.", value=stats.open
    )
    yield GaugeMetricFamily(
        "kproxy_transaction_oldest_seconds",
        "Age of the oldest of them, 0 if there is none; what was written behind it waits to be read.",
        value=age(stats.oldest_open, now),
    )
    yield GaugeMetricFamily(
        "kproxy_transactions_prepared",
        "Parts that are prepared and wait for their owner; no time-out ends them, unless the broker has them: if they "
        "stay, commit or abort them.",
        value=stats.prepared,
    )
    yield GaugeMetricFamily(
        "kproxy_transaction_prepared_seconds_left",
        "Time until the broker aborts the first prepared member whose data it keeps; +Inf if there is none.",
        value=math.inf if stats.prepared_until is None else max(0.0, stats.prepared_until - now),
    )


def _decisions(stats: TransactionStats) -> Iterator[Metric]:
    yield CounterMetricFamily("kproxy_transactions_committed", "Transactions committed.", value=stats.commits)
    yield CounterMetricFamily(
        "kproxy_transactions_torn",
        "Members of committed transactions that the broker had aborted before it was told: what they wrote is missing.",
        value=stats.torn,
    )
    yield counter("kproxy_transactions_aborted", "Transactions aborted.", ("reason",), single(stats.aborts, _ABORTS))
    yield counter(
        "kproxy_transaction_claims",
        "Claims of transactional ids; if many are lost, one producer's connections land on several instances.",
        ("outcome",),
        single(stats.claims, ("won", "lost")),
    )
    yield CounterMetricFamily(
        "kproxy_transactions_fenced",
        "Requests of producers that a newer one of their transactional id has replaced.",
        value=stats.fenced,
    )
    seconds = HistogramMetricFamily(
        "kproxy_transaction_append_seconds",
        "Time to append a decision to the transaction log, until its fate is known.",
        labels=(),
    )
    add_durations(seconds, (), stats.appends)
    yield seconds


def _log(stats: TransactionStats) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kproxy_transaction_log_lag",
        "Records of the transaction log not applied yet; if it grows, decisions are seen late.",
        value=stats.log_lag,
    )
    losses = CounterMetricFamily(
        "kproxy_transaction_log_losses",
        "Times that a partition of the transaction log was found to have lost records, by what happened.",
        labels=("reason",),
    )
    for reason in _LOSSES:
        losses.add_metric((reason,), stats.log_losses.get(reason, 0))
    yield losses
    yield GaugeMetricFamily(
        "kproxy_transaction_log_load_seconds",
        "How long the transaction log took to load, the last time.",
        value=stats.log_load_seconds,
    )


def _unknown(stats: TransactionStats, now: float) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kproxy_unknown_producer_ids",
        "Producer ids of transactions that readers have met and the transaction log does not know: they wait there; "
        "kproxy's log names them.",
        value=stats.unknown,
    )
    yield GaugeMetricFamily(
        "kproxy_unknown_producer_id_oldest_seconds",
        "For how long the first of them has been unknown, 0 if there is none.",
        value=age(stats.oldest_unknown, now),
    )
    yield CounterMetricFamily(
        "kproxy_producer_ids_rejected", "Of them, those that this kproxy has rejected.", value=stats.rejected
    )


def _reading(stats: TransactionStats) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "kproxy_last_stable_offset_lag",
        "Offsets between the last stable offset and the high watermark, of the partitions where there are most; if it "
        "only grows, an undecided transaction holds readers up.",
        labels=("topic", "partition"),
    )
    for (topic, partition), offsets in sorted(stats.last_stable_lag.items()):
        lag.add_metric((printable(topic), str(partition)), offsets)
    yield lag
    yield CounterMetricFamily(
        "kproxy_hidden_bytes", "Bytes of batches that were left out of Fetch answers.", value=stats.hidden_bytes
    )
