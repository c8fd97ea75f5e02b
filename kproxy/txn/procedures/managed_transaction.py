"""Clients that know nothing of transactions: their batches go into a transaction that was begun for them.

Such a client retries each request that got no response, and nothing in its batches distinguishes the retry from new
data. So whatever may cause a retry dooms the open transaction: an error, or a connection whose end does not prove that
every response was received. An end in good order may be that of a load balancer, while the client received less. So
records that arrived before, on another connection, doom the transaction, too. A doomed transaction is aborted and takes
no more data until the caller that decides it has received that answer. So a retry can be the second copy of a record in
a transaction, but never in one that is committed.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.id_lock import IdLock
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.owner_policy import MANAGED
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import DOOMED

if TYPE_CHECKING:
    from kproxy.txn.procedures.outside import Signal

#: The caller that decides has not received it yet: what was prepared beside must not be committed alone meanwhile.
_BY_ITSELF: Final = DecisionScope(reason=DOOMED)


class ManagedTransaction:
    """One transaction at a time, of one transactional id; this kproxy is its producer."""

    def __init__(self, tools: ManagedTools, transactional_id: str, client_id: str, timeout_ms: int) -> None:
        """Nothing is asked for before ``initialize``."""
        self.transactional_id = transactional_id
        #: Of a member of the transaction; empty for its owner.
        self.member = ""
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        #: By ``Time.now``.
        self.since = tools.time.now()
        #: Why the open transaction can only be aborted.
        self.doomed: str | None = None
        #: Whether it is being decided.
        self.ends = False
        #: Whether its decision is in flight.
        self._deciding = False
        self._tools = tools
        self._requests = tools.requests
        self._producer = NOBODY
        self._aborting = IdLock(tools.time)
        #: Requests that were taken and are not complete.
        self._open = 0
        #: Set when all of them are complete, if somebody waits for that.
        self._all_done: Signal | None = None
        #: That were written.
        self._records = 0
        #: That wait for responses.
        self._connections: set[int] = set()
        self._repeated = tools.repeated(client_id)

    @property
    def request(self) -> TxnRequest:
        """A request of the producer, for the coordinator."""
        return TxnRequest(self.transactional_id, self._producer, 0, self.client_id)

    async def initialize(self) -> None:
        """Initializes the transactional id: fences its former owner and aborts its open transaction. TxnError."""
        self._producer = await self._requests.init_producer_id(
            self.transactional_id, self.timeout_ms, None, self.client_id, MANAGED
        )

    @property
    def began_ms(self) -> int:
        """The time at which it was begun, in ms since 1970."""
        time = self._tools.time
        return int(time.wall_ms() - (time.now() - self.since) * 1000)

    @property
    def parties(self) -> Collection[int]:
        """Connections over which something of it came."""
        return self._connections

    # -- what is written

    def took(self, connection: int, *, answered: bool) -> None:
        self._open += 1
        if answered:
            self._connections.add(connection)

    def came(self, connection: int, batches: Sequence[ClientBatch], arrival_ms: int) -> None:
        if self.doomed is None and self._repeated.came(connection, batches, arrival_ms):
            self.failed("records of the client came again over another connection")

    async def write(
        self, batches: Sequence[ClientBatch], *, refused: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        if refused:
            self.failed("a batch of the client was refused")
        if self.doomed is not None:
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, self.doomed)
        rows = await self._produce(batches, accepted)
        self._note(batches, rows)
        return rows

    async def _produce(self, batches: Sequence[ClientBatch], accepted: Callable[[], None]) -> Sequence[Written]:
        return await self._requests.produce(self.request, batches, implicit=True, accepted=accepted, is_job=True)

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        is_open = self.doomed is None and self._producer != NOBODY
        return is_open and self._requests.takes_at_once(self.transactional_id, batches)

    def write_at_once(self, batches: Sequence[ClientBatch], written: Callable[[Sequence[Written]], None]) -> None:
        def noted(rows: Sequence[Written]) -> None:
            self._note(batches, rows)
            written(rows)

        if self.doomed is not None:
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, self.doomed)
        self._requests.produce_at_once(self.request, batches, noted, implicit=True)

    def _note(self, batches: Sequence[ClientBatch], rows: Sequence[Written]) -> None:
        self._records += sum(batch.records for batch in batches)
        error = next((row.error_code for row in rows if row.error_code), 0)
        if error:
            self.failed(f"a batch of the client was not written: error {error}")

    def failed(self, why: str) -> None:
        """Dooms the open transaction, and has it aborted at once: readers need not wait for the caller that decides it.

        While its decision is in flight it is too late for that.
        """
        if self.doomed is None and not self._deciding:
            self.doomed = why
            self._tools.report("info", "transaction can only be aborted", self.transactional_id, reason=why)
            self._requests.start(self.give_up)

    def done(self) -> None:
        self._open -= 1
        if not self._open and self._all_done is not None:
            self._all_done.set()
            self._all_done = None

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records the end of a connection; ``received_all``: its client surely has every response."""
        if connection in self._connections and not received_all:
            self.failed("a connection of the client ended, which may not have had every answer")

    # -- the end

    async def commit(self, also: DecisionScope = ALONE) -> None:
        """Commits what was taken; TxnError if it is aborted, or it can't be known what became of it."""
        await self._decide(lambda: self._requests.end(self.request, committed=True, bumps=False, also=also))

    async def prepare(self, records: int | None = None, batch_id: str | None = None) -> None:
        """Leaves what was taken to a later decision. TxnError as of ``commit``.

        ``records``: how many the client has written. Unless as many were taken it is aborted: some are elsewhere.
        ``batch_id``: as of ``Owner.prepare``.
        """
        await self._quiet()
        if records not in (None, self._records):
            self.failed(
                f"the client has written {records} records, and kproxy received {self._records} of them: "
                "bootstrap.servers of the client must be the kproxy where the transaction began"
            )
        await self._decide(lambda: self._prepare(batch_id))

    async def _prepare(self, batch_id: str | None) -> None:
        await self._requests.prepare(self.request, batch_id)

    async def abort(self, also: DecisionScope = ALONE) -> None:
        """Aborts what was taken. TxnError if that fails now: then a claim or the time-out does it."""
        self.doomed = self.doomed or "it was aborted"
        await self._abort_the_open(also)
        await self._quiet()
        # batches in flight there may have begun another
        await self._abort_the_open(also._replace(members=None, every=False))

    async def _decide(self, decide: Callable[[], Awaitable[object]]) -> None:
        """Decides it once no batch is in flight, unless it is doomed: then it is aborted."""
        await self._quiet()
        if self.doomed is not None:
            await self._until_aborted()
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, self.doomed)
        self._deciding = True
        try:
            await decide()
        finally:
            self._deciding = False

    async def _until_aborted(self) -> None:
        await self.abort(_BY_ITSELF)

    async def give_up(self) -> None:
        """Aborts what is open. TxnError as of ``abort``."""
        await self._abort_the_open(_BY_ITSELF)

    async def _abort_the_open(self, also: DecisionScope = ALONE) -> None:
        async with self._aborting.ordinary():  # an abort that began by itself may be running
            if self._producer == NOBODY:
                return
            try:
                await self._requests.end(self.request, committed=False, bumps=False, also=also)
            except TxnError as error:
                if error.error_code is not ErrorCode.INVALID_TXN_STATE:  # nothing is open
                    raise

    async def _quiet(self) -> None:
        """Waits until all requests that were taken are through."""
        while self._open:
            if self._all_done is None:
                self._all_done = self._tools.time.event()
            await self._all_done.wait()
