"""All findings: what each means, how bad it is, and what to do about it."""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from kproxy.spark.audit import content, exposure, group_checks, sequences, transaction_checks
from kproxy.spark.audit.tables import Limits


class Severity(Enum):
    """How bad a row of a finding is."""

    BROKEN = "broken"
    """A promise does not hold: readers see too much, too little, or wait for ever."""
    WARNING = "warning"
    """No promise is broken, but something may be wrong, or can go wrong."""
    UNKNOWN = "unknown"
    """It cannot be judged any more; the verdict does not depend on it."""


class Finding(NamedTuple):
    """One kind of fault. ``build`` is the SQL of its rule: one row for each fault, with the time of it in ``at``."""

    name: str
    title: str
    severity: Severity
    meaning: str
    remedy: str
    worst: str
    """The column, largest first, by which the worst are chosen."""
    then: str
    """Columns that order rows which are equally bad, so that both engines show the same ones."""
    build: Callable[[Limits], str]
    repeated: Callable[[str], str] | None = None
    """Of a view with rows that say that records are there twice, the SQL of these records: drawn over time."""


FINDINGS: Final = (
    Finding(
        "duplicate_sequences",
        "Batches written twice",
        Severity.BROKEN,
        "A producer's sequences repeat or go back: readers see these records more than once. Brokers and kproxy "
        "both keep this from happening as long as they remember the producer.",
        "Compare with the broker's producer.id.expiration.ms and with the producers that wrote around the time "
        "shown; consumers that must not count twice skip the offsets shown.",
        "repeated",
        "topic, partition, first_offset",
        sequences.duplicate_sequences,
        repeated=content.within_offsets,
    ),
    Finding(
        "duplicate_keys",
        "Keys that come more than once",
        Severity.BROKEN,
        "More than one record of a topic has the same value of the expression given with --key.",
        "If the producers are unprotected, retries are the likely reason: connect them through kproxy. If they are "
        "protected, the application itself wrote twice.",
        "repeated",
        "topic, duplicate_key",
        content.duplicate_keys,
        repeated=content.later_of_a_key,
    ),
    Finding(
        "identical_runs",
        "Runs of records that were there before",
        Severity.WARNING,
        "Several records in a row are equal, byte by byte in key and value, to records that the same producer wrote a "
        "short time before: what a retry without idempotence leaves behind.",
        "If the topic has no such repetitions by nature, connect its producers through kproxy.",
        "repeated",
        "topic, partition, first_offset, earlier_offset",
        content.identical_runs,
        repeated=content.within_offsets,
    ),
    Finding(
        "sequence_gaps",
        "Missing sequences",
        Severity.BROKEN,
        "Between two batches of one producer sequences are missing: acknowledged records may be lost.",
        "Look for an unclean leader election or records deleted by hand; unclean.leader.election.enable must be false.",
        "missing",
        "topic, partition, base_offset",
        sequences.sequence_gaps,
    ),
    Finding(
        "torn_transactions",
        "Torn transactions",
        Severity.BROKEN,
        "A transaction was committed, and data that it wrote are missing in a partition: readers see a part of it.",
        "Look for an unclean leader election or records deleted by hand in the partition, and have the transaction's "
        "source write it again.",
        "decided_end_offset",
        "topic, partition, transactional_id",
        transaction_checks.torn_transactions,
    ),
    Finding(
        "open_transactions",
        "Transactions open for too long",
        Severity.BROKEN,
        "A transaction is neither committed nor aborted: read_committed consumers wait at it. Any kproxy aborts it "
        "after its time-out; so none may be running, or its time-out is too long.",
        "kproxy txn describe ID, then kproxy txn abort ID.",
        "seconds",
        "transactional_id, producer_id",
        transaction_checks.open_transactions,
    ),
    Finding(
        "prepared_transactions",
        "Prepared, and not decided for too long",
        Severity.WARNING,
        "A part is prepared; from then on nobody but its owner decides it, and read_committed consumers wait.",
        "Let the application that prepared it come back, or decide: kproxy txn commit ID, or kproxy txn abort ID.",
        "seconds",
        "transactional_id, producer_id",
        transaction_checks.prepared_transactions,
    ),
    Finding(
        "stuck_partitions",
        "Last stable offsets that do not move",
        Severity.BROKEN,
        "The first undecided batch of a partition is too old; read_committed consumers see nothing after it.",
        "If the producer id is one of kproxy's: kproxy txn list. Else it is a transaction of the brokers' own: "
        "kafka-transactions.sh find-hanging, then abort.",
        "seconds",
        "topic, partition",
        transaction_checks.stuck_partitions,
    ),
    Finding(
        "unknown_producers",
        "Unknown producer ids",
        Severity.BROKEN,
        "Batches of one of kproxy's transactions of which the transaction log says nothing; read_committed consumers "
        "wait at them. The log, or a part of it, was lost, or they come from another cluster's log.",
        "If the log will not come back, reject the producer id: its data are treated as aborted then.",
        "hidden_bytes",
        "topic, partition, first_offset",
        transaction_checks.unknown_producers,
    ),
    Finding(
        "unreadable_log",
        "Transaction log that can't be read",
        Severity.BROKEN,
        "A record of the transaction log is damaged, or of a newer kproxy: this version decides nothing after it.",
        "Use the newest version of kproxy that runs on the cluster; nobody but kproxy may write to the topic.",
        "log_offset",
        "log_partition",
        transaction_checks.unreadable_log,
    ),
    Finding(
        "group_offsets_behind",
        "Groups whose offsets are before their own outputs",
        Severity.BROKEN,
        "A transaction committed outputs together with an offset of the group, and the group's offset is lower now: "
        "a consumer that starts there processes the same records again.",
        "Unless somebody has set the group back on purpose, commit the decided offset while the group is stopped.",
        "behind",
        "group_id, topic, partition",
        group_checks.group_offsets_behind,
    ),
    Finding(
        "unknown_groups",
        "Groups that cannot be judged",
        Severity.UNKNOWN,
        "A transaction committed an offset of the group, and either the partition is shorter than that offset now (the "
        "topic was recreated), or the group has no offsets any more (it was deleted, or they have expired).",
        "Nothing, if the topic or the group was deleted on purpose.",
        "decided_offset",
        "group_id, topic, partition",
        group_checks.unknown_groups,
    ),
    Finding(
        "unprotected",
        "Written without protection",
        Severity.WARNING,
        "Records were written without a producer id, past kproxy: each retry of such a producer may write them twice.",
        "Have these producers connect through kproxy.",
        "unprotected_bytes",
        "topic",
        exposure.unprotected,
    ),
)
"""In the order of the report."""
