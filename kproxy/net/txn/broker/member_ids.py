"""The broker's transactional ids that one kproxy has its members write under, one after another.

A broker remembers an id for days, and a group has a member for each task of each batch: so ids are used again, and only
by the process that made them up. Nobody else ever asks for a producer id under one, which would abort what is prepared.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry

#: Of an id of a member's.
PREFIX: Final = "kproxy-member-"


class MemberIds:
    """Names; one that a member has joined under is free again when the log says that the broker has received its end.

    One that is not given back is never used again.
    """

    def __init__(self, instance_id: str, new_id: Callable[[], Awaitable[int]]) -> None:
        """``new_id`` gives a number that nobody else in the cluster has: a producer id."""
        self._prefix = f"{PREFIX}{instance_id}-"
        self._new_id = new_id
        self._free: list[str] = []
        self._used: dict[Producer, str] = {}

    async def take(self) -> str:
        """A name that no member uses. TxnError if it needs a number, and none is available."""
        return self._free.pop() if self._free else f"{self._prefix}{await self._new_id()}"

    def joined(self, member: Producer, name: str) -> None:
        """The log may say that a member writes under it."""
        self._used[member] = name

    def give_back(self, name: str) -> None:
        """No record names it with the epoch that it has now."""
        self._free.append(name)

    def view_changed(self, entry: Entry) -> None:
        """Takes each record that changed a view."""
        if isinstance(entry.body, TransactionEnded):
            name = self._used.pop(Producer(entry.body.producer_id, entry.body.epoch), None)
            if name is not None:
                self._free.append(name)
