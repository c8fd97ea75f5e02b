"""Group offsets in a transaction log in memory, and what it says of them."""

from collections.abc import Mapping

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision, TransactionDecisionPart
from kproxy.codec._generated.transaction_mirrored import TransactionMirrored
from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.messages import Message
from kproxy.txn.ids import TXN_BITS
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.logged_group_offsets import unmirrored
from kproxy.txn.view import LogPosition
from kproxy.txn.views import Views

PLACE = ("t", 0)


class OffsetsLog:
    """A log of ids with a producer each, and what it says; ``instances``: that coordinate an id, if any is named."""

    def __init__(self, instances: Mapping[str, str] | None = None) -> None:
        self.views = Views()
        self._instances = instances or {}
        self._offset = 0
        self._ids: list[str] = []

    def add(self, name: str, body: Message) -> None:
        key, value = encode(Entry(name, body))
        assert self.views.apply(0, LogPosition(self._offset, self._offset), key, value)
        self._offset += 1

    def producer(self, name: str) -> int:
        if name not in self._ids:
            self._ids.append(name)
            pid, nonce = TXN_BITS + len(self._ids), len(self._ids).to_bytes(16, "big")
            instance = self._instances.get(name, "")
            self.add(name, TransactionClaim(nonce, 1, pid, 0, 64, instance_id=instance))
        return TXN_BITS + self._ids.index(name) + 1

    def announce(self, name: str, epoch: int, offset: int, generation: int = -1, group: str = "g") -> None:
        pid = self.producer(name)
        rows = [TransactionOffsetsTopic("t", [TransactionOffsetsPartition(0, offset)])]
        self.add(name, TransactionOffsets(self._nonce(name), pid, epoch, group, generation, topics=rows))

    def decide(self, name: str, epoch: int, *, committed: bool = True) -> None:
        pid = self.producer(name)
        parts = [TransactionDecisionPart(pid, epoch, [])]
        self.add(name, TransactionDecision(self._nonce(name), pid, epoch, committed, reason="client", parts=parts))

    def commit(self, name: str, epoch: int, offset: int, generation: int = -1, group: str = "g") -> None:
        self.announce(name, epoch, offset, generation, group)
        self.decide(name, epoch)

    def mirrored(self, name: str, epoch: int) -> None:
        self.add(name, TransactionMirrored(self.producer(name), epoch, "g"))

    def offset(self) -> int | None:
        found = unmirrored(self.views, "g").offsets.get(PLACE)
        return found.offset if found is not None else None

    def _nonce(self, name: str) -> bytes:
        return (self._ids.index(name) + 1).to_bytes(16, "big")
