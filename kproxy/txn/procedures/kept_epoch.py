"""Keeps, in the log, which epoch at the broker stands for the client of one transactional id.

A kproxy that is started again continues by it (``continuing``). Where the log is unavailable, or too slow, transactions
continue without: after a restart of kproxy the client is then refused, as one that was fenced.
"""

from typing import Final, Protocol

from kproxy.codec.messages import ErrorCode
from kproxy.codec.packed import Plain
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.outside import Counters, Report, Signal, Time
from kproxy.txn.stored_epochs import LastEnd, StoredEpoch, StoredEpochs
from kproxy.txn.txn_error import TxnError

#: The most that a transaction waits for the log before its first data.
_MOST_SECONDS: Final = 5.0


class EpochLog(Protocol):
    """The log with the epochs of this instance's clients (``LaneLog``)."""

    @property
    def enabled(self) -> bool:
        """Whether anything is noted; once False, for good."""
        ...

    @property
    def opened(self) -> Signal:
        """Set when the log has been read once."""
        ...

    async def epochs(self) -> StoredEpochs:
        """The epochs as they are now; as long as the log can't be read, the caller waits."""
        ...

    def has_epochs_before(self, recorded_ms: int) -> bool:
        """Whether an entry, as last read, was written before a time."""
        ...

    def put_epoch(self, transactional_id: str, stored: StoredEpoch | None) -> Signal:
        """Takes an entry; set when it is durable, or will never be."""
        ...

    def now_ms(self) -> int:
        """The brokers' time, in ms since 1970."""
        ...


class KeptEpoch:
    """The kept epoch of one transactional id."""

    def __init__(self, log: EpochLog, transactional_id: str, stats: Counters, time: Time, report: Report) -> None:
        self._log = log
        self._name = transactional_id
        self._stats = stats
        self._client: Producer | None = None
        self._timeout_ms = 0
        self._time, self._report = time, report
        self._written = time.event()
        self._written.set()
        #: The entry that could not be written yet, because the log is still being read.
        self._unwritten: StoredEpoch | None = None
        #: Whether the log has an entry by now.
        self._has_entry = False
        #: Somebody has waited for the last entry in vain, so nobody else does.
        self._is_slow = False

    def begin(self, client: Producer, timeout_ms: int) -> None:
        """Begins the entries of a client."""
        self._client, self._timeout_ms = client, timeout_ms

    def pack(self) -> Plain | None:
        """State for ``unpack``; None while an entry is to be written."""
        if self._unwritten is not None or self._is_slow or not self._written.is_set():
            return None
        return None if self._client is None else tuple(self._client), self._timeout_ms, self._has_entry

    def unpack(self, packed: Plain) -> None:
        """Takes the state that ``pack`` returned."""
        client, self._timeout_ms, self._has_entry = packed
        self._client = None if client is None else Producer(*client)

    def leave(self, *, replaced: bool = False) -> None:
        """Records that this client can't be continued: its epoch rises with each end, or it was ``replaced``.

        The entry says so from now on: clients that were replaced are to hear of it from the next kproxy, too.
        """
        client = self._client
        if client is None:
            return
        self._client = self._unwritten = None
        if self._log.opened.is_set():
            first = Producer(client.producer_id, client.epoch + replaced)
            self._put(StoredEpoch(first, first, LastEnd.LEFT, self._timeout_ms, self._log.now_ms()))

    def forget(self) -> None:
        """The brokers have forgotten the client: the entry is deleted."""
        self._client = self._unwritten = None
        if self._has_entry:
            self._put(None)

    def put(self, upstream: Producer, last: LastEnd) -> None:
        """Writes the client's epoch at the broker, and how its last transaction ended; returns at once."""
        if self._client is not None:
            now_ms = self._log.now_ms()
            self._put(StoredEpoch(self._client, upstream, last, self._timeout_ms, now_ms))

    def _put(self, stored: StoredEpoch | None) -> None:
        if not self._log.enabled:
            return
        if not self._log.opened.is_set():
            self._unwritten = stored
            self._stats.unrecorded += self._is_slow
            return
        self._unwritten = None
        if self._is_slow and not self._written.is_set():
            self._stats.unrecorded += 1  # one entry of an id waits in the log, not all
            return
        self._is_slow, self._has_entry = False, stored is not None
        self._written = self._log.put_epoch(self._name, stored)

    async def written(self) -> None:
        """Returns when the last entry is durable, which the first data under its epoch wait for; or the log is slow."""
        is_durable = self._unwritten is None and self._written.is_set()
        is_readable = self._unwritten is not None and self._log.opened.is_set()  # it was slow to be read until now
        if is_durable or (self._is_slow and not is_readable):
            return
        with self._time.scope(_MOST_SECONDS) as scope:
            if self._unwritten is not None:
                await self._log.opened.wait()
                self._put(self._unwritten)
            await self._written.wait()
        if scope.cancelled_caught:
            self._is_slow = True
            self._stats.unrecorded += 1
            why = (
                "the log of producer ids is slow; this client's transactions continue without it, and if kproxy is "
                "restarted meanwhile the client has to create a new producer"
            )
            self._report("warning", why, self._name)

    async def recorded(self, upstream: Producer, last: LastEnd) -> None:
        """Writes an entry, and returns when it is durable. TxnError (COORDINATOR_NOT_AVAILABLE) if it is not."""
        if not self._is_slow or self._written.is_set():
            self.put(upstream, last)
            with self._time.scope(_MOST_SECONDS):
                await self._written.wait()
                if self._log.enabled:
                    return
        self._is_slow = not self._written.is_set()
        raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the log does not take the epoch of {self._name}")
