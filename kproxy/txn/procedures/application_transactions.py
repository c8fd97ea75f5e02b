"""``on.offset.commit``: what an application writes between two OffsetCommits is one transaction with those offsets.

The application knows nothing of it. Two things make it exact. When a transaction is aborted, the consumer has moved on
in memory all the same: so its next OffsetCommit is refused, which makes it join again and begin at the offsets that are
committed. And what was written before it does so is never let into the next transaction, since the same input will be
read again: each transaction is an object of its own, and a request belongs to the one that was open when it came.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.txn.claims import NOBODY
from kproxy.txn.procedures.id_lock import IdLock
from kproxy.txn.procedures.managed_outside import ManagedTools
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.txn_error import TxnError

_UNKNOWN_POSITION: Final = "kproxy has begun: the consumer may be ahead of its committed offsets"


class ApplicationTransaction(ManagedTransaction):
    """One transaction of an application; it begins when the one before it has ended."""

    def __init__(
        self,
        tools: ManagedTools,
        transactional_id: str,
        client_id: str,
        timeout_ms: int,
        before: "ApplicationTransaction | None" = None,
    ) -> None:
        """``before`` is the transaction that has to be decided first."""
        super().__init__(tools, transactional_id, client_id, timeout_ms)
        self._before = before
        self._beginning = IdLock(tools.time)
        self._over = tools.time.event()
        #: Whether something was to be written.
        self.written = False

    def took(self, connection: int, *, answered: bool) -> None:
        self.written = True
        super().took(connection, answered=answered)

    async def write(
        self, batches: Sequence[ClientBatch], *, refused: bool, accepted: Callable[[], None]
    ) -> Sequence[Written]:
        if self.doomed is None:
            await self.begin()
        return await super().write(batches, refused=refused, accepted=accepted)

    async def begin(self) -> None:
        """Takes the transactional id, once the transaction before has ended. TxnError."""
        async with self._beginning.ordinary():
            if self._producer != NOBODY:
                return
            if self._before is not None:
                await self._before._over.wait()
                self._producer, self._before = self._before._producer, None
            if self._producer == NOBODY:
                await self.initialize()

    async def commit_with(self, offsets: Callable[[], Awaitable[TransactionOffsets]]) -> None:
        """Commits what was written together with a group's offsets. TxnError if it is aborted."""
        try:
            await self._quiet()
            if self.doomed is None:
                await self.begin()
                await self._requests.commit_offsets(self.request, await offsets(), implicit=True)
            await self.commit()
        except TxnError as error:
            self.failed(str(error))
            raise
        self._over.set()

    async def _until_aborted(self) -> None:
        await self._over.wait()

    def void(self, why: str) -> None:
        """Nothing was written and nothing will be."""
        self.doomed = why
        self._over.set()

    async def give_up(self) -> None:
        """Aborts it, so that the next may begin."""
        try:
            async with self._beginning.ordinary():
                if self._before is not None:
                    await self._before._over.wait()
                    self._producer, self._before = self._before._producer, None
            await self.abort()
        except TxnError:
            self._producer = NOBODY  # the next one's claim aborts it
        finally:
            self._over.set()


class ApplicationTransactions:
    """One application: its transactions, one after another."""

    def __init__(self, tools: ManagedTools, transactional_id: str, client_id: str, timeout_ms: int) -> None:
        """Nothing is committed until its consumer is known to be at its committed offsets."""
        self._make: Callable[[ApplicationTransaction | None], ApplicationTransaction] = lambda before: (
            ApplicationTransaction(tools, transactional_id, client_id, timeout_ms, before)
        )
        self._requests = tools.requests
        self._offsets_wait = tools.requests.offsets_wait(transactional_id)
        self.current = self._make(None)
        self.current.void(_UNKNOWN_POSITION)
        self._ending: list[ApplicationTransaction] = []
        self._rewinds = False
        #: Connections of its consumer.
        self._consumers: set[int] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost if it is forgotten: it is rebuilt from the next request of its clients."""
        return not (self.current.written or self._ending or self._consumers)

    def parties(self) -> set[int]:
        """Connections of the transactions that are open or being committed, its consumer's among them."""
        turns = [turn for turn in (*self._ending, self.current) if turn.written and turn.doomed is None]
        return self._consumers.union(*(turn.parties for turn in turns)) if turns else set()

    # -- the consumer

    def joins(self, connection: int, *, rewinds: bool) -> None:
        self._consumers.add(connection)
        if rewinds or self.current.written:
            self._doom("the group rebalances")
        self._rewinds |= rewinds

    def leaves(self) -> None:
        if self.current.written:
            self._doom("the consumer leaves its group")

    def fetches(self) -> None:
        if self._rewinds:
            self._rewind("the consumer begins at its committed offsets")

    async def commit(self, connection: int, offsets: Callable[[], Awaitable[TransactionOffsets]]) -> None:
        """Commits what was written until now with these offsets; TxnError: none of it, and the consumer has to rewind.

        What comes from now on belongs to the next transaction.
        """
        self._consumers.add(connection)
        turn, self.current = self.current, self._make(self.current)
        self._ending.append(turn)
        try:
            await turn.commit_with(offsets)
        except TxnError:
            self._rewind("the transaction before it was aborted")
            raise
        finally:
            self._ending.remove(turn)

    def _doom(self, why: str) -> None:
        self.current.failed(why)

    def _rewind(self, why: str) -> None:
        """The consumer reads again what belonged to all that is open."""
        self._rewinds = False
        for turn in (*self._ending, self.current):
            turn.failed(why)
        self.current = self._make(self.current)
        if self._offsets_wait:
            self._requests.start(self.current.begin)

    # -- connections

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records the end of a connection, of a producer or of the consumer."""
        for turn in (*self._ending, self.current):
            turn.closed(connection, received_all=received_all)
        if connection in self._consumers:
            self._consumers.discard(connection)
            if self.current.written:
                self._doom("the consumer's connection ended")
