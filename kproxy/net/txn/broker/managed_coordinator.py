"""Transactions of this kproxy's own clients that the brokers decide: ``Decider`` over ``BrokerOwner``."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.broker.broker_owner import MANAGED, BrokerOwner
from kproxy.net.txn.broker.broker_owners import BrokerOwners
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE, Also
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError

T = TypeVar("T")

_IDLE_SECONDS: Final = 3_600.0


class ManagedCoordinator(BrokerOwners):
    """The owners by transactional id."""

    _policy = MANAGED

    @property
    def instance_id(self) -> str:
        """As ``Decider``."""
        return self._config.instance_id

    def keeps_open(self, transactional_id: str) -> bool:
        """As ``Decider``: the broker can't know that its client is gone."""
        return True

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, client: Producer | None, client_id: str
    ) -> Producer:
        """As ``Decider``. ``client`` is not asked for: whoever comes last has the id."""
        owner = await self._take(transactional_id)
        return await self._jobs.run(lambda: owner.initialize(timeout_ms))

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """As ``Decider``; partitions always join by being written. Whoever captures batches has begun work for them."""
        owner = self._owner(request)
        return await self._jobs.within(lambda: owner.produce(request, batches, implicit=True, accepted=accepted))

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool) -> None:
        """As ``Decider``; groups always join by their offsets."""
        owner = self._owner(request)
        await self._jobs.run(lambda: owner.commit_offsets(request, offsets, implicit=True))

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: Also = ALONE) -> Producer:
        """As ``Decider``, of one part alone."""
        if also.members is not None or also.every or also.batch_id is not None:
            raise _only_at_home("members")
        owner = self._owner(request)
        return await self._jobs.run(lambda: owner.end(request, committed=committed, bumps=False))

    async def prepare(self, request: TxnRequest) -> None:
        """The broker has no such state. TxnError (INVALID_REQUEST)."""
        raise _only_at_home("prepare")

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """As ``Jobs``."""
        return self._jobs.start(work)

    def _owner(self, request: TxnRequest) -> BrokerOwner:
        owner = self._owners.get(request.transactional_id)
        if owner is None:
            raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "nobody has asked for a producer id for it")
        return owner

    @property
    def _idle_seconds(self) -> float:
        """An hour."""
        return _IDLE_SECONDS


def _only_at_home(what: str) -> TxnError:
    return TxnError(ErrorCode.INVALID_REQUEST, f"{what}: only for ids whose transactions.home is kproxy")
