"""Has partitions added to a transaction at the broker's coordinator, with those of all requests that wait."""

from collections.abc import Iterable, Sequence
from typing import Final

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.procedures.broker_protocol import BrokerCoordinator, Protocol
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.procedures.wait_queue import WaitQueue
from kproxy.txn.txn_error import TxnError

#: After each request the queue is checked again, so often: data that arrive in between would wait for the request.
_ROUNDS: Final = 3
#: Answers to AddPartitionsToTxn where a partition was refused, and so none was added.
_NOT_ADDED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


class AddedPartitions:
    """The added partitions of one transactional id."""

    def __init__(self, requests: BrokerCoordinator) -> None:
        """Nobody waits."""
        #: The requests that want to write, and wait for their turn.
        self.line = WaitQueue()
        self._requests = requests

    async def announce(self, transaction: Transaction, protocol: Protocol, places: Iterable[TopicPartition]) -> None:
        """Adds partitions, with those of waiting requests. TxnError in the first protocol.

        Partitions of other requests can't fail this one.
        """
        if transaction.announced.issuperset(places):
            return
        for _ in range(_ROUNDS):
            unknown = transaction.unannounced(dict.fromkeys([*places, *transaction.joined, *self.line.places]))
            if not unknown:
                return
            if protocol.adds and not await self._add(transaction, places, unknown):
                return
            transaction.announced.update(unknown)  # whatever the response is, the broker may have added them
            if not protocol.adds:
                await self._requests.add_ahead(transaction.producer, unknown)

    async def _add(
        self, transaction: Transaction, places: Iterable[TopicPartition], unknown: Sequence[TopicPartition]
    ) -> bool:
        """Adds partitions; False if only those in ``places`` were, since one of the others was refused. TxnError."""
        own = transaction.unannounced(dict.fromkeys(places))
        try:
            await self._requests.add_partitions(transaction.producer, unknown)
        except TxnError as error:
            if error.error_code not in _NOT_ADDED or len(own) == len(unknown):
                raise
            if own:
                await self._requests.add_partitions(transaction.producer, own)
                transaction.announced.update(own)
            return False
        except BaseException:
            transaction.announced.update(unknown)  # the broker may have them, and has to receive the abort
            raise
        return True
