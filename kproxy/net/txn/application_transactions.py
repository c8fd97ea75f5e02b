"""``on.offset.commit``: what an application writes between two OffsetCommits is one transaction with those offsets.

The application knows nothing of it. Two things make it exact. When a transaction is aborted, the consumer has moved on
in memory all the same: so its next OffsetCommit is refused, which makes it join again and begin at the offsets that are
committed. And what was written before it does so is never let into the next transaction, since the same input will be
read again: each transaction is an object of its own, and a request belongs to the one that was open when it came.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.managed_transactions import ManagedTransaction
from kproxy.proxy.applications import CommitRule, of_consumer, of_producer
from kproxy.txn.claims import NOBODY
from kproxy.txn.requests import ClientBatch, Written
from kproxy.txn.txn_error import TxnError

#: Of more, those that do nothing are forgotten.
_MOST_APPLICATIONS: Final = 1_000
_UNKNOWN_POSITION: Final = "kproxy has begun: the consumer may be ahead of its committed offsets"


class ApplicationTransaction(ManagedTransaction):
    """One transaction of an application; it begins when the one before it has ended."""

    def __init__(
        self,
        coordinator: Coordinator,
        transactional_id: str,
        client_id: str,
        timeout_ms: int,
        before: "ApplicationTransaction | None" = None,
    ) -> None:
        """``before`` is the transaction that has to be decided first."""
        super().__init__(coordinator, transactional_id, client_id, timeout_ms)
        self._before = before
        self._beginning = trio.Lock()
        self._over = trio.Event()
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
        async with self._beginning:
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
                await self._coordinator.commit_offsets(self.request, await offsets(), implicit=True)
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
            async with self._beginning:
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

    def __init__(self, coordinator: Coordinator, transactional_id: str, client_id: str, timeout_ms: int) -> None:
        """Nothing is committed until its consumer is known to be at its committed offsets."""
        self._make: Callable[[ApplicationTransaction | None], ApplicationTransaction] = lambda before: (
            ApplicationTransaction(coordinator, transactional_id, client_id, timeout_ms, before)
        )
        self._coordinator = coordinator
        self._at_once = coordinator.is_at_broker(transactional_id)
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
        if self._at_once:
            self._coordinator.start(self.current.begin)  # the consumer's offsets wait for what may still be open

    # -- connections

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records the end of a connection, of a producer or of the consumer."""
        for turn in (*self._ending, self.current):
            turn.closed(connection, received_all=received_all)
        if connection in self._consumers:
            self._consumers.discard(connection)
            if self.current.written:
                self._doom("the consumer's connection ended")


class ApplicationsByRule:
    """The applications of ``on.offset.commit``, made when they are first met."""

    def __init__(self, coordinator: Coordinator, rules: Sequence[CommitRule], timeout_ms: int) -> None:
        """``timeout_ms``: of each of their transactions."""
        self._coordinator = coordinator
        self._rules = rules
        self._timeout_ms = timeout_ms
        self._applications: dict[str, ApplicationTransactions] = {}

    @property
    def some(self) -> bool:
        """Whether there may be any."""
        return bool(self._rules)

    def of_producer(self, client_id: str) -> ApplicationTransactions | None:
        """The application to which a producer belongs."""
        return self._of(of_producer(self._rules, client_id), client_id)

    def of_consumer(self, client_id: str, group_id: str) -> ApplicationTransactions | None:
        return self._of(of_consumer(self._rules, client_id, group_id), client_id)

    def _of(self, name: str | None, client_id: str) -> ApplicationTransactions | None:
        if name is None:
            return None
        found = self._applications.get(name)
        if found is None:
            if len(self._applications) >= _MOST_APPLICATIONS:
                self._applications = {name: one for name, one in self._applications.items() if not one.is_idle}
            transactional_id = f"on-offset-commit-{self._coordinator.instance_id}-{name}"
            found = ApplicationTransactions(self._coordinator, transactional_id, client_id, self._timeout_ms)
            self._applications[name] = found
        return found

    def parties(self) -> set[int]:
        """The connections of the open transactions of all applications."""
        return set().union(*(application.parties() for application in self._applications.values()))

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records the end of a connection."""
        for application in self._applications.values():
            application.closed(connection, received_all=received_all)
