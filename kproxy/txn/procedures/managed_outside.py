"""The outside of transactions that kproxy begins for clients without transactions: the coordinator, records, time.

``kproxy.net.txn.managed_tools`` performs it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.outside import Report, Time
from kproxy.txn.procedures.owner_policy import OwnerPolicy
from kproxy.txn.requests import ClientBatch, TxnRequest, Written


class ManagedRequests(Protocol):
    """Requests to the coordinator, in the name of kproxy's own producer. All that wait raise TxnError."""

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, client: Producer | None, client_id: str, policy: OwnerPolicy
    ) -> Producer:
        """InitProducerId: the identity of the id's new producer."""
        ...

    async def produce(
        self,
        request: TxnRequest,
        batches: Sequence[ClientBatch],
        *,
        implicit: bool,
        accepted: Callable[[], None],
        is_job: bool,
    ) -> Sequence[Written]:
        """Writes batches; the result of each (``Owner.produce``). ``is_job``: the caller outlives its client."""
        ...

    def takes_at_once(self, transactional_id: str, batches: Sequence[ClientBatch]) -> bool:
        """Whether nothing has to be waited for before batches have their place in the order."""
        ...

    def produce_at_once(
        self,
        request: TxnRequest,
        batches: Sequence[ClientBatch],
        written: Callable[[Sequence[Written]], None],
        *,
        implicit: bool,
    ) -> None:
        """Writes batches that it ``takes_at_once`` (``Owner.produce_at_once``). TxnError."""
        ...

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """TxnOffsetCommit."""
        ...

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: DecisionScope) -> Producer:
        """EndTxn (``Owner.end``)."""
        ...

    async def prepare(self, request: TxnRequest, batch_id: str | None) -> None:
        """Leaves the transaction to a later decision (``Owner.prepare``)."""
        ...

    def offsets_wait(self, transactional_id: str) -> bool:
        """Whether a group's offsets wait for a transaction that may be open (``Owners.offsets_wait``)."""
        ...

    def start(self, work: Callable[[], Awaitable[object]]) -> object:
        """Begins work that nobody waits for."""
        ...


class RepeatedRecords(Protocol):
    """The records of one transaction, as far as they are remembered."""

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> bool:
        """Keeps batches; whether a record of them came before, over another connection."""
        ...


@dataclass(frozen=True, slots=True)
class ManagedTools:
    """Shared by the transactions that one instance begins for clients."""

    requests: ManagedRequests
    #: The records of a transaction that begins, by the client.id of its client.
    repeated: Callable[[str], RepeatedRecords]
    instance_id: str
    time: Time
    report: Report
