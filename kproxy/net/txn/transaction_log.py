"""The transaction log as kproxy uses it: its views, appends to it, and the view after an append."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import structlog
import trio

from kproxy.codec._generated.transaction_reject import TransactionReject
from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.txn.log_appender import AppendUnknown, LogAppender
from kproxy.net.txn.log_follower import LogFollower, LogLost
from kproxy.txn.ids import log_partition, reject_partition
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.views import Views

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger("kproxy.transaction_log")

_QUIET_SECONDS: Final = 10.0


class ViewSink:
    """Fills the views from the log (``log_partition.LogSink``)."""

    def __init__(self, views: Views) -> None:
        """``views`` are what is filled."""
        self._views = views
        #: Called with each record that changed a view.
        self.listeners: list[Callable[[Entry], None]] = []

    def restart(self, partition: int, start: int) -> None:
        self._views.restart(partition, start)

    def apply(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        producer_id: int,
        epoch: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        self._tell(self._views.apply(partition, LogPosition(offset, timestamp_ms), key, value))

    def begin_without(self, partition: int) -> None:
        """Continues a partition whose beginning is lost with what the log says now."""
        self._tell(self._views.begin_without(partition))

    def _tell(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            for listener in self.listeners:
                listener(entry)

    def advanced(self, partition: int, end: int) -> None:
        pass


def make_views() -> Views:
    """Views that warn once of each kind of record that they do not understand."""
    told: set[str] = set()

    def tell(what: str, why: str) -> None:
        if what not in told:
            told.add(what)
            log.error("the transaction log holds records that this kproxy does not understand", kind=what, reason=why)

    return Views(tell)


class TransactionLog:
    """The transaction log, for an owner of a transactional id."""

    def __init__(self, views: Views, follower: LogFollower, appender: LogAppender) -> None:
        """``follower`` fills ``views`` and runs; ``appender`` writes."""
        self.views = views
        self._follower = follower
        self._appender = appender
        #: Set when a transaction is to be begun here: the topic has to be there.
        self.wanted = trio.Event()
        #: Set when all of the log has been read once.
        self.opened = trio.Event()
        #: When the brokers last said that there is no log, by trio's clock; None: there is one, or nothing is known.
        self.absent_at: float | None = None

    @property
    def as_of(self) -> float | None:
        """The time at which the views were last known to be current, by trio's clock; None: not yet."""
        return self._follower.current_at if self.opened.is_set() else self.absent_at

    async def pause(self, seconds: float) -> None:
        """Sleeps; where everything in the log is settled, longer: until it has something new, or ``_QUIET_SECONDS``.

        So an idle instance of an idle fleet wakes up seldom.
        """
        seen = self._follower.version
        await trio.sleep(seconds)
        if not self.views.unsettled():
            with trio.move_on_after(_QUIET_SECONDS):
                await self._follower.changed(seen)

    @property
    def lag(self) -> int:
        """The number of offsets of the log that are not applied yet."""
        return self._follower.lag

    @property
    def losses(self) -> Mapping[str, int]:
        """The number of times that the log was found to have lost records, by what happened."""
        return self._follower.losses

    @property
    def restarts(self) -> int:
        """The number of times that partitions were read from their beginning."""
        return self._follower.restarts

    def partition_of(self, transactional_id: str) -> int:
        """The partition that speaks of an id."""
        return log_partition(transactional_id, self._follower.partitions)

    def is_foreign(self, transactional_id: str) -> bool:
        """Whether the log says things there that this kproxy does not understand, or has lost: it must not decide."""
        return not self.views.knows(self.partition_of(transactional_id))

    async def read_to_end(self, transactional_id: str) -> IdView | None:
        """The view after reading all of the log. OSError, RemoteProtocolError if that fails."""
        self.wanted.set()
        await self.opened.wait()
        await self._follower.read_to_end(self.partition_of(transactional_id))
        return self.views.of(transactional_id)

    async def read_all_to_end(self) -> None:
        """Reads all of the log, so that all views are current. OSError, RemoteProtocolError if that fails."""
        await self.opened.wait()
        every = range(self._follower.partitions)
        await self._follower.read_to_ends(every)
        if not all(map(self.views.knows, every)):
            raise RemoteProtocolError("the transaction log holds what this kproxy does not understand")

    async def append(self, entry: Entry, producer_id: int, epoch: int, sequence: int) -> None:
        """Appends a record under a claim, and waits until it is read: then the view says whether it counts.

        AppendFenced, AppendRefused, AppendUnknown: the log has to be read to its end, to see what became of it.
        """
        partition = self.partition_of(entry.transactional_id)
        offset = await self.append_unread(entry, producer_id, epoch, sequence)
        try:
            await self._follower.reached(partition, offset + 1)
        except LogLost as lost:
            raise AppendUnknown(partition, ErrorCode.OFFSET_OUT_OF_RANGE) from lost

    async def append_unread(self, entry: Entry, producer_id: int, epoch: int, sequence: int) -> int:
        """Appends without waiting until the entry is read; its offset."""
        partition = self.partition_of(entry.transactional_id)
        return await self._appender.append(partition, producer_id, epoch, sequence, [encode(entry)])

    async def append_unfenced(self, entry: Entry) -> None:
        """Appends a record that means the same from every writer, however often. OSError and the like if it fails."""
        await self._appender.append_unfenced(self.partition_of(entry.transactional_id), [encode(entry)])

    async def reject(self, producer_id: int) -> None:
        """Says that all data under a producer id are aborted, and waits until that is read. OSError and the like.

        The caller has met data under it, then read all of the log, and found nothing of it.
        """
        partition = reject_partition(producer_id, self._follower.partitions)
        offset = await self._appender.append_unfenced(partition, [encode(Entry("", TransactionReject(producer_id)))])
        await self._follower.reached(partition, offset + 1)
