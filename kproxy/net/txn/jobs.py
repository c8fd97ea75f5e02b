"""Work that continues when the client that asked for it has disconnected: half a decision is none."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.errors import KproxyError
from kproxy.txn.txn_error import TxnError

T = TypeVar("T")

log = structlog.get_logger("kproxy.transactions")


class _Job(Generic[T]):
    """One piece of it."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._done = trio.Event()
        self._error: TxnError | None = None
        self._result: T | None = None

    async def run(self) -> None:
        try:
            self._result = await self._work()
        except Exception as error:
            self._error = _for_client(error)
        except BaseException:
            # a task that still waits must not treat it as done
            self._error = TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "kproxy is being stopped")
            raise
        finally:
            self._done.set()

    async def result(self) -> T:
        await self._done.wait()
        return self.outcome()

    def outcome(self) -> T:
        if self._error is not None:
            raise TxnError(self._error.error_code, self._error.message)
        return self._result  # type: ignore[return-value]  # set, as there was no error


class Jobs:
    """Runs it in the nursery that it is given."""

    def __init__(self, nursery: trio.Nursery) -> None:
        """``nursery`` outlives the clients' connections."""
        self._nursery = nursery
        #: The number of jobs that have begun and are not through.
        self.count = 0

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Begins work; what is given waits for its result, or raises TxnError."""
        job = _Job(work)
        self._nursery.start_soon(self._do, job)
        return job.result

    async def _do(self, job: _Job[T]) -> None:
        self.count += 1
        try:
            await job.run()
        finally:
            self.count -= 1

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Begins work and waits for its result. TxnError."""
        return await self.start(work)()

    @staticmethod
    def do(work: Callable[[], T]) -> T:
        """Does work that waits for nothing; its errors become the same ones. TxnError."""
        try:
            return work()
        except Exception as error:
            raise _for_client(error) from error

    @staticmethod
    async def within(work: Callable[[], Awaitable[T]]) -> T:
        """Does a part of work that has begun, without a task of its own; its errors become the same ones. TxnError."""
        job = _Job(work)
        await job.run()
        return job.outcome()


def _for_client(error: Exception) -> TxnError:
    """The error that the client receives; called where ``error`` is handled."""
    if isinstance(error, TxnError):
        return TxnError(error.error_code, error.message)
    if isinstance(error, OSError | KproxyError):
        return TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
    # one id's fault, even if it is a bug of ours, is not the others'
    log.exception("transaction failed; this is a bug of kproxy, please report it")
    return TxnError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
