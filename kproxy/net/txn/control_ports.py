"""The outside of transactions by hand, performed: the log, the brokers, and what is open at this instance."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.transaction_log import TransactionLog
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.participants import Participants
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView

T = TypeVar("T")


class ControlPorts:
    """The ``LogPorts`` of one instance."""

    def __init__(
        self,
        coordinator: Coordinator,
        log: TransactionLog,
        read_all: Callable[[], Awaitable[None]],
        begun: ManagedTransactions,
        told: Participants,
        unknown: Callable[[str], Callable[[str], TxnError]],
    ) -> None:
        """``told``: asks and informs the brokers about members whose data they keep.

        ``unknown``: makes the error for an id that the log does not know, by transactional id.

        ``read_all`` reads all of the log that there is. It raises OSError or RemoteProtocolError if it can't.
        """
        self.instance_id = coordinator.instance_id
        self.view_of = log.views.of
        self.open_here = begun.open_here
        self._coordinator = coordinator
        self._unknown = unknown
        self._log = log
        self._read_all = read_all
        self._told = told

    async def found(self, name: str) -> IdView:
        if not self._log.opened.is_set():
            await _asked(self._read_all)  # where there is no log, none is made to look into it
        view = await self.read(name) if self._log.opened.is_set() else None
        if view is None:
            raise self._unknown(name)(name)
        return view

    async def read(self, name: str) -> IdView | None:
        return await _asked(lambda: self._log.read_to_end(name))

    async def names(self) -> Sequence[str]:
        await _asked(self._read_all)
        return sorted(self._log.views.names)

    async def initialize(self, name: str, timeout_ms: int, client_id: str) -> None:
        await self._coordinator.initialize_at_log(name, timeout_ms, client_id)

    async def decide(self, name: str, owner: Producer | None, *, committed: bool, also: DecisionScope) -> None:
        await self._coordinator.decide(name, owner, committed=committed, also=also)

    async def check_members(self, view: IdView, also: DecisionScope) -> None:
        await self._told.votes.check(view, also)

    async def finish_members(self, name: str) -> None:
        await self._told.ends.finish(name)


async def _asked(read: Callable[[], Awaitable[T]]) -> T:
    """The result of reading the log. TxnError if it can't be read."""
    try:
        return await read()
    except (OSError, RemoteProtocolError) as error:
        raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the transaction log: {error}") from error
