"""The broker's transactional ids that one kproxy has its members write under, one after another.

A broker remembers an id for days, and a group has a member for each task of each batch: so ids are used again, and only
by the process that made them up. Nobody else ever asks for a producer id under one, which would abort what is prepared.

Below transaction.version 2 a member's epoch outlives its end, so that an AddPartitionsToTxn that arrives later opens
its transaction again. The next member's InitProducerId ends that; an id that rests needs one, too.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.broker_protocol import Protocol
from kproxy.txn.procedures.outside import Time
from kproxy.txn.view_values import BrokerTransaction

#: Of an id of a member's.
PREFIX: Final = "kproxy-member-"


class MemberIds:
    """Names; one that a member has joined under is free again when the log says that the broker has received its end.

    One that is not given back is never used again.
    """

    def __init__(self, instance_id: str, new_id: Callable[[], Awaitable[int]], time: Time) -> None:
        """``new_id`` gives a number that nobody else in the cluster has: a producer id."""
        self._prefix = f"{PREFIX}{instance_id}-"
        self._new_id = new_id
        self._event = time.event
        self._free: list[str] = []
        self._used: dict[Producer, BrokerTransaction] = {}
        #: Names whose last member may have requests in flight, with its timeout_ms.
        self._unfenced: dict[str, int] = {}
        self._any_unfenced = self._event()

    async def take(self) -> str:
        """A name that no member uses. TxnError if it needs a number, and none is available."""
        return self._free.pop() if self._free else f"{self._prefix}{await self._new_id()}"

    def joined(self, member: Producer, transaction: BrokerTransaction) -> None:
        """The log may say that a member writes in a transaction of its name."""
        self._used[member] = transaction

    def give_back(self, name: str) -> None:
        """No record names it with the epoch that it has now."""
        self._free.append(name)

    def fenced(self, name: str) -> None:
        """The broker has given it a new epoch."""
        if self._unfenced.pop(name, None) is not None and not self._unfenced:
            self._any_unfenced = self._event()  # the former one was set: nobody waits for it

    async def until_unfenced(self) -> None:
        """Returns at once while names need a new epoch, or when the first one does."""
        await self._any_unfenced.wait()

    def take_unfenced(self) -> tuple[str, int] | None:
        """A name that rests and needs a new epoch, with the timeout_ms of its last member; nobody else takes it."""
        for name in self._free:
            if name in self._unfenced:
                self._free.remove(name)
                return name, self._unfenced[name]
        return None

    def view_changed(self, entry: Entry) -> None:
        """Takes each record that changed a view."""
        if isinstance(entry.body, TransactionEnded):
            transaction = self._used.pop(Producer(entry.body.producer_id, entry.body.epoch), None)
            if transaction is not None:
                self._free.append(transaction.transactional_id)
                if Protocol.of(transaction.level).adds:
                    self._unfenced[transaction.transactional_id] = transaction.timeout_ms
                    self._any_unfenced.set()
