"""The anomalies that are distinguished, by the numbers that they have elsewhere."""

from dataclasses import dataclass
from enum import Enum

from verification.history.operations import Operation


class AnomalyKind(Enum):
    """Name, number and meaning; ``int-`` is said of what happens within one operation."""

    UNSENT = "unsent", 0, "a record was read that nobody sent"
    DUPLICATE = "duplicate", 1, "a record sent once is in the log more than once"
    INCONSISTENT_OFFSET = "inconsistent-offset", 2, "one offset has more than one value"
    LOST_WRITE = "lost-write", 3, "an acknowledged record is not in the log, though what follows it is"
    UNSEEN = "unseen", 4, "an acknowledged record was read by nobody"
    ABORTED_READ = "aborted-read", 5, "a record was read whose sender got the answer that it is not written"
    PRECOMMITTED_READ = "precommitted-read", 6, "a record was read before the commit of its transaction was asked for"
    G1C = "g1c", 7, "transactions read each other's records in a circle"
    TORN = "torn", 8, "of one transaction some records are in the log and others are not"
    POLL_SKIP = "poll-skip", 9, "a reader left out a record between two polls"
    INT_POLL_SKIP = "int-poll-skip", 9, "a reader left out a record within one poll"
    NONMONOTONIC_POLL = "nonmonotonic-poll", 10, "a poll gave a record that is not after the poll before"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll", 10, "one poll gave records out of order"
    NONMONOTONIC_SEND = "nonmonotonic-send", 10, "a later send of a process stands before an earlier one"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send", 10, "the records of one send stand out of order"
    EOS_BREAK = "eos-break", 11, "a group's committed offset and the outputs of its inputs disagree"
    ZOMBIE = "zombie", 12, "a record is visible that a producer sent after another one had fenced it"
    FENCED_SUCCESS = "fenced-success", 13, "an EndTxn succeeded that a producer sent after another one had fenced it"
    DELAYED_END = "delayed-end", 14, "an EndTxn that arrived late changed the next transaction"
    UNSTABLE = "unstable", 15, "a last stable offset fell, was above an undecided record, or stayed too long"
    FILTER_MISMATCH = "filter-mismatch", 16, "read_committed is not read_uncommitted without what is not committed"
    FALSE_DEDUP = "false-de-dup", 17, "of equal records more or fewer are in the log than were sent"
    DOUBLE_ACK = "double-ack", 18, "two sends were acknowledged with one offset"

    def __init__(self, title: str, number: int, meaning: str) -> None:
        self.title = title
        self.number = number
        self.meaning = meaning


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly found.

    ``offsets`` and ``value`` say where; ``operations`` are the sends or polls that show it, three at most. Without a
    partition (as an EndTxn has none) ``topic`` is empty and ``partition`` is -1.
    """

    kind: AnomalyKind
    topic: str
    partition: int
    detail: str
    value: str | None = None
    offsets: tuple[int, ...] = ()
    operations: tuple[Operation, ...] = ()
