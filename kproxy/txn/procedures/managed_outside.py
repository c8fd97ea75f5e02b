"""The outside of transactions that kproxy begins for clients without transactions: the coordinator, records, time.

``kproxy.net.txn.managed_tools`` performs it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kproxy.txn.procedures.outside import Report, Time
from kproxy.txn.procedures.owner_requests import OwnerRequests
from kproxy.txn.requests import ClientBatch


class RepeatedRecords(Protocol):
    """The records of one transaction, as far as they are remembered."""

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> bool:
        """Keeps batches; whether a record of them came before, over another connection."""
        ...


@dataclass(frozen=True, slots=True)
class ManagedTools:
    """Shared by the transactions that one instance begins for clients."""

    requests: OwnerRequests
    #: The records of a transaction that begins, by the client.id of its client.
    repeated: Callable[[str], RepeatedRecords]
    instance_id: str
    time: Time
    report: Report
