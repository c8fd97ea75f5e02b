"""Looks after the owners of transactional ids every second, and does what nobody waits for."""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

from kproxy.errors import KproxyError
from kproxy.net.network import Network
from kproxy.net.txn.transaction_log import TransactionLog
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.procedures.log_owners import LogOwners

log = structlog.get_logger("kproxy.transactions")

_SECONDS: Final = 1.0


class OwnerRounds:
    """The rounds of one instance. ``start`` is for procedures, at most one for each id at a time."""

    def __init__(
        self, transactions: TransactionLog, network: Network, stats: TransactionStats, nursery: trio.Nursery
    ) -> None:
        """Prepares the rounds; their procedures run in ``nursery``."""
        self._log = transactions
        self._wall = network.wall
        self._stats = stats
        self._nursery = nursery
        self._under_way: set[str] = set()

    def start(self, transactional_id: str, work: Callable[[], Awaitable[object]]) -> None:
        """Begins a procedure about an id, unless one is under way that it began before."""
        if transactional_id not in self._under_way:
            self._under_way.add(transactional_id)
            self._nursery.start_soon(self._do, transactional_id, work)

    async def _do(self, transactional_id: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except (OSError, KproxyError) as error:
            log.info("will be retried", transactional_id=transactional_id, reason=str(error))
        finally:
            self._under_way.discard(transactional_id)

    async def run(self, owners: LogOwners) -> None:
        """Has ``owners`` end what takes too long, and give up ids that nobody uses; for ever."""
        owners.end_former()
        while True:
            await (trio.sleep if owners.any else self._log.pause)(_SECONDS)
            owners.look()
            self._note(owners)

    def _note(self, owners: LogOwners) -> None:
        """Tells the metrics what is open and what waits."""
        stats, transactions = self._stats, self._log
        stats.log_lag, stats.log_losses = transactions.lag, transactions.losses
        unsettled = transactions.views.unsettled()
        stats.ids, stats.prepared = transactions.views.count, sum(len(view.prepared) for view in unsettled)
        oldest, wall = owners.oldest_open, self._wall() - trio.current_time()
        stats.oldest_open = None if oldest is None else oldest + wall
