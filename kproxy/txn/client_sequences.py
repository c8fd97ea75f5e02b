"""The sequences of a transactional client, which count on over its transactions, while each of kproxy's begins at 0.

So the client's own sequence distinguishes a repeated batch from a new one, and the repeated one is answered with the
result of the first (Kafka's ``ProducerStateManager``, which keeps five batches).

That holds within one transaction. A client that aborts a transaction may drop a batch whose response was lost, and give
its sequences to the records of the next transaction (librdkafka does). So a batch with sequences of a transaction that
has ended may be a late copy, or new data. It is neither written nor acknowledged.

Such a late copy may also arrive for the first time in the next transaction, before the records that have its sequences
now. Then two batches of the open transaction have the same sequences and different checksums. One of them belongs to
another transaction, and nothing shows which: the open one can only be aborted.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kproxy.codec.packed import Plain
from kproxy.codec.sequence import advance, distance
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch

if TYPE_CHECKING:
    from kproxy.codec.topic_partition import TopicPartition

T = TypeVar("T")

#: As many as a broker knows again.
_KNOWN_BATCHES: Final = 5


class Order(Enum):
    """The place of a batch in the client's order, by its sequence."""

    NEXT = auto()
    AGAIN = auto()
    #: Some of its sequences were used in a transaction that has ended.
    USED = auto()
    #: A batch of the open transaction has the same sequence and other records.
    CONTRADICTED = auto()
    OUT_OF_ORDER = auto()


class ClientSequences(Generic[T]):
    """The last batches that one client sent to each partition, and their results (a ``T`` for each batch)."""

    def __init__(self) -> None:
        """Nothing sent."""
        self._client = Producer(-1, -1)
        self._next: dict[TopicPartition, int] = {}
        #: The transaction, sequence, records, checksum and result of each. Another instance's checksum is unknown.
        self._recent: dict[TopicPartition, deque[tuple[object, int, int, int | None, T | None]]] = {}
        #: Stands for the open transaction, or the last one.
        self._transaction = object()

    def begin(self) -> None:
        """Records that a transaction begins: what was sent until now belongs to those that have ended."""
        self._transaction = object()

    def order(self, client: Producer, batch: ClientBatch) -> tuple[Order, T | None]:
        """The place of a batch in the order; with AGAIN the result recorded of its first arrival.

        A batch without sequence (-1) is always the next. The first of a partition may have any sequence: kproxy may
        have been started after the client.
        """
        self._take_client(client)
        place = (batch.topic, batch.partition)
        if batch.base_sequence < 0:
            return Order.NEXT, None
        if batch.base_sequence == self._next.get(place, batch.base_sequence):
            return Order.NEXT, None  # no batch that is known begins there: it would come before
        recent = self._recent[place]
        order = Order.OUT_OF_ORDER
        for transaction, base, records, crc, noted in recent:
            if not _overlap(batch, base, records):
                continue
            if transaction is not self._transaction:
                order = Order.USED
            elif (base, records) == (batch.base_sequence, batch.records) and crc in (None, batch.crc):
                return Order.AGAIN, noted
            else:
                return Order.CONTRADICTED, None
        return order, None

    def following(self, client: Producer, place: "TopicPartition", otherwise: int) -> int:
        """The sequence that is next in a partition; ``otherwise`` where the client has sent nothing that is known."""
        return self._next.get(place, otherwise) if client == self._client else otherwise

    def restore(
        self, client: Producer, place: "TopicPartition", following: int, recent: Iterable[tuple[int, int, T]]
    ) -> None:
        """Records what a client has sent through other instances: the next sequence, and this transaction's batches."""
        self._take_client(client)
        self._next[place] = following
        known = ((self._transaction, base, records, None, noted) for base, records, noted in recent)
        self._recent[place] = deque(known, maxlen=_KNOWN_BATCHES)

    def clear(self) -> None:
        """Forgets all that was sent: the next batch of each partition may have any sequence."""
        self._next.clear()
        self._recent.clear()

    def pack(self) -> Plain:
        """State for ``unpack`` after the end of a transaction: its batches can't be repeated any more."""
        recent = {place: [known[1:3] for known in batches] for place, batches in self._recent.items()}
        return tuple(self._client), self._next, recent

    def unpack(self, packed: Plain) -> None:
        """Takes the state that ``pack`` returned."""
        client, self._next, recent = packed
        self._client, ended = Producer(*client), object()
        for place, batches in recent.items():
            known = ((ended, base, records, None, None) for base, records in batches)
            self._recent[place] = deque(known, maxlen=_KNOWN_BATCHES)

    def _take_client(self, client: Producer) -> None:
        if client != self._client:
            self._client = client
            self.clear()

    def pass_over(self, batch: ClientBatch) -> None:
        """Records that a batch with used sequences was refused: if it holds new data its client continues after it."""
        place, following = (batch.topic, batch.partition), advance(batch.base_sequence, batch.records)
        if distance(self._next[place], following) < batch.records:
            self._next[place] = following

    def note(self, batch: ClientBatch, noted: T) -> None:
        """Takes a batch as the newest of its partition."""
        if batch.base_sequence < 0:
            return
        place = (batch.topic, batch.partition)
        self._next[place] = advance(batch.base_sequence, batch.records)
        recent = self._recent.setdefault(place, deque(maxlen=_KNOWN_BATCHES))
        recent.append((self._transaction, batch.base_sequence, batch.records, batch.crc, noted))


def _overlap(batch: ClientBatch, base: int, records: int) -> bool:
    """Whether a batch has sequences of another one."""
    return distance(base, batch.base_sequence) < records or distance(batch.base_sequence, base) < batch.records
