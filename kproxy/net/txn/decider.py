"""What decides the transactions of clients that know nothing of them, wherever the decision is made."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.txn.ids import Producer
from kproxy.txn.parts import ALONE, Also
from kproxy.txn.requests import ClientBatch, TxnRequest, Written

T = TypeVar("T")


class Decider(Protocol):
    """As ``Coordinator``, which is one: on kproxy's own log. All raise TxnError with what a client is to be told."""

    @property
    def instance_id(self) -> str:
        """Of this kproxy."""
        ...

    def keeps_open(self, transactional_id: str) -> bool:
        """Whether what a former kproxy left open stays so until somebody takes the id, or its time is over."""
        ...

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, client: Producer | None, client_id: str
    ) -> Producer:
        """Takes the id; who had it is fenced, and what was open is aborted."""
        ...

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """What became of each batch. ``accepted`` is called when they have their place in the order."""
        ...

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets) -> None:
        """The offsets hold once the transaction is committed."""
        ...

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: Also = ALONE) -> Producer:
        """Commits or aborts what is open."""
        ...

    async def prepare(self, request: TxnRequest) -> None:
        """Leaves it to a later decision."""
        ...

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """As ``Jobs``."""
        ...
