"""Transactions by hand, for the control API (``kproxy.control.transactions.TransactionControl``)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.cluster import Cluster
from kproxy.net.txn.captures import Begun, Capture
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.log import TransactionLog
from kproxy.txn.described import Described, Listed
from kproxy.txn.describing import describe, listed
from kproxy.txn.errors import TxnError
from kproxy.txn.parts import Also
from kproxy.txn.states import State
from kproxy.txn.view import IdView

T = TypeVar("T")

_DEFAULT_PREFIX: Final = "kproxy-"


class ControlService:
    """Begins transactions for clients of this kproxy, decides them, and tells of those of all."""

    def __init__(
        self,
        coordinator: Coordinator,
        log: TransactionLog,
        read_all: Callable[[], Awaitable[None]],
        begun: Begun,
        cluster: Cluster,
    ) -> None:
        """``begun`` is what connections ask where a client's requests go.

        ``read_all`` reads all of the log that there is. OSError, RemoteProtocolError if that can't be had.
        """
        self._coordinator = coordinator
        self._log = log
        self._read_all = read_all
        self._begun = begun
        self._network = cluster.network

    async def begin(self, *, client_id: str | None, transactional_id: str | None, timeout_ms: int) -> Described:
        """As ``TransactionControl``."""
        name = transactional_id or f"{_DEFAULT_PREFIX}{client_id}"
        view = await self._read(name)
        known = view.claim.client_id if view is not None and view.claim is not None else ""
        client_id = client_id or known
        if not client_id:
            raise TxnError(ErrorCode.INVALID_REQUEST, f"{name} is new: say whose transaction it is to be by client_id")
        if view is not None and view.ongoing is not None and not self._was_mine(view):
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{name} has an open transaction at another kproxy")
        capture = Capture(self._coordinator, name, client_id, timeout_ms)
        self._begun.add(capture)
        try:
            await capture.initialize()
        except BaseException:
            self._begun.remove(capture)
            raise
        return self._describe(name)

    def _was_mine(self, view: IdView) -> bool:
        return view.claim is not None and view.claim.instance_id == self._coordinator.instance_id

    async def commit(
        self, transactional_id: str, *, batch_id: str | None = None, members: Sequence[str] = ()
    ) -> Described:
        """As ``TransactionControl``."""
        view = await self._found(transactional_id)
        if batch_id is None or batch_id not in view.batch_ids:
            capture = await self._to_decide(view)
            with self._begun.ending(capture):
                await capture.commit(Also(batch_id, members))
        return self._describe(transactional_id)

    async def abort(self, transactional_id: str, *, members: Sequence[str] = ()) -> Described:
        """As ``TransactionControl``."""
        capture = await self._to_decide(await self._found(transactional_id))
        with self._begun.ending(capture):
            await capture.abort(Also(None, members))
        return self._describe(transactional_id)

    async def prepare(self, transactional_id: str) -> Described:
        """As ``TransactionControl``."""
        await self._found(transactional_id)
        capture = self._begun.named(transactional_id)
        if capture is None:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id} has no open transaction")
        with self._begun.ending(capture):
            await capture.prepare()
        return self._describe(transactional_id)

    async def _to_decide(self, view: IdView) -> Capture:
        """The open transaction or, if there is none, an empty one that decides what was prepared."""
        open_one = self._begun.named(view.transactional_id)
        if open_one is not None:
            return open_one
        if view.claim is None or not view.prepared:
            raise TxnError(ErrorCode.INVALID_TXN_STATE, f"{view.transactional_id} has nothing to be decided")
        if view.ongoing is not None and not self._was_mine(view):
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, "it has an open transaction at another kproxy")
        capture = Capture(self._coordinator, view.transactional_id, view.claim.client_id, view.claim.timeout_ms)
        await capture.initialize()
        return capture

    # -- what is told

    async def list(self) -> Sequence[Listed]:
        """As ``TransactionControl``."""
        await self._asked(self._read_all)
        names = [view.transactional_id for view in self._log.views.all()]
        return [listed(self._describe(name)) for name in sorted(names)]

    async def describe(self, transactional_id: str) -> Described:
        """As ``TransactionControl``."""
        await self._found(transactional_id)
        return self._describe(transactional_id)

    def _describe(self, name: str) -> Described:
        """What is known now; a transaction that was begun here is open though nothing was written yet."""
        view, capture = self._log.views.of(name), self._begun.named(name)
        if view is None:
            raise TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"the log does not know {name}")
        found, owner = describe(view), self._coordinator.of(name)
        if owner is not None and owner.state.is_pending:
            found = found._replace(state=owner.state.value)
        elif capture is not None:
            since = self._network.wall() - (trio.current_time() - capture.since)
            found = found._replace(
                state=State.ONGOING.value, client_id=capture.client_id, started_ms=found.started_ms or int(since * 1000)
            )
        return found

    async def _found(self, name: str) -> IdView:
        if not self._log.opened.is_set():
            await self._asked(self._read_all)  # where there is no log, none is made to look into it
        view = await self._read(name) if self._log.opened.is_set() else None
        if view is None:
            raise TxnError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"the log does not know {name}")
        return view

    async def _read(self, name: str) -> IdView | None:
        """What the log says of an id at its end. TxnError if that can't be known."""
        return await self._asked(lambda: self._log.read_to_end(name))

    async def _asked(self, read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the transaction log: {error}") from error
