"""Requests that the broker of a client's port does not decide: for a group's coordinator, or for kproxy itself."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kproxy.codec._generated.offset_commit import OffsetCommitRequest
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest
from kproxy.codec.messages import Message
from kproxy.codec.produce_frames import produce_response
from kproxy.codec.produce_layout import TopicRef
from kproxy.proxy.kept_calls import RepairRequest
from kproxy.txn.ids import Producer
from kproxy.txn.requests import TxnRequest

if TYPE_CHECKING:
    from kproxy.proxy.applications import Application
    from kproxy.txn.procedures.captured import ImplicitTransaction


class GroupRequest(NamedTuple):
    """A request for the coordinator of a group, wherever that is."""

    group_id: str
    request: Message


class TransactionRequest(NamedTuple):
    """A request about a transaction that kproxy decides: the client's own message, and its identity."""

    who: TxnRequest
    request: Message
    #: Of the client.
    principal: str = ""


class ProducePart(NamedTuple):
    """One partition of a transactional Produce request: an error, or a batch in writable memory."""

    topic: TopicRef
    partition: int
    batch: memoryview
    records: int
    #: The client's own: it counts on over its transactions.
    base_sequence: int
    error_code: int = 0


class TransactionalProduce(NamedTuple):
    """The batches of a transactional Produce request, in its order."""

    who: TxnRequest
    parts: Sequence[ProducePart]


class Produced(NamedTuple):
    """The response to such a request, in the words of its version."""

    version: int
    #: Topic, partition, error, offset, time of the append.
    rows: Sequence[tuple[TopicRef, int, int, int, int]]

    def frame(self, correlation_id: int) -> bytes:
        """The whole frame."""
        return produce_response(self.version, correlation_id, self.rows)


class AbortRequest(NamedTuple):
    """The permitted abort of another client's open transaction: the client's own message, and the owner."""

    transactional_id: str
    client: Producer
    request: Message


class ImplicitProduce(NamedTuple):
    """The batches of a client that knows nothing of the transaction into which they go."""

    capture: "ImplicitTransaction"
    connection: int
    parts: Sequence[ProducePart]
    #: When it came: the time of records that had none.
    arrival_ms: int


class UnstableOffsets(Enum):
    """What is done with the offsets that an open transaction has."""

    TELL = auto()
    """The client receives UNSTABLE_OFFSET_COMMIT (KIP-447)."""
    WAIT = auto()
    """The client has no word for it: it waits for the decision."""
    LAST = auto()
    """The client wants the last offset that was committed, whatever is open."""


class ApplicationCommit(NamedTuple):
    """An OffsetCommit that is the end of a transaction."""

    application: "Application"
    connection: int
    request: OffsetCommitRequest


class BeforeOffsetFetch(NamedTuple):
    """What the transaction log says of the offsets of groups, before the broker is asked."""

    group_ids: Sequence[str]
    unstable: UnstableOffsets
    #: Whether topics are to be named by their ids.
    by_id: bool
    #: The same question to the brokers, each group by itself, that only stable offsets answer.
    stable: Sequence[OffsetFetchRequest] = ()


class BeforeOffsetChange(NamedTuple):
    """The brokers have what transactions have committed of groups, before their offsets are committed or deleted."""

    group_ids: Sequence[str]


CoordinatorRequest: TypeAlias = (
    GroupRequest
    | TransactionRequest
    | TransactionalProduce
    | ImplicitProduce
    | ApplicationCommit
    | BeforeOffsetFetch
    | BeforeOffsetChange
    | AbortRequest
    | RepairRequest
)

#: What it is answered.
CoordinatorAnswer: TypeAlias = Message | Produced
