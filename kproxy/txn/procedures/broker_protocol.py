"""The two protocols in which a broker's coordinator is asked (KIP-98, KIP-890), and what its errors mean."""

from collections.abc import Collection
from typing import Final, NamedTuple
from typing import Protocol as Port

from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsResponseTransactionState as Described,
)
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.txn_error import TxnError

FIRST_LEVEL: Final = 1
SECOND_LEVEL: Final = 2


class Protocol(NamedTuple):
    """The newest version of each request that says what is meant."""

    produce: int
    commit_offsets: int
    end: int

    @property
    def adds(self) -> bool:
        """Whether partitions and groups have to be added to a transaction."""
        return self is FIRST

    @property
    def level(self) -> int:
        """The level of ``transaction.version``, which says which of the two protocols it is."""
        return FIRST_LEVEL if self.adds else SECOND_LEVEL

    @staticmethod
    def of(level: int) -> "Protocol":
        """The protocol in which a transaction was begun at a level."""
        return SECOND if level >= SECOND_LEVEL else FIRST


FIRST: Final = Protocol(11, 4, 4)
#: Later versions name topics by ids alone (Produce v13, TxnOffsetCommit v6); kproxy's transactions have their names.
SECOND: Final = Protocol(12, 5, 5)

#: Another has taken the id, or the broker has ended the transaction, which took too long.
REPLACED: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
#: The same. Where each end raises the epoch the broker takes a commit for the repeated end of its own abort, and
#: says that the state is another one.
OVER: Final = REPLACED | {ErrorCode.INVALID_TXN_STATE}

#: Kafka's last epoch of a producer id. The next one has a fresh producer id.
_LAST_EPOCH: Final = 32_766


def granted(transactional_id: str, resumed: Producer, given: Producer, *, is_reserved: bool) -> Producer:
    """Return the identity that a coordinator gave, in the name of another one (KIP-360) or NOBODY.

    ``is_reserved``: its producer id is one of those that kproxy takes for its own batches.

    A coordinator that no longer knows the id grants it to any identity, also to one that a newer producer has replaced.
    A fresh producer id shows this. TxnError (PRODUCER_FENCED) then; (TRANSACTIONAL_ID_AUTHORIZATION_FAILED) for a
    reserved one.
    """
    if given.producer_id != resumed.producer_id and 0 <= resumed.epoch < _LAST_EPOCH:
        why = f"the broker has forgotten {transactional_id}, and its last owner"
        raise TxnError(ErrorCode.PRODUCER_FENCED, why)
    if is_reserved:
        what = "a producer id of 2^61 or more, which kproxy reserves for its own batches"
        why = f"the broker assigns {transactional_id} {what}"
        raise TxnError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)
    return given


def leaves_open(error: ErrorCode, *, was_commit_open: bool) -> bool:
    """Whether the outcome of a commit is open in spite of an error; ``was_commit_open``: it had been sent before.

    Another producer may have the id by then. This says nothing of the first request, which may have been taken.
    """
    return was_commit_open and error in REPLACED


class BrokerCoordinator(Port):
    """Asks the broker's coordinator of a transactional id, until its response is definite. TxnError."""

    async def protocol(self, *, refresh: bool = False) -> Protocol:
        """The transaction protocol that the cluster has agreed on (KIP-584)."""
        ...

    async def init(self, timeout_ms: int, resumed: Producer = NOBODY, *, repeats: bool = True) -> Producer:
        """InitProducerId; ``resumed``: in the name of which identity (KIP-360).

        ``repeats``: False if it must not be sent again without a response, as the first one may still arrive:
        COORDINATOR_NOT_AVAILABLE then.
        """
        ...

    async def add_ahead(self, producer: Producer, places: Collection[TopicPartition]) -> None:
        """Has the broker know partitions before the first data, if that goes well."""
        ...

    async def add_partitions(self, producer: Producer, places: Collection[TopicPartition]) -> None:
        """AddPartitionsToTxn."""
        ...

    async def commit_offsets(self, producer: Producer, protocol: Protocol, offsets: TransactionOffsets) -> None:
        """AddOffsetsToTxn, where the protocol needs it, and TxnOffsetCommit."""
        ...

    async def describes(self) -> bool:
        """Whether the coordinator says what it knows of an id."""
        ...

    async def describe(self) -> Described | None:
        """DescribeTransactions; None if the coordinator does not know the id."""
        ...

    async def end(self, producer: Producer, protocol: Protocol, *, committed: bool) -> Producer | None:
        """EndTxn; the next identity, where the end raises the epoch."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether it has connections to coordinators."""
        ...

    def disconnect(self) -> None:
        """Closes its connections on which nothing is in flight."""
        ...

    def close(self) -> None:
        """Closes its connections."""
        ...
