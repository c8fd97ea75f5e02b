"""The owners of one kproxy whose transactions the brokers decide, by transactional id; of either kind of client."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.config import Config
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.succession import Succession
from kproxy.net.txn.broker.broker_owner import BrokerOwner, Policy
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.txn_error import TxnError

_SWEEP_SECONDS: Final = 60.0


class BrokerOwners(ABC):
    """Makes them when their ids are taken, and forgets those that nobody uses."""

    _policy: ClassVar[Policy]

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
        self._owners: dict[str, BrokerOwner] = {}
        #: For requests to coordinators, beside those for data.
        self._asking: dict[str, WriterConnections] = {}
        #: Set when kproxy stops: nobody begins anew here.
        self.leaving = False

    @property
    def open(self) -> int:
        """Transactions that have begun and are not decided."""
        return sum(owner.is_open for owner in self._owners.values())

    async def _take(self, transactional_id: str) -> BrokerOwner:
        """The owner of an id that somebody asks to have. TxnError while kproxy stops."""
        if self.leaving:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "kproxy is being stopped")
        await self._succession.alone()
        owner = self._owners.get(transactional_id)
        if owner is None:
            asking = self._asking[transactional_id] = self._connections()
            patience_s = self._config.delivery_timeout_ms / 1000
            requests = BrokerRequests(self._cluster, transactional_id, patience_s, asking)
            owner = BrokerOwner(transactional_id, self._policy, requests, self._connections(), self._stats)
            self._owners[transactional_id] = owner
        owner.used_at = trio.current_time()  # it is not to be forgotten while it is asked
        return owner

    @property
    @abstractmethod
    def _idle_seconds(self) -> float:
        """An owner that was not used for so long is forgotten."""

    async def run(self) -> None:
        """Forgets ids that nobody uses; for ever."""
        try:
            while True:
                await trio.sleep(_SWEEP_SECONDS)
                for name, owner in list(self._owners.items()):
                    in_use = owner.is_open or owner.is_busy
                    if not in_use and trio.current_time() > owner.used_at + self._idle_seconds:
                        self._forget(name)
        finally:
            for name in list(self._owners):
                self._forget(name)

    def _forget(self, transactional_id: str) -> None:
        self._owners.pop(transactional_id).close()
        self._asking.pop(transactional_id).close()
