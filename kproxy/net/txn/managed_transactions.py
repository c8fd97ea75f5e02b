"""Clients that know nothing of transactions: their batches go into a transaction that was begun for them.

Such a client retries each request that got no response, and nothing in its batches distinguishes the retry from new
data. So whatever may cause a retry dooms the open transaction: an error, or a connection whose end does not prove that
every response was received. An end in good order may be that of a load balancer, while the client received less. So
records that arrived before, on another connection, doom the transaction, too. A doomed transaction is aborted and takes
no more data until the caller that decides it has received that answer. So a retry can be the second copy of a record in
a transaction, but never in one that is committed.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import structlog
import trio

from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec.messages import ErrorCode
from kproxy.dedup.repeats import ReceivedBatch, Repeats
from kproxy.net.txn.coordinator import Coordinator
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.owner_policy import MANAGED
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import ASKED, DOOMED, HAND

log = structlog.get_logger("kproxy.transactions")

_SWEEP_SECONDS = 1.0
#: What is larger when it is unpacked is not compared with what came before.
_MOST_UNPACKED = 1 << 26
#: A transaction that nobody decides is aborted after its time-out. For as long again its client gets that response.
_TIMES_KEPT = 2
#: The caller that decides has not received it yet: what was prepared beside must not be committed alone meanwhile.
_BY_ITSELF = DecisionScope(reason=DOOMED)


class ManagedTransaction:
    """One transaction at a time, of one transactional id; this kproxy is its producer."""

    def __init__(self, coordinator: Coordinator, transactional_id: str, client_id: str, timeout_ms: int) -> None:
        """Nothing is asked for before ``initialize``."""
        self.transactional_id = transactional_id
        #: Of a member of the transaction; empty for its owner.
        self.member = ""
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        #: By trio's clock.
        self.since = trio.current_time()
        #: Why the open transaction can only be aborted.
        self.doomed: str | None = None
        #: Whether it is being decided.
        self.ends = False
        #: Whether its decision is in flight.
        self._deciding = False
        self._coordinator = coordinator
        self._producer = NOBODY
        self._aborting = trio.Lock()
        self._open = 0
        #: That were written.
        self._records = 0
        self._through = trio.lowlevel.ParkingLot()
        #: That wait for responses.
        self._connections: set[int] = set()
        self._repeats = Repeats(_MOST_UNPACKED, at_any_time=coordinator.renews_timestamps(client_id))

    @property
    def request(self) -> TxnRequest:
        """A request of the producer, for the coordinator."""
        return TxnRequest(self.transactional_id, self._producer, 0, self.client_id)

    async def initialize(self) -> None:
        """Initializes the transactional id: fences its former owner and aborts its open transaction. TxnError."""
        self._producer = await self._coordinator.init_producer_id(
            self.transactional_id, self.timeout_ms, None, self.client_id, MANAGED
        )

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
        found = (ReceivedBatch(batch.topic, batch.partition, batch.batch, arrival_ms) for batch in batches)
        if self.doomed is None and self._repeats.came(connection, found):
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
        return await self._coordinator.produce(self.request, batches, implicit=True, accepted=accepted, is_job=True)

    def takes_at_once(self, batches: Sequence[ClientBatch]) -> bool:
        is_open = self.doomed is None and self._producer != NOBODY
        return is_open and self._coordinator.takes_at_once(self.transactional_id, batches)

    def write_at_once(self, batches: Sequence[ClientBatch], written: Callable[[Sequence[Written]], None]) -> None:
        def noted(rows: Sequence[Written]) -> None:
            self._note(batches, rows)
            written(rows)

        if self.doomed is not None:
            raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, self.doomed)
        self._coordinator.produce_at_once(self.request, batches, noted, implicit=True)

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
            log.info("transaction can only be aborted", transactional_id=self.transactional_id, reason=why)
            self._coordinator.start(self.give_up)

    def done(self) -> None:
        self._open -= 1
        self._through.unpark_all()

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records the end of a connection; ``received_all``: its client surely has every response."""
        if connection in self._connections and not received_all:
            self.failed("a connection of the client ended, which may not have had every answer")

    # -- the end

    async def commit(self, also: DecisionScope = ALONE) -> None:
        """Commits what was taken; TxnError if it is aborted, or it can't be known what became of it."""
        await self._decide(lambda: self._coordinator.end(self.request, committed=True, bumps=False, also=also))

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
        await self._coordinator.prepare(self.request, batch_id)

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
        async with self._aborting:  # an abort that began by itself may be running
            if self._producer == NOBODY:
                return
            try:
                await self._coordinator.end(self.request, committed=False, bumps=False, also=also)
            except TxnError as error:
                if error.error_code is not ErrorCode.INVALID_TXN_STATE:  # nothing is open
                    raise

    async def _quiet(self) -> None:
        """Waits until all requests that were taken are through."""
        while self._open:
            await self._through.park()


class ManagedTransactions:
    """The captures that were begun by hand; what the clients of each write goes there until its end begins."""

    def __init__(self) -> None:
        """None."""
        self._by_client: dict[str, ManagedTransaction] = {}
        #: By transactional id and member.
        self._open: dict[tuple[str, str], ManagedTransaction] = {}
        self._any_open = trio.Event()

    def __iter__(self) -> Iterator[ManagedTransaction]:
        """Those that have not ended."""
        return iter(self._open.values())

    def of(self, client_id: str) -> ManagedTransaction | None:
        return self._by_client.get(client_id)

    def named(self, transactional_id: str, member: str = "") -> ManagedTransaction | None:
        """The one of an id's owner, or of a member, if it has not ended."""
        return self._open.get((transactional_id, member))

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
                self._any_open = trio.Event()

    def _let_go(self, capture: ManagedTransaction) -> None:
        if self._by_client.get(capture.client_id) is capture:
            del self._by_client[capture.client_id]

    def open(self) -> Collection[ManagedTransaction]:
        """All that have not ended."""
        return self._open.values()

    @contextmanager
    def beginning(self, capture: ManagedTransaction) -> Iterator[None]:
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
            await trio.sleep(_SWEEP_SECONDS)
            for capture in list(self._open.values()):
                times = (trio.current_time() - capture.since) * 1000 / capture.timeout_ms
                if times >= 1 and capture.doomed is None:
                    capture.failed(f"it took longer than its {capture.timeout_ms} ms")
                elif times >= _TIMES_KEPT and not capture.ends:
                    self.remove(capture)
