"""Transactions of this kproxy's own clients that the brokers decide: ``Decider`` over ``NativeOwner``."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.config import Config
from kproxy.net.cluster import Cluster
from kproxy.net.succession import Succession
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.native.owner import NativeOwner
from kproxy.net.txn.native.requests import NativeRequests
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.errors import TxnError
from kproxy.txn.ids import Producer
from kproxy.txn.parts import ALONE, Also
from kproxy.txn.requests import ClientBatch, TxnRequest, Written

T = TypeVar("T")

_IDLE_SECONDS: Final = 3_600.0
_SWEEP_SECONDS: Final = 60.0


class NativeCoordinator:
    """The owners by transactional id."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        stats: TransactionStats,
        connections: Callable[[], WriterConnections],
        jobs: Jobs,
        succession: Succession | None = None,
    ) -> None:
        """Nothing is asked of the brokers before a transaction begins.

        By ``succession`` no id is taken while the kproxy before this is there: it ends its transactions itself.
        """
        self._succession = succession or Succession()
        self._cluster = cluster
        self._config = config
        self._stats = stats
        self._connections = connections
        self._jobs = jobs
        self._owners: dict[str, NativeOwner] = {}
        #: Set when kproxy stops: nobody begins anew here.
        self.leaving = False

    @property
    def open(self) -> int:
        """Transactions that have begun and are not decided."""
        return sum(owner.is_open for owner in self._owners.values())

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
        if self.leaving:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "kproxy is being stopped")
        await self._succession.alone()
        owner = self._owners.get(transactional_id)
        if owner is None:
            requests = NativeRequests(self._cluster, transactional_id, self._config.delivery_timeout_ms / 1000)
            owner = NativeOwner(transactional_id, requests, self._connections(), self._stats)
            self._owners[transactional_id] = owner
        return await self._jobs.run(lambda: owner.initialize(timeout_ms))

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """As ``Decider``; partitions always join by being written."""
        owner = self._owner(request)
        return await self._jobs.run(lambda: owner.produce(request, batches, accepted))

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets) -> None:
        """As ``Decider``."""
        owner = self._owner(request)
        await self._jobs.run(lambda: owner.commit_offsets(request, offsets))

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: Also = ALONE) -> Producer:
        """As ``Decider``, of one part alone."""
        if also.members is not None or also.every or also.batch_id is not None:
            raise _only_at_home("members")
        owner = self._owner(request)
        return await self._jobs.run(lambda: owner.end(request, committed=committed))

    async def prepare(self, request: TxnRequest) -> None:
        """The broker has no such state. TxnError (INVALID_REQUEST)."""
        raise _only_at_home("prepare")

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """As ``Jobs``."""
        return self._jobs.start(work)

    def _owner(self, request: TxnRequest) -> NativeOwner:
        owner = self._owners.get(request.transactional_id)
        if owner is None:
            raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "nobody has asked for a producer id for it")
        return owner

    async def run(self) -> None:
        """Forgets ids that nobody uses; for ever."""
        try:
            while True:
                await trio.sleep(_SWEEP_SECONDS)
                for name, owner in list(self._owners.items()):
                    if not owner.is_open and trio.current_time() > owner.used_at + _IDLE_SECONDS:
                        owner.close()
                        del self._owners[name]
        finally:
            for owner in self._owners.values():
                owner.close()


def _only_at_home(what: str) -> TxnError:
    return TxnError(ErrorCode.INVALID_REQUEST, f"{what}: only for ids whose transactions.home is kproxy")
