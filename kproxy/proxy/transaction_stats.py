"""Counters of transactions: the coordinator, the follower of the log and the filter of Fetch raise them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kproxy.proxy.durations import Durations


@dataclass(slots=True)
class TransactionStats:
    """What one kproxy has decided and hidden since it began, and how far it has read the transaction log.

    Reasons are words of kproxy's own, never of a client's, so that the dictionaries stay small.
    """

    partitions_max: int = 100
    """Partitions whose last stable offset is told; if there are more, those that lag most."""

    open: int = 0
    """Transactions that this instance has begun and not decided."""
    oldest_open: float | None = None
    """When the oldest of them began, in seconds since the epoch; None if there is none."""
    prepared: int = 0
    """Of all instances: parts that are prepared and wait for their owner's decision."""
    prepared_until: float | None = None
    """When the broker may abort the first of them, in seconds since the epoch; None if it has none of them."""
    torn: int = 0
    """Members that were committed when the broker had aborted them already."""
    commits: int = 0
    """Commits of this instance that the log shows."""
    aborts: dict[str, int] = field(default_factory=dict)
    """By reason, such as "client", "timeout", "fenced", "failed", "rebalance", "operator"."""
    claims: dict[str, int] = field(default_factory=dict)
    """By outcome: "won", or "lost" to another instance."""
    fenced: int = 0
    """Requests of producers that a newer one of the same transactional id has replaced."""
    appends: Durations = field(default_factory=Durations)
    """From the append of a decision until its fate is known."""

    unknown: int = 0
    """Producer ids that readers have met, and of which the log says nothing."""
    oldest_unknown: float | None = None
    """Since when the first of them is unknown, in seconds since the epoch; None if there is none."""
    rejected: int = 0
    """Those that this instance has rejected."""

    log_lag: int = 0
    """Records of the transaction log that are not applied yet, over all its partitions."""
    log_losses: Mapping[str, int] = field(default_factory=dict)
    """How often the log was found to have lost records, by what happened: recreated, truncated, beginning."""
    log_load_seconds: float = 0.0
    """How long the log took to load, the last time it was loaded."""

    last_stable_lag: dict[tuple[str, int], int] = field(default_factory=dict)
    """High watermark less last stable offset, by topic and partition, where that is not 0."""
    hidden_bytes: int = 0
    "Bytes of batches that were hidden from Fetch responses."

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
