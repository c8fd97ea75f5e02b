"""The world where the broker's coordinator decides: it, and the log of the epochs that stand for clients."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kproxy.codec._generated.describe_transactions import DescribeTransactionsResponseTransactionState as Described
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.verdict import Verdict
from verification.explorer.coordinating import CoordinatedId, CoordinatingWorld, ended_by_marker, put_marker
from verification.explorer.engine import Move, Scope
from verification.explorer.world import PARTITIONS, Stored

if TYPE_CHECKING:
    from kproxy.txn.stored_epochs import StoredEpoch

_OTHER: Final = "of another producer"
_PRODUCER_ID: Final = 101


class BrokerWorld(CoordinatingWorld):
    """All but what kproxy and its client know."""

    #: Whether kproxy may take the id from another producer that has taken it.
    may_take_back = False

    def __init__(self, budget: Mapping[str, int], level: int) -> None:
        """``level``: of ``transaction.version``; at 2 each end raises the epoch."""
        super().__init__(budget, level)
        self.coordinated = CoordinatedId(level, self.partitions, lambda: _PRODUCER_ID, self._mark)
        #: The entry in the log of producer ids.
        self.recorded: StoredEpoch | None = None
        #: The epoch that another producer has received.
        self.foreign: Producer | None = None

    def facts(self) -> tuple[Any, ...]:
        """Return what tells this world from others, beside what all worlds have."""
        return *self.coordinated.facts(), self.recorded, self.foreign, "harm" in self.budget.taken

    # -- the coordinator

    def ask(self, request: Any, *, is_late: bool) -> Any:
        """The response to a request; ``is_late``: of a kproxy that was killed."""
        was_open = self.coordinated.is_open
        answer = self.coordinated.ask(request)
        if is_late and isinstance(request, InitProducerIdRequest) and was_open and not self.coordinated.is_open:
            self.harm()
        return answer

    def _mark(self, place: TopicPartition, producer: Producer, outcome: str) -> None:
        put_marker(self.partitions[place], producer, outcome)

    def describe(self, transactional_id: str) -> Described | None:
        """Return what the coordinator knows."""
        return self.coordinated.describe()

    # -- partitions

    def write(self, place: TopicPartition, producer: Producer, sequence: int, payload: str) -> int | None:
        """The leader asks the coordinator before it takes a batch."""
        rows = self.partitions[place].rows
        before = len(rows)
        offset = self.coordinated.write(place, producer, sequence, payload)
        is_replaced = self.foreign is not None and producer >= self.foreign
        if len(rows) > before and is_replaced and not (self.may_take_back or payload == _OTHER):
            self.broken.append(f"replaced: {payload} is written, though another producer has the id")
        return offset

    def verdict(self, place: TopicPartition, row: Stored) -> Verdict:
        """Judge it by the first marker of its producer after it."""
        return ended_by_marker(self.partitions[place].rows, row)

    # -- what may happen

    def moves(self) -> list[Move]:
        """Each thing that may happen next."""
        found = super().moves()
        if self.budget["overdue"] and self.coordinated.is_open:
            found.append(Move("the broker aborts what takes too long", self._time_out, is_fault=True))
        if self.budget["take"] and self.coordinated.one is not None and self._are_known():
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
        self.coordinated.abort()

    def _slow(self, scope: Scope, what: str) -> None:
        self.budget.take(what)
        self.harm()
        scope.cancel()

    def _take(self) -> None:
        self.budget.take("take")
        one = self.coordinated.one
        assert one is not None
        if self.coordinated.is_open:
            self.coordinated.abort()
        one.renew(None)
        self.foreign = Producer(one.producer_id, one.epoch)
        place = PARTITIONS[0]
        one.join(0, [place])
        self.coordinated.store(place, self.foreign, 0, _OTHER)
        one.end(*self.foreign, True)
        self.coordinated.complete()
