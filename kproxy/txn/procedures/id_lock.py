"""The lock of a transactional id, and how an abort cuts short the waits of its holder.

A request may have to wait for data brokers in its turn: for room in the writer, for outstanding batches, for a
coordinator of a group. A partition that takes no writes makes these waits as long as it likes. A time-out, an abort and
a new producer must not depend on that, so they end the wait of the request that has the turn.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from kproxy.codec.messages import ErrorCode
from kproxy.txn.procedures.outside import Scope, Time
from kproxy.txn.txn_error import TxnError

T = TypeVar("T")


class Wait(Protocol):
    """Waits for data brokers, or a group's coordinator, in the turn of a request. Interrupted by an abort."""

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of the work."""
        ...


class Interrupted(TxnError):
    """The open transaction is being aborted by a request that came later (TRANSACTION_ABORTABLE)."""

    def __init__(self, why: str) -> None:
        """``why``: what aborts it."""
        super().__init__(ErrorCode.TRANSACTION_ABORTABLE, why)


class IdLock:
    """The lock of one transactional id: first come, first served."""

    def __init__(self, time: Time) -> None:
        """Nobody has the turn."""
        self.lock = time.lock()
        self._scope = time.scope
        self._wait: Scope | None = None
        #: The reasons of the aborts that want the turn now.
        self._urgent: list[str] = []
        #: The reason why a wait was cut short last.
        self._why = ""

    @property
    def is_waiting(self) -> bool:
        """Whether the request that has the turn waits for data brokers."""
        return self._wait is not None

    @asynccontextmanager
    async def ordinary(self) -> AsyncIterator[None]:
        """A turn that waits for as long as those before it need; where nobody has it, it begins without a checkpoint.

        A checkpoint is a turn of the event loop, which costs as much as most of what is done in a turn here.
        """
        if self.lock.locked():
            await self.lock.acquire()
        else:
            self.lock.acquire_nowait()
        try:
            yield
        finally:
            self.lock.release()

    async def wait(self, work: Callable[[], Awaitable[T]]) -> T:
        """Waits, in the caller's turn, for data brokers. Interrupted if the transaction is to be aborted."""
        done: list[T] = []
        if not self._urgent:
            with self._scope() as self._wait:
                try:
                    done.append(await work())
                finally:
                    self._wait = None
        if self._urgent or not done:  # the abort may have been cancelled since
            raise Interrupted(self._urgent[0] if self._urgent else self._why)
        return done[0]

    @asynccontextmanager
    async def urgent(self, why: str) -> AsyncIterator[None]:
        """A turn for aborting what is open: until it begins no other request waits for data brokers."""
        self._urgent.append(why)
        try:
            if self._wait is not None:
                self._why = why
                self._wait.cancel()
            await self.lock.acquire()
        finally:
            self._urgent.remove(why)
        try:
            yield
        finally:
            self.lock.release()
