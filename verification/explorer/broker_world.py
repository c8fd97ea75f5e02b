"""The world where the broker's coordinator decides: that coordinator, and the log of the epochs that stand for clients.

The coordinator is the fake broker's ``TransactionalId``, which behaves as a real Kafka was measured to. Each request is
one step: its markers are written with it.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproxy.codec._generated.describe_transactions import DescribeTransactionsResponseTransactionState as Described
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.testing.fake_broker.apis.transaction_admin_apis import _STATE_NAMES
from kproxy.testing.fake_broker.transactional_ids import TransactionalId, TxnState
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.verdict import Verdict
from verification.explorer.engine import Move, Scope
from verification.explorer.world import PARTITIONS, Stored, World

if TYPE_CHECKING:
    from kproxy.txn.stored_epochs import StoredEpoch

_COMMIT: Final = "commit"
_OTHER: Final = "of another producer"


class BrokerWorld(World):
    """All but what kproxy and its client know."""

    #: Whether kproxy may take the id from another producer that has taken it.
    may_take_back = False

    def __init__(self, budget: Mapping[str, int], level: int) -> None:
        """``level``: of ``transaction.version``; at 2 each end raises the epoch."""
        super().__init__(budget)
        self.level = level
        self.coordinator: TransactionalId | None = None
        #: The entry in the log of producer ids.
        self.recorded: StoredEpoch | None = None
        #: The epoch that another producer has received.
        self.foreign: Producer | None = None

    def facts(self) -> tuple[Any, ...]:
        """Return what tells this world from others, beside what all worlds have."""
        one = self.coordinator
        known = None if one is None else (one.producer_id, one.epoch, one.last_epoch, one.state.name)
        places = () if one is None else tuple(sorted(one.places))
        return known, places, self.recorded, self.foreign, "harm" in self.budget.taken

    def harm(self) -> None:
        """Something has happened that may cost the client its producer."""
        self.budget.taken.add("harm")

    # -- the coordinator

    def ask(self, request: Any, *, is_late: bool) -> Any:
        """The response to a request; ``is_late``: of a kproxy that was killed."""
        if isinstance(request, InitProducerIdRequest):
            return self._init(request, is_late=is_late)
        if isinstance(request, EndTxnRequest):
            return self._end(request)
        assert isinstance(request, AddPartitionsToTxnRequest)
        places = [(row.name, index) for row in request.v3_and_below_topics for index in row.partitions]
        producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        assert self.coordinator is not None
        error = self.coordinator.check(*producer)
        return error or self.coordinator.join(0, places)

    def _init(self, request: InitProducerIdRequest, *, is_late: bool) -> Any:
        one, is_named = self.coordinator, request.producer_id >= 0
        if one is None:
            self.coordinator = TransactionalId(101, 0)
            return InitProducerIdResponse(producer_id=101, producer_epoch=0)
        if is_named and request.producer_id != one.producer_id:
            return ErrorCode.PRODUCER_FENCED
        if one.state is TxnState.ONGOING:
            if is_late:
                self.harm()
            one.fence()
            self._complete()
            return ErrorCode.CONCURRENT_TRANSACTIONS
        error = one.renew(request.producer_epoch if is_named else None)
        return error or InitProducerIdResponse(producer_id=one.producer_id, producer_epoch=one.epoch)

    def _end(self, request: EndTxnRequest) -> Any:
        one = self.coordinator
        assert one is not None
        asked = request.producer_id, request.producer_epoch, request.committed
        error = one.end_and_raise(*asked) if self.level > 1 else one.end(*asked)
        self._complete()
        if error:
            return error
        return (
            EndTxnResponse(producer_id=one.producer_id, producer_epoch=one.epoch)
            if self.level > 1
            else EndTxnResponse()
        )

    def _complete(self) -> None:
        """Writes the markers, if something is to be completed."""
        one = self.coordinator
        assert one is not None
        if not one.prepared:
            return
        for place in sorted(one.places):
            self._mark(place, Producer(one.producer_id, one.epoch), "commit" if one.committed else "abort")
        one.places.clear()
        one.complete()

    def _mark(self, place: TopicPartition, producer: Producer, outcome: str) -> None:
        rows, producers = self.partitions[place].rows, self.partitions[place].producers
        rows.append(Stored(*producer, -1, len(rows), outcome, is_control=True))
        producers.fence(*producer)

    def describe(self) -> Described | None:
        """Return what the coordinator knows."""
        one = self.coordinator
        if one is None:
            return None
        return Described(
            transaction_state=_STATE_NAMES[one.state], producer_id=one.producer_id, producer_epoch=one.epoch
        )

    # -- partitions

    def write(self, place: TopicPartition, producer: Producer, sequence: int, payload: str) -> int | None:
        """The leader asks the coordinator before it takes a batch."""
        one, partition = self.coordinator, self.partitions[place]
        assert one is not None
        is_added = self.level > 1 or (one.state is TxnState.ONGOING and place in one.places)
        if one.check(*producer) or not is_added:
            return None
        known = (row for row in partition.rows if (row.producer_id, row.producer_epoch) == producer)
        if (again := next((row for row in known if row.base_sequence == sequence), None)) is not None:
            return again.base_offset  # brokers treat it as a repeated batch
        if partition.producers.refuses(producer, sequence):
            return None
        one.join(0, [place])
        if self.foreign is not None and producer >= self.foreign and not (self.may_take_back or payload == _OTHER):
            self.broken.append(f"replaced: {payload} is written, though another producer has the id")
        return self._store(place, producer, sequence, payload)

    def _store(self, place: TopicPartition, producer: Producer, sequence: int, payload: str) -> int:
        partition = self.partitions[place]
        partition.producers.note(producer, sequence)
        offset = len(partition.rows)
        partition.rows.append(Stored(*producer, sequence, offset, payload))
        return offset

    def verdict(self, place: TopicPartition, row: Stored) -> Verdict:
        """Judge it by the first marker of its producer after it."""
        for later in self.partitions[place].rows[row.base_offset + 1 :]:
            if later.is_control and later.producer_id == row.producer_id:
                return Verdict.COMMITTED if later.payload == _COMMIT else Verdict.ABORTED
        return Verdict.UNDECIDED

    # -- what may happen

    def moves(self) -> list[Move]:
        """Each thing that may happen next."""
        found = super().moves()
        one = self.coordinator
        if self.budget["overdue"] and one is not None and one.state is TxnState.ONGOING:
            found.append(Move("the broker aborts what takes too long", self._time_out, is_fault=True))
        if self.budget["take"] and one is not None and self._are_known():
            found.append(Move("another producer takes the id, commits and goes", self._take, is_fault=True))
        for task in self.engine.tasks:
            for scope in task.scopes:
                kind = task.waits.kind if task.waits is not None and scope.seconds is not None else ""
                if kind == "event" and self.budget["slow"]:
                    found.append(Move("the log is too slow", partial(self._slow, scope, "slow"), is_fault=True))
                if kind == "ask" and self.budget["ahead"]:
                    found.append(
                        Move("the coordinator is too slow", partial(self._slow, scope, "ahead"), is_fault=True)
                    )
        return found

    def _are_known(self) -> bool:
        """Whether no client asks for the id without an identity any more."""
        return all(client.identity != NOBODY and not client.has_rival for client in self.clients)

    def _time_out(self) -> None:
        self.budget.take("overdue")
        self.harm()
        assert self.coordinator is not None
        self.coordinator.fence()
        self._complete()

    def _slow(self, scope: Scope, what: str) -> None:
        self.budget.take(what)
        self.harm()
        scope.cancel()

    def _take(self) -> None:
        self.budget.take("take")
        one = self.coordinator
        assert one is not None
        if one.state is TxnState.ONGOING:
            one.fence()
            self._complete()
        one.renew(None)
        self.foreign = Producer(one.producer_id, one.epoch)
        place = PARTITIONS[0]
        one.join(0, [place])
        self._store(place, self.foreign, 0, _OTHER)
        one.end(*self.foreign, True)
        self._complete()
