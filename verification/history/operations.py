"""The vocabulary of a history: what one client process did, when, and how it ended.

The model is that of ``jepsen.tests.kafka``: operations hold sends and polls of (topic, partition), each with an
outcome that is certain (``ok``, ``fail``) or not (``info``).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What an operation is."""

    SEND = "send"
    """Records sent; each is written or not by itself."""
    POLL = "poll"
    """Records read."""
    COMMIT = "commit"
    """A consumer group's positions, committed."""
    TXN = "txn"
    """Sends, polls and commits that hold all together or not at all."""
    ASSIGN = "assign"
    """The process assigns its partitions and positions again: its next poll need not follow the one before."""
    INIT = "init"
    """An InitProducerId of ``transactional_id``; ``producer`` is the identity in the response."""
    END = "end"
    """One EndTxn of ``producer``: commit or abort. Several of them may belong to one transaction."""
    GROUP = "group"
    """A group's committed offsets, as the process read them; they are in ``commits``."""
    STABLE = "stable"
    """Last stable offsets of partitions, as the process received them; they are listed among the commits."""
    SUBSCRIBE = "subscribe"
    """From here on the group moves the process's partitions: only order within one poll counts."""


class Outcome(StrEnum):
    """How an operation ended, as far as its process knows."""

    OK = "ok"
    FAIL = "fail"
    """Certainly without effect: refused for good, or never sent."""
    INFO = "info"
    """Perhaps with effect: timed out, connection lost, acks=0, NOT_LEADER_OR_FOLLOWER (KAFKA-13574)."""


class Send(NamedTuple):
    """One record sent; the offset is None where the process was not told, or told -1."""

    topic: str
    partition: int
    offset: int | None
    value: str


class Poll(NamedTuple):
    """Records of one partition read by one poll, as (offset, value), in the order in which they came."""

    topic: str
    partition: int
    records: tuple[tuple[int, str], ...]


class Commit(NamedTuple):
    """A group's position in one partition: the offset that it will read next; or a partition's last stable offset."""

    topic: str
    partition: int
    offset: int


class Producer(NamedTuple):
    """A producer's identity."""

    producer_id: int
    epoch: int


class Source(NamedTuple):
    """The input record that an output record was made from."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. Times are nanoseconds of one clock for all processes; ``complete`` is None if it never ended."""

    process: str
    kind: Kind
    outcome: Outcome
    invoke: int
    complete: int | None = None
    sends: tuple[Send, ...] = ()
    polls: tuple[Poll, ...] = ()
    commits: tuple[Commit, ...] = ()
    group: str = ""
    final: bool = False
    """Whether it belongs to the reading of everything at the end. If any does, only those count as having read."""
    error: str = ""
    asked: int | None = None
    """When a transaction's commit was asked for; None: it was not, or nobody noted it."""
    transactional_id: str = ""
    producer: Producer | None = None
    """The identity that the process used, or, of INIT, received; None if nobody noted it."""
    delivered: int | None = None
    """Of END: when the network handed the request to the coordinator; None if nobody noted it."""
    sources: tuple[Source, ...] = ()
    """The input of each record in ``sends``, in their order. An input gives one output; ``group`` reads the inputs."""
    uncommitted: bool = False
    """Whether the polls were made with ``read_uncommitted``, to be compared with those of ``read_committed``."""
