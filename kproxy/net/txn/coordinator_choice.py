"""Where transactions are decided, by transactional id."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.net.txn.decider import ClientDecider, Decider
from kproxy.proxy.coordinator_rules import Home, HomeRule, home_of
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE, Also
from kproxy.txn.requests import ClientBatch, TxnRequest, Written

T = TypeVar("T")


class CoordinatorChoice:
    """A ``Decider`` that hands each id on to the one of its home: kproxy's, unless a rule says ``broker``."""

    def __init__(self, rules: Sequence[HomeRule], own: Decider, native: Decider) -> None:
        """``rules``: ``transactions.home``."""
        self._rules = rules
        self._own = own
        self._native = native

    @property
    def any_native(self) -> bool:
        """Whether there may be an id whose transactions the broker decides by a rule."""
        return any(rule.home.is_broker for rule in self._rules)

    def is_native(self, transactional_id: str) -> bool:
        """Whether the broker decides."""
        return home_of(self._rules, transactional_id).is_broker

    def _of(self, transactional_id: str) -> Decider:
        return self._native if self.is_native(transactional_id) else self._own

    @property
    def instance_id(self) -> str:
        """As ``Decider``."""
        return self._own.instance_id

    def keeps_open(self, transactional_id: str) -> bool:
        """As ``Decider``."""
        return self._of(transactional_id).keeps_open(transactional_id)

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, client: Producer | None, client_id: str
    ) -> Producer:
        """As ``Decider``."""
        return await self._of(transactional_id).init_producer_id(transactional_id, timeout_ms, client, client_id)

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """As ``Decider``."""
        decider = self._of(request.transactional_id)
        return await decider.produce(request, batches, implicit=implicit, accepted=accepted)

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """As ``Decider``."""
        await self._of(request.transactional_id).commit_offsets(request, offsets, implicit=implicit)

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: Also = ALONE) -> Producer:
        """As ``Decider``."""
        return await self._of(request.transactional_id).end(request, committed=committed, bumps=bumps, also=also)

    async def prepare(self, request: TxnRequest) -> None:
        """As ``Decider``."""
        await self._of(request.transactional_id).prepare(request)

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """As ``Jobs``."""
        return self._own.start(work)


class ClientCoordinatorChoice:
    """For KIP-98's clients that ask kproxy: its own log, unless a rule says ``broker-fenced``."""

    def __init__(self, rules: Sequence[HomeRule], own: ClientDecider, fenced: ClientDecider) -> None:
        """``rules``: ``transactions.home``."""
        self._rules = rules
        self._own = own
        self._fenced = fenced

    def of(self, transactional_id: str) -> ClientDecider:
        """Whom to ask about an id."""
        is_fenced = home_of(self._rules, transactional_id) is Home.BROKER_FENCED
        return self._fenced if is_fenced else self._own
