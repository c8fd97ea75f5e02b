"""``per.request``: each Produce request of some clients is a transaction of its own, over all its partitions."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.managed_transactions import ManagedTransaction
from kproxy.txn.claims import NOBODY
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.txn_error import TxnError

#: Clients whose producers are kept; of more, those that do nothing are forgotten.
_MOST_CLIENTS: Final = 1_000


class _ClientTransaction(ManagedTransaction):
    """The requests of one client.id, one after another."""

    def __init__(self, coordinator: Coordinator, transactional_id: str, client_id: str, timeout_ms: int) -> None:
        super().__init__(coordinator, transactional_id, client_id, timeout_ms)
        self._turn = trio.Lock()

    @property
    def is_idle(self) -> bool:
        return not self._open

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> None:
        """A repetition is another transaction."""

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        """Each begins a transaction and ends it."""
        return False

    async def write(
        self, batches: Sequence[ClientBatch], *, refused: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        accepted()  # the next one waits for the lock after this one: there is no checkpoint in between
        async with self._turn:
            if refused:
                raise TxnError(ErrorCode.OPERATION_NOT_ATTEMPTED, "another batch of the request was refused")
            try:
                return await self._write(batches)
            except TxnError:
                self._producer = NOBODY  # the next one's claim aborts what may be open
                raise

    async def _write(self, batches: Sequence[ClientBatch]) -> Sequence[Written]:
        if self._producer == NOBODY:
            await self.initialize()
        rows = await self._coordinator.produce(self.request, batches, implicit=True, accepted=lambda: None, is_job=True)
        if any(row.error_code for row in rows):
            await self._abort_the_open()
            return [row if row.error_code else Written(ErrorCode.OPERATION_NOT_ATTEMPTED, -1, -1) for row in rows]
        await self._coordinator.end(self.request, committed=True, bumps=False)
        return rows

    def failed(self, why: str) -> None:
        """Nothing of it is open any more: the next request is another transaction."""


class SingleRequests:
    """Transactions of single requests, for the clients of the patterns of ``per.request``."""

    def __init__(self, coordinator: Coordinator, patterns: Sequence[str], timeout_ms: int) -> None:
        """``patterns`` of client.ids; ``timeout_ms``: of each transaction."""
        self._coordinator = coordinator
        self._patterns = patterns
        self._timeout_ms = timeout_ms
        self._clients: dict[str, _ClientTransaction] = {}

    @property
    def some(self) -> bool:
        """Whether there may be any."""
        return bool(self._patterns)

    def of(self, client_id: str) -> ManagedTransaction | None:
        if not any(fnmatchcase(client_id, pattern) for pattern in self._patterns):
            return None
        found = self._clients.get(client_id)
        if found is None:
            if len(self._clients) >= _MOST_CLIENTS:
                self._clients = {name: one for name, one in self._clients.items() if not one.is_idle}
            name = f"per-request-{self._coordinator.instance_id}-{client_id}"
            found = self._clients[client_id] = _ClientTransaction(self._coordinator, name, client_id, self._timeout_ms)
        return found
