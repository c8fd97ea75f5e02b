"""Transactions of KIP-98's clients that brokers decide and kproxy asks for: ``ClientDecider`` by ``FencedOwner``."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.config import Config
from kproxy.net.cluster import Cluster
from kproxy.net.succession import Succession
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.native.fenced_owner import FencedOwner
from kproxy.net.txn.native.requests import NativeRequests
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.routing import is_own_topic
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.claims import NOBODY
from kproxy.txn.errors import TxnError
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.view import Place

_SWEEP_SECONDS: Final = 60.0


class FencedCoordinator:
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
        """By ``succession`` no id is taken while the kproxy before this is there: it ends its transactions itself."""
        self._succession = succession or Succession()
        self._cluster = cluster
        self._config = config
        self._stats = stats
        self._connections = connections
        self._jobs = jobs
        self._owners: dict[str, FencedOwner] = {}
        #: Set when kproxy stops: nobody begins anew here.
        self.leaving = False

    @property
    def open(self) -> int:
        """Transactions that have begun and are not decided."""
        return sum(owner.is_open for owner in self._owners.values())

    def parties(self) -> Collection[int]:
        """The connections of open transactions."""
        return {connection for owner in self._owners.values() for connection in owner.parties()}

    # -- as ``ClientDecider``

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, client: Producer | None, client_id: str
    ) -> Producer:
        """As ``ClientDecider``; the broker checks the time-out, and whether ``client`` has the id."""
        if not transactional_id:
            raise TxnError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        if self.leaving:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "kproxy is being stopped")
        await self._succession.alone()
        owner = self._owners.get(transactional_id)
        if owner is None:
            requests = NativeRequests(self._cluster, transactional_id, self._config.delivery_timeout_ms / 1000)
            owner = FencedOwner(transactional_id, requests, self._connections(), self._stats)
            self._owners[transactional_id] = owner
        return await self._jobs.run(lambda: owner.initialize(timeout_ms, client or NOBODY))

    async def add_partitions(self, request: TxnRequest, places: Sequence[Place]) -> Mapping[Place, ErrorCode]:
        """As ``ClientDecider``."""
        errors = {place: ErrorCode.TOPIC_AUTHORIZATION_FAILED for place in places if is_own_topic(place[0])}
        if not errors:
            owner = self._owner(request)
            await self._jobs.run(lambda: owner.join(request, places))
        return errors

    async def add_offsets(self, request: TxnRequest, group_id: str) -> None:
        """As ``ClientDecider``."""
        owner = self._owner(request)
        await self._jobs.run(lambda: owner.add_offsets(request, group_id))

    async def commit_offsets(self, request: TxnRequest, offsets: TransactionOffsets, *, implicit: bool = False) -> None:
        """As ``ClientDecider``."""
        owner = self._owner(request)
        await self._jobs.run(lambda: owner.commit_offsets(request, offsets, implicit=implicit))

    async def produce(
        self, request: TxnRequest, batches: Sequence[ClientBatch], *, implicit: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        """As ``ClientDecider``."""
        owner = self._owner(request)
        return await self._jobs.run(lambda: owner.produce(request, batches, implicit=implicit, accepted=accepted))

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool) -> Producer:
        """As ``ClientDecider``."""
        owner = self._owner(request)
        return await self._jobs.run(lambda: owner.end(request, committed=committed, bumps=bumps))

    def _owner(self, request: TxnRequest) -> FencedOwner:
        """TxnError for a client whose producer id and epoch this kproxy has not given out."""
        owner = self._owners.get(request.transactional_id)
        if owner is None:
            why = "this kproxy has not given out its producer id: it was started anew, or another has"
            raise TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)
        return owner

    async def run(self) -> None:
        """Forgets ids that the brokers have forgotten by now, too; for ever."""
        try:
            while True:
                await trio.sleep(_SWEEP_SECONDS)
                before = trio.current_time() - self._config.transactional_id_timeout_ms / 1000
                for name, owner in list(self._owners.items()):
                    if not owner.is_open and owner.used_at < before:
                        owner.close()
                        del self._owners[name]
        finally:
            for owner in self._owners.values():
                owner.close()
