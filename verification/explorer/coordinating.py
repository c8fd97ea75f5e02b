"""The broker's coordinator of a transactional id: the fake broker's ``TransactionalId``, and the data of its producers.

That behaves as a real Kafka was measured to. Each request is one step: its markers are written with it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproxy.codec._generated.describe_transactions import DescribeTransactionsResponseTransactionState as Described
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.testing.fake_broker.apis.transaction_admin_apis import _STATE_NAMES
from kproxy.testing.fake_broker.transactional_ids import TransactionalId, TxnState
from kproxy.txn.ids import Producer
from kproxy.txn.verdict import Verdict
from verification.explorer.world import Partition, Stored, World

COMMIT: Final = "commit"
_ABORT: Final = "abort"
#: Writes a marker: of which producer, and how its transaction ended.
Mark: TypeAlias = Callable[[TopicPartition, Producer, str], None]


class CoordinatedId:
    """One transactional id."""

    def __init__(
        self,
        level: int,
        partitions: Mapping[TopicPartition, Partition],
        new_producer_id: Callable[[], int],
        mark: Mark,
    ) -> None:
        """Nobody has asked for it. ``level``: of ``transaction.version``; at 2 each end raises the epoch."""
        self.level = level
        self.one: TransactionalId | None = None
        self._partitions = partitions
        self._new_producer_id = new_producer_id
        self._mark = mark

    @property
    def is_open(self) -> bool:
        """Whether it has an open transaction."""
        return self.one is not None and self.one.state is TxnState.ONGOING

    @property
    def producer(self) -> Producer:
        """The identity that has it."""
        assert self.one is not None
        return Producer(self.one.producer_id, self.one.epoch)

    def facts(self) -> tuple[Any, ...]:
        """Return what tells it from others."""
        one = self.one
        known = None if one is None else (one.producer_id, one.epoch, one.last_epoch, one.state.name)
        return known, () if one is None else tuple(sorted(one.places))

    def ask(self, request: Any) -> Any:
        """Return the response to a request, or an error."""
        if isinstance(request, InitProducerIdRequest):
            return self._init(request)
        assert self.one is not None
        if isinstance(request, EndTxnRequest):
            return self._end(self.one, request)
        assert isinstance(request, AddPartitionsToTxnRequest)
        places = [(row.name, index) for row in request.v3_and_below_topics for index in row.partitions]
        producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        return self.one.check(*producer) or self.one.join(0, places)

    def _init(self, request: InitProducerIdRequest) -> Any:
        one, is_named = self.one, request.producer_id >= 0
        if one is None:
            one = self.one = TransactionalId(self._new_producer_id(), 0)
            return InitProducerIdResponse(producer_id=one.producer_id, producer_epoch=0)
        if is_named and request.producer_id != one.producer_id:
            return ErrorCode.PRODUCER_FENCED
        if self.is_open:
            self.abort()
            return ErrorCode.CONCURRENT_TRANSACTIONS
        error = one.renew(request.producer_epoch if is_named else None)
        return error or InitProducerIdResponse(producer_id=one.producer_id, producer_epoch=one.epoch)

    def _end(self, one: TransactionalId, request: EndTxnRequest) -> Any:
        asked = request.producer_id, request.producer_epoch, request.committed
        error = one.end_and_raise(*asked) if self.level > 1 else one.end(*asked)
        self.complete()
        if error:
            return error
        return (
            EndTxnResponse(producer_id=one.producer_id, producer_epoch=one.epoch)
            if self.level > 1
            else EndTxnResponse()
        )

    def abort(self) -> None:
        """Abort what is open; its producer can do nothing any more."""
        assert self.one is not None
        self.one.fence()
        self.complete()

    def complete(self) -> None:
        """Write the markers, if something is to be completed."""
        one = self.one
        assert one is not None
        if not one.prepared:
            return
        for place in sorted(one.places):
            self._mark(place, self.producer, COMMIT if one.committed else _ABORT)
        one.places.clear()
        one.complete()

    def describe(self) -> Described | None:
        """Return what the coordinator knows."""
        one = self.one
        if one is None:
            return None
        return Described(
            transaction_state=_STATE_NAMES[one.state], producer_id=one.producer_id, producer_epoch=one.epoch
        )

    def write(self, place: TopicPartition, producer: Producer, sequence: int, payload: str) -> int | None:
        """Return the offset of a batch; None if it is refused. The leader asks the coordinator before it takes one."""
        one, partition = self.one, self._partitions[place]
        assert one is not None
        is_added = self.level > 1 or (self.is_open and place in one.places)
        if one.check(*producer) or not is_added:
            return None
        known = (row for row in partition.rows if (row.producer_id, row.producer_epoch) == producer)
        if (again := next((row for row in known if row.base_sequence == sequence), None)) is not None:
            return again.base_offset  # brokers treat it as a repeated batch
        if partition.producers.refuses(producer, sequence):
            return None
        one.join(0, [place])
        return self.store(place, producer, sequence, payload)

    def store(self, place: TopicPartition, producer: Producer, sequence: int, payload: str) -> int:
        """Write a batch; its offset."""
        partition = self._partitions[place]
        partition.producers.note(producer, sequence)
        offset = len(partition.rows)
        partition.rows.append(Stored(*producer, sequence, offset, payload))
        return offset


def put_marker(partition: Partition, producer: Producer, outcome: str) -> None:
    """Write the marker of an end."""
    partition.rows.append(Stored(*producer, -1, len(partition.rows), outcome, is_control=True))
    partition.producers.fence(*producer)


def ended_by_marker(rows: Sequence[Stored], row: Stored) -> Verdict:
    """Judge a batch by the first marker of its producer after it."""
    for later in rows[row.base_offset + 1 :]:
        if later.is_control and later.producer_id == row.producer_id:
            return Verdict.COMMITTED if later.payload == COMMIT else Verdict.ABORTED
    return Verdict.UNDECIDED


class CoordinatingWorld(World):
    """A world with the broker's coordinator."""

    def __init__(self, budget: Mapping[str, int], level: int) -> None:
        """``level``: of ``transaction.version``."""
        super().__init__(budget)
        self.level = level

    def harm(self) -> None:
        """Something has happened that may cost a client its producer."""
        self.budget.taken.add("harm")

    def ask(self, request: Any, *, is_late: bool) -> Any:
        """The response to a request; ``is_late``: of a kproxy that was killed, or that has given it up."""
        raise NotImplementedError

    def describe(self, transactional_id: str) -> Described | None:
        """Return what the coordinator knows of an id."""
        raise NotImplementedError
