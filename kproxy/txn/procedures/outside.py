"""Requests of procedures to the outside: the log, brokers, groups, time. The shell performs them, and so can a test.

A procedure is a coroutine that waits for nothing but what is named here. trio drives it where it serves clients; an
explorer drives the same code through every order of what may happen.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import FIRST_TOPIC_ID
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import KproxyError, RemoteProtocolError
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.former import Scan
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from kproxy.txn.views import Views
from kproxy.txn.writes import Batch, PartitionWrites, TxnSend

if TYPE_CHECKING:
    from kproxy.txn.procedures.former_epochs import FormerEpochs


T = TypeVar("T")


class NotAppended(KproxyError):
    """The log's leader did not acknowledge an append: the log has to be read, to see what became of it."""


class Log(Protocol):
    """The transaction log, as far as this instance has read it."""

    @property
    def views(self) -> Views:
        """The views of all ids."""
        ...

    async def read_to_end(self, transactional_id: str) -> IdView | None:
        """The view after reading all of the log. OSError, RemoteProtocolError if that fails."""
        ...

    def is_foreign(self, transactional_id: str) -> bool:
        """Whether the log holds what this kproxy does not understand, or its beginning is lost."""
        ...

    async def append(self, entry: Entry, producer_id: int, epoch: int, sequence: int) -> None:
        """Appends a record under a claim, and waits until it is read. NotAppended."""
        ...

    async def append_unread(self, entry: Entry, producer_id: int, epoch: int, sequence: int) -> int:
        """Appends without waiting until the entry is read; its offset. NotAppended."""
        ...

    async def append_unfenced(self, entry: Entry) -> None:
        """Appends a record that means the same from every writer, however often. OSError and the like if it fails."""
        ...


class PacedLog(Log, Protocol):
    """The transaction log, for procedures that run for ever."""

    async def pause(self, seconds: float) -> None:
        """Sleeps; where everything in the log is settled, until it has something new, or for some seconds more."""
        ...


class WriteTerms(NamedTuple):
    """The terms on which a transaction's data go to brokers."""

    #: The id in each request, by which a broker knows the transaction; None: no broker knows it.
    transactional_id: str | None
    #: The newest version of Produce that says what is meant: from v12 on partitions join by being written (KIP-890).
    newest_produce: int
    #: The calls that are about to hand batches over.
    line: Sized
    #: Whether each batch says that it is of a transaction: then brokers hide it until they know the decision.
    is_marked: bool = True


#: Of a transaction that kproxy's log decides: its batches bear an epoch of kproxy's own, and are plain for brokers.
PLAIN: Final = WriteTerms(None, FIRST_TOPIC_ID, (), is_marked=False)


class Writer(Protocol):
    """Writes the data of one transaction: takes batches, and reports the outcome of each."""

    #: A topic that was deleted and recreated meanwhile: the transaction has failed.
    recreated: str | None

    def accept(self, batches: Iterable[Batch]) -> list[TxnSend]:
        """Takes batches after all accepted before; at most one for each partition."""
        ...

    async def room(self, size: int) -> None:
        """Waits until ``size`` more bytes may be held."""
        ...

    def has_room(self, size: int) -> bool:
        """Whether ``room`` would not wait."""
        ...

    async def settled(self, sends: Sequence[TxnSend]) -> None:
        """Waits until the outcome of each is definite; they carry it."""
        ...

    def when_settled(self, sends: Sequence[TxnSend], done: Callable[[], None]) -> None:
        """Calls ``done`` once the outcome of each is definite: now, if it is. It must not raise."""
        ...

    async def flush(self) -> None:
        """Waits until the outcomes of all that was accepted are definite."""
        ...

    @property
    def failed(self) -> int | None:
        """Kafka's error code if the transaction can only be aborted."""
        ...

    def written(self) -> Mapping[TopicPartition, PartitionWrites]:
        """The content of a decision to commit. LocalProtocolError while an outcome is open, or if it has failed."""
        ...

    def abandon(self) -> None:
        """Sends nothing more: the transaction is aborted."""
        ...


class Connections(Protocol):
    """Connections for the data of a transactional id; they outlive its transactions."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        ...

    def writer(self, producer: Producer, terms: WriteTerms = PLAIN) -> Writer:
        """A writer of one transaction, which has the connections until the next one is made.

        ``producer`` as in the batches: with kproxy's bits set if the ``terms`` are PLAIN.
        """
        ...

    def rest(self) -> None:
        """Closes the connections on which nothing is in flight."""
        ...

    def close(self) -> None:
        """Closes all connections, and any that is being made."""
        ...


Marker: TypeAlias = tuple[int, int]
"""A producer id, and the epoch below which it is fenced."""


class NotPermitted(RemoteProtocolError):
    """kproxy's principal has no right to write markers, or the broker does not serve them."""


class PartitionReads(Protocol):
    """Reads and fences partitions; OSError and RemoteProtocolError if a leader can't be asked."""

    async def fence(self, places: Sequence[TopicPartition], markers: Sequence[Marker]) -> Mapping[TopicPartition, bool]:
        """Writes markers that fence; False where a higher epoch had fenced one of them before. NotPermitted."""
        ...

    async def ends(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The high watermark of each."""
        ...

    async def scan(self, scans: Mapping[TopicPartition, Scan]) -> Mapping[TopicPartition, str]:
        """Has each of ``scans`` take its partition; why not, for those that can't be read."""
        ...


class Groups(Protocol):
    """The offsets of consumer groups in transactions."""

    async def check(self, offsets: TransactionOffsets) -> int:
        """Kafka's error code if the group has moved on since the offsets' generation; 0 if it has not."""
        ...

    def check_room(self) -> None:
        """TxnError (COORDINATOR_LOAD_IN_PROGRESS) if too many are in open transactions, or not taken by brokers."""
        ...

    def committed(self, transactional_id: str, producer: Producer) -> None:
        """The offsets of this transaction hold now; the broker's own group offsets are to follow."""
        ...


class Topics(Protocol):
    """Topics, and whether they may hold data of transactions that kproxy's own log decides."""

    async def errors(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """The partitions that may not, with the error for the client. TxnError if that is unknown."""
        ...

    def is_known_writable(self, place: TopicPartition) -> bool:
        """Whether a partition may, as far as that is known without asking a broker."""
        ...

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic, as far as it is known."""
        ...


class HighWatermarks(Protocol):
    """The ends of partitions."""

    async def __call__(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The high watermark of each. OSError, RemoteProtocolError; TxnError if a partition can't be written."""
        ...


class Scope(Protocol):
    """A stretch of a procedure that can be cut short; trio's ``CancelScope``."""

    def __enter__(self) -> Self:
        """Begins it."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Ends it; what was cut short goes no further."""
        ...

    @property
    def cancelled_caught(self) -> bool:
        """Whether it was cut short."""
        ...

    def cancel(self) -> None:
        """Cuts short what it waits for."""
        ...


class Signal(Protocol):
    """An event that happens once; trio's ``Event``."""

    def is_set(self) -> bool:
        """Whether it has happened."""
        ...

    def set(self) -> None:
        """Wakes all that wait for it."""
        ...

    async def wait(self) -> None:
        """Waits for it."""
        ...


class Lock(Protocol):
    """First come, first served; trio's ``Lock``."""

    def locked(self) -> bool:
        """Whether somebody has it."""
        ...

    async def acquire(self) -> None:
        """Waits for it."""
        ...

    def acquire_nowait(self) -> None:
        """Takes it; nobody has it."""
        ...

    def release(self) -> None:
        """The next one that waits has it."""
        ...


class Time(Protocol):
    """The clock, and what waits are made of."""

    def now(self) -> float:
        """Seconds, from any beginning."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def lock(self) -> Lock:
        """A lock that nobody has."""
        ...

    def scope(self, seconds: float | None = None) -> Scope:
        """A scope that is cancelled after so many seconds, if ever."""
        ...

    def event(self) -> Signal:
        """An event that has not happened."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits for so long."""
        ...


#: A procedure that is begun later.
Work: TypeAlias = Callable[[], Awaitable[object]]
#: Performs procedures side by side, some at a time, and returns when all have ended. They handle their errors.
Together: TypeAlias = Callable[[Sequence[Work]], Awaitable[None]]
#: Returns when no other process has the instance.id.
Alone: TypeAlias = Callable[[], Awaitable[None]]


class SideBySide(Protocol):
    """Procedures that run side by side. There are so many places; a procedure takes one for what it asks of brokers."""

    async def all(self, works: Sequence[Work]) -> None:
        """Performs procedures, and returns when all have ended. They handle their errors."""
        ...

    def open(self) -> AbstractAsyncContextManager[Callable[[Work], None]]:
        """A function that begins procedures; they end with the block."""
        ...

    def place(self) -> AbstractAsyncContextManager[None]:
        """A place for the block, once there is one."""
        ...


class JobRunner(Protocol):
    """Runs work that continues when the client that asked for it has disconnected. Its errors become TxnError."""

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Begins work; the function that is returned waits for its result."""
        ...

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Begins work and waits for its result."""
        ...

    async def within(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does a part of work that has begun."""
        ...

    def do(self, work: Callable[[], T]) -> T:
        """Does work that waits for nothing."""
        ...


class Pauses(Protocol):
    """Pauses between attempts to ask a broker, each longer than the last."""

    async def pause(self) -> None:
        """Waits before the next attempt."""
        ...


class Histogram(Protocol):
    """A histogram."""

    def observe(self, seconds: float) -> None:
        """Counts one."""
        ...


class Counters(Protocol):
    """Counts transactions (``kproxy.proxy.transaction_stats``)."""

    open: int
    commits: int
    resumed: int
    continued: int
    unrecorded: int
    torn: int
    unknown: int
    #: When readers met the first producer id that is unknown, in s since 1970; None: there is none.
    oldest_unknown: float | None
    rejected: int
    #: When the first member that is prepared will be aborted by its broker, in s since 1970; None: no member waits.
    prepared_until: float | None

    @property
    def appends(self) -> Histogram:
        """Time to append a decision, until its outcome is known."""
        ...

    def count_fenced(self) -> None:
        """Counts one request of a producer that was replaced."""
        ...

    def aborted(self, reason: str) -> None:
        """Counts one abort."""
        ...

    def claimed(self, outcome: str) -> None:
        """Counts one claim."""
        ...


class Listener(Protocol):
    """Hears what happens to transactions, for spans and for kproxy's own log."""

    def begun(self, transactional_id: str, client_id: str) -> None:
        """A transaction has begun here."""
        ...

    def step(self, transactional_id: str, name: str) -> None:
        """Reports that it has come a step further."""
        ...

    def ended(self, transactional_id: str, outcome: str, places: Collection[TopicPartition]) -> None:
        """Reports its end: "committed", "prepared", or aborted, for which the outcome is the reason."""
        ...


#: Of a line in kproxy's own log.
Level = Literal["debug", "info", "warning", "error"]


class Report(Protocol):
    """Writes a line to kproxy's own log."""

    def __call__(self, level: Level, text: str, transactional_id: str, **facts: object) -> None:
        """``facts`` by name."""
        ...


@dataclass(frozen=True, slots=True)
class OwnerTools:
    """Shared by the owners of one instance."""

    log: Log
    stats: Counters
    groups: Groups
    ends: HighWatermarks
    topics: Topics
    former: "FormerEpochs"
    #: Connections for the data of one transactional id.
    connections: Callable[[], Connections]
    #: A producer id, as brokers give it. OSError, RemoteProtocolError.
    ask_producer_id: Callable[[], Awaitable[int]]
    #: 16 random bytes.
    nonce: Callable[[], bytes]
    instance_id: str
    time: Time
    traces: Listener
    report: Report

    async def new_producer_id(self) -> int:
        """A new producer id, given by a broker. TxnError if none is available."""
        try:
            return await self.ask_producer_id()
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no producer id: {error}") from error
