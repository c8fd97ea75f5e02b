"""Transactions that were begun by hand for clients that know nothing of them: whose requests go where, and how long."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures.batch_decisions import OpenBatch
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.procedures.member_transaction import MemberTransaction
from kproxy.txn.procedures.members import Joining, Members
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import ASKED, HAND

_SWEEP_SECONDS: Final = 1.0
#: A transaction that nobody decides is aborted after its time-out. For as long again its client gets that response.
_TIMES_KEPT: Final = 2


class ManagedTransactions:
    """The captures that were begun by hand; what the clients of each write goes there until its end begins."""

    def __init__(self, tools: ManagedTools) -> None:
        """None."""
        self._tools = tools
        self._time = tools.time
        self._by_client: dict[str, ManagedTransaction] = {}
        #: By transactional id and member.
        self._open: dict[tuple[str, str], ManagedTransaction] = {}
        self._any_open = tools.time.event()

    def __iter__(self) -> Iterator[ManagedTransaction]:
        """Those that have not ended."""
        return iter(self._open.values())

    def of(self, client_id: str) -> ManagedTransaction | None:
        return self._by_client.get(client_id)

    def named(self, transactional_id: str, member: str = "") -> ManagedTransaction | None:
        """The one of an id's owner, or of a member, if it has not ended."""
        return self._open.get((transactional_id, member))

    async def begin(self, transactional_id: str, client_id: str, timeout_ms: int) -> ManagedTransaction:
        """Takes an id and captures the client's requests from now on. TxnError, also as of ``add``."""
        capture = ManagedTransaction(self._tools, transactional_id, client_id, timeout_ms)
        with self._beginning(capture):
            await capture.initialize()
        return capture

    async def begin_member(self, members: Members, wanted: Joining) -> None:
        """Joins a transaction and captures the client's requests from now on. TxnError, also as of ``add``."""
        capture = MemberTransaction(self._tools, members, wanted)
        with self._beginning(capture):
            await capture.join()

    def owned(self, transactional_id: str, owner: Producer | None) -> ManagedTransaction | None:
        """The one that an owner (None: the present one) has open; a newer owner decides none of an older one."""
        capture = self.named(transactional_id)
        return capture if capture is not None and owner in (None, capture.request.client) else None

    def open_here(self, transactional_id: str, owner: Producer | None) -> OpenBatch | None:
        """The one that an owner has open (``owned``), as what a driver may decide."""
        capture = self.owned(transactional_id, owner)
        return _OpenCapture(self, capture) if capture is not None else None

    async def end_own(self, transactional_id: str) -> None:
        """Aborts what the id's owner has open, if anything. TxnError."""
        capture = self.named(transactional_id)
        if capture is not None:
            with self.ending(capture):
                await capture.abort()

    def add(self, capture: ManagedTransaction) -> None:
        """Captures the client's requests from now on. TxnError if it, or the id or the member, has one already."""
        name = (capture.transactional_id, capture.member)
        taken = self._by_client.get(capture.client_id) or self._open.get(name)
        if taken is not None:
            part = f", member {taken.member}" if taken.member else ""
            why = f"{taken.transactional_id} has an open transaction, of client.id {taken.client_id}{part}"
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, why)
        self._by_client[capture.client_id] = self._open[name] = capture
        self._any_open.set()

    def remove(self, capture: ManagedTransaction) -> None:
        """Ends the capture: the client's requests are written as they are."""
        self._let_go(capture)
        name = (capture.transactional_id, capture.member)
        if self._open.get(name) is capture:
            del self._open[name]
            if not self._open:
                self._any_open = self._time.event()

    def _let_go(self, capture: ManagedTransaction) -> None:
        if self._by_client.get(capture.client_id) is capture:
            del self._by_client[capture.client_id]

    def open(self) -> Collection[ManagedTransaction]:
        """All that have not ended."""
        return self._open.values()

    @contextmanager
    def _beginning(self, capture: ManagedTransaction) -> Iterator[None]:
        """Adds a capture (``add``); if the block fails, the capture is removed."""
        self.add(capture)
        try:
            yield
        except BaseException:
            self.remove(capture)
            raise

    def view_changed(self, entry: Entry) -> None:
        """Ends what the log shows to have been aborted by hand at another kproxy (``ViewSink.listeners``)."""
        body = entry.body
        if not isinstance(body, TransactionDecision) or body.committed or body.reason not in (ASKED, HAND):
            return
        capture = self.named(entry.transactional_id)
        client = Producer(body.next_client_producer_id, body.next_client_epoch)
        if capture is not None and not capture.ends and capture.request.client == client:
            self.remove(capture)
            capture.failed("it was aborted at another kproxy")

    @contextmanager
    def ending(self, capture: ManagedTransaction) -> Iterator[None]:
        """Removes the capture after the block; its client's later writes are no part of it. TxnError if it ends."""
        if capture.ends:
            raise TxnError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{capture.transactional_id} is being decided")
        capture.ends = True
        self._let_go(capture)
        try:
            yield
        finally:
            self.remove(capture)

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records the end of a connection."""
        for capture in self._open.values():
            capture.closed(connection, received_all=received_all)

    async def run(self) -> None:
        """Dooms what is open for too long, and later lets its client go where nobody has asked; for ever."""
        while True:
            await self._any_open.wait()
            await self._time.sleep(_SWEEP_SECONDS)
            self.look()

    def look(self) -> None:
        """Dooms and forgets what is due now."""
        for capture in list(self._open.values()):
            times = (self._time.now() - capture.since) * 1000 / capture.timeout_ms
            if times >= 1 and capture.doomed is None:
                capture.failed(f"it took longer than its {capture.timeout_ms} ms")
            elif times >= _TIMES_KEPT and not capture.ends:
                self.remove(capture)


class _OpenCapture:
    """A transaction whose client's later writes are no part of it once it ends."""

    def __init__(self, begun: ManagedTransactions, capture: ManagedTransaction) -> None:
        self._begun = begun
        self._capture = capture

    async def commit(self, also: DecisionScope) -> None:
        with self._begun.ending(self._capture):
            await self._capture.commit(also)

    async def abort(self, also: DecisionScope) -> None:
        with self._begun.ending(self._capture):
            await self._capture.abort(also)
