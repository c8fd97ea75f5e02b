"""Counters of transactions: the coordinator, the follower of the log and the filter of Fetch raise them."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from collections.abc import Mapping
from dataclasses import dataclass, field

from kproxy.proxy.durations import Durations
from kproxy.proxy.metric_fields import counter, counters, durations, gauge, moment


@dataclass(slots=True)
class TransactionStats:
    """What one kproxy has decided and hidden since it began, and how far it has read the transaction log.

    Reasons are words of kproxy's own, never of a client's, so that the dictionaries stay small.
    """

    partitions_max: int = 100
    """Partitions whose lag is shown; if there are more, those that lag most."""

    open: int = gauge("Transactions that this kproxy has begun and not yet decided.", "transactions_open")
    oldest_open: float | None = moment(
        "Age of the oldest open transaction, 0 without one; read_committed consumers wait at it.",
        "transaction_oldest_seconds",
    )
    ids: int = gauge(
        "Transactional ids that kproxy's log holds; unused ones expire after transactional.id.timeout.ms.",
        "transactional_ids",
    )
    prepared: int = gauge(
        "Prepared parts that wait for their owner. Only where the broker decides a time-out ends them: commit or "
        "abort what stays.",
        "transactions_prepared",
    )
    prepared_until: float | None = None
    """When the broker may abort the first of them, in seconds since the epoch; None if it has none of them."""
    torn: int = counter(
        "Members of committed transactions that the broker aborted before it received the decision: their records are "
        "missing.",
        "transactions_torn",
    )
    commits: int = counter("Transactions committed.", "transactions_committed")
    aborts: dict[str, int] = counters(
        "Transactions aborted.",
        "reason",
        name="transactions_aborted",
        expected=("client", "failed", "fenced", "initialized"),
    )
    resumed: int = counter(
        "Open transactions that another instance began, or this one before a restart, and this kproxy continues.",
        "transactions_resumed",
    )
    claims: dict[str, int] = counters(
        "Claims of transactional ids; if many are lost, connections of one producer reach several instances.",
        "outcome",
        name="transaction_claims",
        expected=("won", "lost"),
    )
    foreign: int = counter(
        "Requests with the identity of a transactional id that was given to another client, refused.",
        "transactions_foreign_requests",
    )
    fenced: int = counter(
        "Requests of producers that a newer producer of their transactional id has fenced.", "transactions_fenced"
    )
    continued: int = counter(
        "Clients of transactions.home broker-fenced that continued after a restart of kproxy.", "transactions_continued"
    )
    unrecorded: int = counter(
        "Transactions of broker-fenced that did not wait for their slow entry in __kproxy_producer_state; if kproxy "
        "is restarted now, their clients have to create new producers.",
        "transactions_unrecorded",
    )
    appends: Durations = durations(
        "Time to append a decision to the transaction log and know its outcome.", "transaction_append_seconds"
    )

    unknown: int = gauge(
        "Producer ids of transactions that consumers have met but the transaction log does not contain; "
        "read_committed consumers wait there. kproxy's log names them.",
        "unknown_producer_ids",
    )
    oldest_unknown: float | None = moment(
        "Time since consumers met the first unknown producer id, 0 without one.",
        "unknown_producer_id_oldest_seconds",
    )
    rejected: int = counter("Unknown producer ids that this kproxy has rejected.", "producer_ids_rejected")

    log_lag: int = gauge(
        "Records of the transaction log not applied yet; if it grows, decisions become visible late.",
        "transaction_log_lag",
    )
    log_losses: Mapping[str, int] = counters(
        "Times that a partition of the transaction log had lost records, by what happened.",
        "reason",
        name="transaction_log_losses",
        expected=("beginning", "recreated", "truncated"),
    )
    log_load_seconds: float = gauge("Duration of the last load of the transaction log.", "transaction_log_load_seconds")

    last_stable_lag: dict[tuple[str, int], int] = field(default_factory=dict)
    """High watermark less last stable offset, by topic and partition, where that is not 0."""
    hidden_bytes: int = counter("Bytes of batches that were hidden from Fetch responses.")

    def count_fenced(self) -> None:
        """Counts one request of a producer that was replaced."""
        self.fenced += 1

    def aborted(self, reason: str) -> None:
        """Counts one abort."""
        self.aborts[reason] = self.aborts.get(reason, 0) + 1

    def claimed(self, outcome: str) -> None:
        """Counts one claim."""
        self.claims[outcome] = self.claims.get(outcome, 0) + 1

    def stable(self, topic: str, partition: int, lag: int) -> None:
        """Notes how many offsets of a partition lie between its last stable offset and its high watermark."""
        lags, place = self.last_stable_lag, (topic, partition)
        if lag <= 0:
            lags.pop(place, None)
            return
        if place not in lags and len(lags) >= self.partitions_max:
            least = min(lags, key=lags.__getitem__)
            if lags[least] >= lag:
                return
            del lags[least]
        lags[place] = lag
