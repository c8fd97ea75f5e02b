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
        "kproxy_transactions_open", "Transactions that this kproxy has begun and not yet decided.", value=stats.open
    )
    yield GaugeMetricFamily(
        "kproxy_transaction_oldest_seconds",
        "Age of the oldest open transaction, 0 if there is none; read_committed consumers wait at it.",
        value=age(stats.oldest_open, now),
    )
    yield GaugeMetricFamily(
        "kproxy_transactions_prepared",
        "Prepared parts that wait for their owner; no time-out ends them, except where the broker decides: if "
        "they stay, commit or abort them.",
        value=stats.prepared,
    )
    yield GaugeMetricFamily(
        "kproxy_transaction_prepared_seconds_left",
        "Time until the broker aborts the first prepared member; +Inf if there is none.",
        value=math.inf if stats.prepared_until is None else max(0.0, stats.prepared_until - now),
    )


def _decisions(stats: TransactionStats) -> Iterator[Metric]:
    yield CounterMetricFamily("kproxy_transactions_committed", "Transactions committed.", value=stats.commits)
    yield CounterMetricFamily(
        "kproxy_transactions_torn",
        "Members of committed transactions that the broker aborted before it received the decision: their records "
        "are missing.",
        value=stats.torn,
    )
    yield counter("kproxy_transactions_aborted", "Transactions aborted.", ("reason",), single(stats.aborts, _ABORTS))
    yield counter(
        "kproxy_transaction_claims",
        "Claims of transactional ids; if many are lost, connections of one producer reach several instances.",
        ("outcome",),
        single(stats.claims, ("won", "lost")),
    )
    yield CounterMetricFamily(
        "kproxy_transactions_fenced",
        "Requests of producers that a newer producer of their transactional id has fenced.",
        value=stats.fenced,
    )
    seconds = HistogramMetricFamily(
        "kproxy_transaction_append_seconds",
        "Time to append a decision to the transaction log, until its outcome is known.",
        labels=(),
    )
    add_durations(seconds, (), stats.appends)
    yield seconds


def _log(stats: TransactionStats) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kproxy_transaction_log_lag",
        "Records of the transaction log not applied yet; if it grows, decisions become visible late.",
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
        "Duration of the last load of the transaction log.",
        value=stats.log_load_seconds,
    )


def _unknown(stats: TransactionStats, now: float) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "kproxy_unknown_producer_ids",
        "Producer ids of transactions that consumers have met but the transaction log does not contain: "
        "read_committed consumers wait there; kproxy's log names them.",
        value=stats.unknown,
    )
    yield GaugeMetricFamily(
        "kproxy_unknown_producer_id_oldest_seconds",
        "Time since consumers met the first unknown producer id, 0 if there is none.",
        value=age(stats.oldest_unknown, now),
    )
    yield CounterMetricFamily(
        "kproxy_producer_ids_rejected", "Unknown producer ids that this kproxy has rejected.", value=stats.rejected
    )


def _reading(stats: TransactionStats) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "kproxy_last_stable_offset_lag",
        "Offsets between the last stable offset and the high watermark, of the partitions with the most; if it "
        "keeps growing, an undecided transaction blocks read_committed consumers.",
        labels=("topic", "partition"),
    )
    for (topic, partition), offsets in sorted(stats.last_stable_lag.items()):
        lag.add_metric((printable(topic), str(partition)), offsets)
    yield lag
    yield CounterMetricFamily(
        "kproxy_hidden_bytes", "Bytes of batches that were hidden from Fetch responses.", value=stats.hidden_bytes
    )
