"""Rejects producer ids that readers have met and the transaction log does not know: otherwise readers wait for ever.

An instance that rejects one must have met its data, and then read the log to its end: what is not in the log then will
never be. The explorer (``verification.explorer.broken_rejects``) shows what happens otherwise.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.txn.ids import is_transactional_producer_id
from kproxy.txn.procedures.outside import Counters, Level, NotAppended, Signal, Time
from kproxy.txn.txn_error import TxnError
from kproxy.txn.unknown import Met
from kproxy.txn.views import Views

#: The time between two checks of the log, also after a rejection: readers may meet the next one at once.
_LOOK_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.05
#: So many are logged one by one, each time.
_MOST_TOLD: Final = 20
#: For a rejection with all that precedes it; then it is tried again.
_REJECT_S: Final = 60.0


class RejectableLog(Protocol):
    """The transaction log, in which producer ids can be rejected."""

    @property
    def views(self) -> Views:
        """The views of all ids."""
        ...

    @property
    def wanted(self) -> Signal:
        """Set when the log has to be there."""
        ...

    @property
    def opened(self) -> Signal:
        """Set when all of the log has been read once."""
        ...

    @property
    def restarts(self) -> int:
        """The number of times that partitions were read from their beginning."""
        ...

    async def reject(self, producer_id: int) -> None:
        """Rejects a producer id, and waits until that is read. OSError and the like."""
        ...


class UnknownReport(Protocol):
    """Writes a line about unknown producer ids to kproxy's own log."""

    def __call__(self, level: Level, text: str, **facts: object) -> None:
        """``facts`` by name."""
        ...


class Rejects:
    """Reports them, and rejects them by itself or on request."""

    def __init__(
        self,
        transactions: RejectableLog,
        read_all: Callable[[], Awaitable[None]],
        stats: Counters,
        time: Time,
        report: UnknownReport,
        *,
        grace_s: float,
        by_itself: bool,
    ) -> None:
        """``read_all`` reads all of the log that there is; OSError or RemoteProtocolError if that fails.

        ``by_itself``: without a request, ``grace_s`` after the first one that was met since the log was read again, or
        since there were none for so long.
        """
        self._log = transactions
        self._views = transactions.views
        self._read_all = read_all
        self._stats = stats
        self._time = time
        self._report = report
        self._grace_s = grace_s
        self._by_itself = by_itself
        #: Since when each has been unknown, by ``Time.now``.
        self._since: dict[int, float] = {}
        #: When the grace began, when there was one last, and how often the log had been read again.
        self._began: float | None = None
        self._last = 0.0
        self._restarts = -1

    async def run(self, look_s: float = _LOOK_S) -> None:
        """Looks for ever."""
        wait_s = look_s
        while True:
            await self._time.sleep(wait_s)
            wait_s = min(look_s, _LOOK_AGAIN_S) if await self.look() else look_s

    async def look(self) -> bool:
        """Checks once: forgets what the log knows by now, logs what is new; returns whether any was rejected."""
        met = {one.producer_id: one for one in self._views.unknown}
        if met:  # before the log is read: what is met after that may be known after that
            try:
                await self._read_all()
            except (OSError, RemoteProtocolError) as error:
                self._report("debug", "the transaction log cannot be read", reason=str(error))
                return False
        self._note({number: one for number, one in met.items() if number in self._views.unknown})
        due = list(self._since) if self._is_due() else []
        rejected = [number for number in due if await self._try(met[number])]
        self._tell()
        return bool(rejected)

    def _note(self, unknown: dict[int, Met]) -> None:
        now = self._time.now()
        new = [one for number, one in unknown.items() if number not in self._since]
        self._since = {number: self._since.get(number, now) for number in unknown}
        was_quiet = not unknown and now - self._last > self._grace_s
        if self._restarts != self._log.restarts or was_quiet:
            self._restarts, self._began = self._log.restarts, None
        if unknown:
            self._began, self._last = now if self._began is None else self._began, now
        for one in new[:_MOST_TOLD]:
            self._report(
                "warning",
                "readers wait for a transaction that the transaction log does not know: was the log lost?",
                **_where(one),
                rejected_in_s=self._left_s(now),
                command=f"kproxy txn reject {one.producer_id}",
            )
        if len(new) > _MOST_TOLD:
            self._report(
                "warning", "more producer ids that the transaction log does not contain", count=len(new) - _MOST_TOLD
            )

    def _left_s(self, now: float) -> float | None:
        if not self._by_itself or self._began is None:
            return None
        return round(max(0.0, self._began + self._grace_s - now), 3)

    def _is_due(self) -> bool:
        began = self._began
        return self._by_itself and began is not None and self._time.now() - began >= self._grace_s

    def _tell(self) -> None:
        since = min(self._since.values(), default=None)
        self._stats.unknown = len(self._since)
        ago_s = 0.0 if since is None else self._time.now() - since
        self._stats.oldest_unknown = None if since is None else self._time.wall_ms() / 1000 - ago_s

    # -- rejecting

    async def _try(self, one: Met) -> bool:
        """Rejects one by itself; what fails is tried again."""
        try:
            return await self._reject(one)
        except (NotAppended, OSError, RemoteProtocolError) as error:
            self._report(
                "warning", "a producer id cannot be rejected yet", producer_id=one.producer_id, reason=str(error)
            )
            return False

    async def reject(self, producer_id: int) -> None:
        """Rejects one now; nothing happens if it is rejected already. TxnError if it must not be, or can't be."""
        if not is_transactional_producer_id(producer_id):
            raise TxnError(
                ErrorCode.INVALID_REQUEST,
                f"{producer_id} is no producer id of kproxy's transactions: those are "
                "6917529027641081857 to 9223372036854775807",
            )
        met = next((one for one in self._views.unknown if one.producer_id == producer_id), None)
        try:
            if met is None:
                await self._read_all()
            else:
                await self._reject(met)
        except (NotAppended, OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the transaction log: {error}") from error
        self._refuse(producer_id)
        self._since.pop(producer_id, None)
        self._tell()

    def _refuse(self, producer_id: int) -> None:
        """Raises TxnError, unless the producer id is rejected by now."""
        if self._views.is_rejected(producer_id):
            return
        view = self._views.of_producer(producer_id)
        if view is not None:
            raise TxnError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction log knows producer id {producer_id}: it is {view.transactional_id}'s, "
                "which can be committed or aborted",
            )
        raise TxnError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"no reader of this kproxy waits for producer id {producer_id}, which may yet be given to a producer",
        )

    async def _reject(self, one: Met) -> bool:
        """Rejects one unless the log, read to its end, knows it. NotAppended, OSError, RemoteProtocolError."""
        with self._time.scope(_REJECT_S):
            self._log.wanted.set()
            await self._log.opened.wait()
            await self._read_all()
            if one.producer_id not in self._views.unknown:
                return False
            await self._log.reject(one.producer_id)
            self._since.pop(one.producer_id, None)
            self._stats.rejected += 1
            self._report(
                "warning", "data of a transaction that the transaction log did not contain are aborted", **_where(one)
            )
            return True
        raise OSError("it did not answer in time")


def _where(one: Met) -> dict[str, object]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "producer_id": one.producer_id,
    }
