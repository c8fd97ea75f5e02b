"""The outside of transactions by hand, performed: the log, the brokers, and what is open at this instance."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.transaction_log import TransactionLog
from kproxy.net.txn.trio_time import TrioTime
from kproxy.txn.described import Stale
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.participants import Participants
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView

T = TypeVar("T")

#: An operator's question is not held up for longer by brokers that do not answer.
_LOOK_SECONDS: Final = 1.0


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
        time: TrioTime,
        silence: Callable[[], str],
    ) -> None:
        """``told``: asks and informs the brokers about members whose data they keep.

        ``unknown``: makes the error for an id that the log does not know, by transactional id.

        ``read_all`` reads all of the log that there is. It raises OSError or RemoteProtocolError if it can't.

        ``silence``: which brokers do not answer, since when and why; empty if all do.
        """
        self.instance_id = coordinator.instance_id
        self.view_of = log.views.of
        self.open_here = begun.open_here
        self._coordinator = coordinator
        self._unknown = unknown
        self._log = log
        self._read_all = read_all
        self._told = told
        self._time = time
        self._silence = silence

    async def refresh(self, name: str | None) -> Stale | None:
        stale = await self._age(name)
        if name is None or self.view_of(name) is not None:
            return stale
        if stale is None:
            raise self._unknown(name)(name)
        why = f"{name} was unknown when the transaction log was read last; now it cannot be read: {stale.reason}"
        raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)

    async def _age(self, name: str | None) -> Stale | None:
        error = ""
        with trio.move_on_after(_LOOK_SECONDS):
            try:
                await (self._log.read_to_end(name) if name and self._log.opened.is_set() else self._read_all())
            except (OSError, RemoteProtocolError) as failed:
                error = str(failed)
            else:
                return None
        reason = self._silence() or error or f"no response within {_LOOK_SECONDS:g} s"
        if self._log.as_of is None:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the transaction log was not read yet: {reason}")
        age_ms = (trio.current_time() - self._log.as_of) * 1000
        return Stale(int(self._time.wall_ms() - age_ms), reason)

    async def found(self, name: str) -> IdView:
        if not self._log.opened.is_set():
            await _asked(self._read_all)  # where there is no log, none is made to look into it
        view = await self.read(name) if self._log.opened.is_set() else None
        if view is None:
            raise self._unknown(name)(name)
        return view

    async def read(self, name: str) -> IdView | None:
        return await _asked(lambda: self._log.read_to_end(name))

    def names(self) -> Sequence[str]:
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
