"""What decides transactions, wherever the decision is made: of clients that know nothing of them, and of KIP-98's."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE, Also
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

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """The offsets hold once the transaction is committed. ``implicit``: the group joins by them (KIP-890)."""
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


class ClientDecider(Protocol):
    """What KIP-98's requests ask for. All raise TxnError with what a client is to be told."""

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, client: Producer | None, client_id: str
    ) -> Producer:
        """The client's producer id and epoch; who had the id before is fenced. ``client``: what it has (KIP-360)."""
        ...

    async def add_partitions(
        self, request: TxnRequest, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Errors by partition; if there are any, none was added."""
        ...

    async def add_offsets(self, request: TxnRequest, group_id: str) -> None:
        """The group's offsets may follow."""
        ...

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """The offsets hold once the transaction is committed. ``implicit``: the group joins by them (KIP-890)."""
        ...

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """What became of each batch. ``accepted`` is called when they have their place in the order."""
        ...

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool) -> Producer:
        """The client's producer id and epoch for what follows."""
        ...
