"""The broker's transactional ids that one kproxy has its members write under, one after another.

A broker remembers an id for days, and a group has a member for each task of each batch: so ids are used again, and only
by the process that made them up. Nobody else ever asks for a producer id under one, which would abort what is prepared.
"""

from typing import Final

from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.txn.ids import Producer
from kproxy.txn.records import Entry

#: Of an id of a member's.
PREFIX: Final = "kproxy-member-"
_NONCE_BYTES: Final = 8


class Slots:
    """Names; one that a member has joined under is free again when the log says that the broker was told of its end."""

    def __init__(self, instance_id: str, nonce: bytes) -> None:
        """``nonce``: 16 random bytes, of this process alone."""
        self._prefix = f"{PREFIX}{instance_id}-{nonce[:_NONCE_BYTES].hex()}-"
        self._made = 0
        self._free: list[str] = []
        self._used: dict[Producer, str] = {}

    def take(self) -> str:
        """A name that no member uses."""
        if self._free:
            return self._free.pop()
        self._made += 1
        return f"{self._prefix}{self._made}"

    def joined(self, member: Producer, name: str) -> None:
        """The log may say that a member writes under it."""
        self._used[member] = name

    def give_back(self, name: str) -> None:
        """No record names it with the epoch that it has now."""
        self._free.append(name)

    def heard(self, entry: Entry) -> None:
        """Takes note of each record that changed a view."""
        if isinstance(entry.body, TransactionEnded):
            name = self._used.pop(Producer(entry.body.producer_id, entry.body.epoch), None)
            if name is not None:
                self._free.append(name)
