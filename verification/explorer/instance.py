"""One kproxy: its procedures, and what they ask for of the outside, which arrives, is lost, or is not heard of."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeVar

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.batch import BatchHeader, Record, build_batch, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.resend import OLD_S
from kproxy.errors import KproxyError
from kproxy.net.txn.log_batches import LogBatch
from kproxy.net.txn.log_partition import LogPartition
from kproxy.net.txn.transaction_log import ViewSink
from kproxy.proxy.traces import NoTraces
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.procedures.former import Scan
from kproxy.txn.procedures.former_epochs import FormerEpochs
from kproxy.txn.procedures.log_owners import LogOwners, Terms
from kproxy.txn.procedures.outside import PLAIN, Marker, OwnerTools, WriteTerms
from kproxy.txn.procedures.owner_requests import OwnerRequests
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.views import Views
from kproxy.txn.writes import Batch, PartitionWrites, Timing, TxnSend, Writes
from verification.explorer.engine import Move, Step
from verification.explorer.log_steps import Appending, Reading
from verification.explorer.rejecting import moves_of_readers
from verification.explorer.snapshotting import take_snapshot
from verification.explorer.world import World

T = TypeVar("T")
_TIMING: Final = Timing(0.0, 0.0, OLD_S)
_IN_FLIGHT: Final = 5
_PATIENCE_MS: Final = 900_000
#: A week: ids expire only where a world says that a fortnight passes.
_UNUSED_MS: Final = 604_800_000


class Fencing(Step):
    """Waits for a partition's leader to write markers."""

    def __init__(self, instance: "Instance", place: TopicPartition, markers: Sequence[Marker]) -> None:
        """Asked by an instance."""
        super().__init__("fence", place, tuple(markers))
        self._world, self._place, self._markers = instance.world, place, markers

    def moves(self) -> Iterator[Move]:
        """They are written."""
        assert self.task is not None
        yield Move(f"{self.task.name} fences {self._place[1]}", self._fence)

    def _fence(self) -> None:
        assert self.task is not None
        new = [self._world.fence(self._place, *marker) for marker in self._markers]
        self.task.resume(all(new))


class CheckingGroup(Step):
    """Waits for what a group's coordinator says of a member."""

    def __init__(self, instance: "Instance", offsets: TransactionOffsets) -> None:
        """Asked by an instance."""
        super().__init__("group", offsets.generation_id)
        self._world, self._offsets = instance.world, offsets

    def moves(self) -> Iterator[Move]:
        """Yield the answer."""
        assert self.task is not None
        yield Move(f"{self.task.name} checks the group", self._answer)

    def _answer(self) -> None:
        assert self.task is not None
        self.task.resume(ErrorCode.NONE if self._world.is_current(self._offsets) else ErrorCode.ILLEGAL_GENERATION)


class DataWriter:
    """``procedures.outside.Writer``, with the product's own ``Writes``."""

    def __init__(self, instance: "Instance", producer: Producer) -> None:
        """Take the transaction under an epoch."""
        self._instance, self._producer = instance, producer
        self._writes = Writes(*producer, _TIMING, _IN_FLIGHT)
        self.recreated: str | None = None
        self._parked: list[tuple[Callable[[], bool], Step]] = []
        self._watched: list[tuple[Sequence[TxnSend], Callable[[], None]]] = []
        self._payloads: dict[tuple[TopicPartition, int], str] = {}
        self._sends: dict[tuple[TopicPartition, int], TxnSend] = {}

    def accept(self, batches: Iterable[Batch]) -> list[TxnSend]:
        """Sends them at once."""
        batches = list(batches)
        payloads = [payload_of(batch[2]) for batch in batches]
        sends = self._writes.accept(batches)
        for send, payload in zip(sends, payloads, strict=True):
            self._payloads[send.place, send.sequence] = payload
        self._send()
        self._changed()
        return sends

    def _send(self) -> None:
        while sends := self._writes.ready(self._instance.world.time.now()):
            for send in sends:
                self._writes.started(send, self._instance.world.time.now())
                self._sends[send.place, send.sequence] = send
                self._fly(send, self._payloads[send.place, send.sequence])

    def _fly(self, send: TxnSend, payload: str) -> None:
        world, place, sequence = self._instance.world, send.place, send.sequence

        attempt = send.attempts

        def arrive() -> None:
            offset = world.write(place, self._producer, sequence, payload)
            if not self._instance.is_killed and attempt == send.attempts:
                key = ("answer", self._instance.name, payload, self._producer, offset)
                world.send(f"{self._instance.name} hears of {payload}", lambda: self._answered(send, offset), *key)

        key = ("data", payload, self._producer, sequence, attempt)
        refuse = partial(self._refused, send, ErrorCode.MESSAGE_TOO_LARGE)
        world.send(f"{payload} arrives from {self._instance.name}", arrive, *key, refuse=refuse)

    def _answered(self, send: TxnSend, offset: int | None) -> None:
        if offset is None:
            self._refused(send, ErrorCode.INVALID_PRODUCER_EPOCH)
        elif not self._instance.is_killed:
            self._writes.written(send, offset, -1)
            self._go_on()

    def _refused(self, send: TxnSend, error_code: int) -> None:
        if not self._instance.is_killed:
            self._writes.refused(send, error_code, self._instance.world.time.now())
            self._go_on()

    def _go_on(self) -> None:
        self._send()
        self._changed()

    def moves(self) -> Iterator[Move]:
        """The connection on which a batch was sent ends: it is sent again, and its first copy may be late."""
        for (place, sequence), send in self._sends.items():
            if send.in_flight and not send.settled:
                text = f"{self._instance.name} loses its connection over {self._payloads[place, sequence]}"
                yield Move(text, partial(self._again, send), is_fault=True)

    def _again(self, send: TxnSend) -> None:
        world = self._instance.world
        world.budget.take("resend")
        self._writes.again(send, world.time.now(), is_open=True)
        self._go_on()

    def _changed(self) -> None:
        for row in [row for row in self._watched if all(send.settled for send in row[0])]:
            self._watched.remove(row)
            row[1]()
        for parked in [parked for parked in self._parked if parked[0]()]:
            self._parked.remove(parked)
            task = parked[1].task
            if task is not None and task.waits is parked[1]:
                task.resume()

    async def _until(self, is_so: Callable[[], bool], kind: str) -> None:
        if not is_so():
            step = Step(kind)
            self._parked.append((is_so, step))
            await step

    async def room(self, size: int) -> None:
        """Return at once: room is never short."""

    def has_room(self, size: int) -> bool:
        """Return at once: room is never short."""
        return True

    async def settled(self, sends: Sequence[TxnSend]) -> None:
        """Waits until the outcome of each is definite."""
        await self._until(lambda: all(send.settled for send in sends), "settled")

    def when_settled(self, sends: Sequence[TxnSend], done: Callable[[], None]) -> None:
        """Calls ``done`` once the outcome of each is definite."""
        self._watched.append((sends, done))
        self._changed()

    async def flush(self) -> None:
        """Waits until all outcomes are definite."""
        await self._until(lambda: not self._writes.busy, "flush")

    @property
    def failed(self) -> int | None:
        """Do as the product does."""
        return self._writes.failed

    def written(self) -> Mapping[TopicPartition, PartitionWrites]:
        """Do as the product does."""
        return self._writes.summary()

    def abandon(self) -> None:
        """Leave what was sent to arrive later, or never."""
        self._writes.abandon()
        self._changed()


class DataConnections:
    """``procedures.outside.Connections``."""

    is_open = False

    def __init__(self, instance: "Instance") -> None:
        """Take one id."""
        self._instance = instance

    def writer(self, producer: Producer, terms: WriteTerms = PLAIN) -> DataWriter:
        """Return the writer of the next transaction."""
        self._instance.writers.append(writer := DataWriter(self._instance, producer))
        return writer

    def rest(self) -> None:
        """Do nothing: no connection is kept."""

    def close(self) -> None:
        """Do nothing: no connection is kept."""


class InstanceJobs:
    """``procedures.outside.JobRunner``: an instance's tasks outlive the connections of its clients anyway."""

    def __init__(self, instance: "Instance") -> None:
        """Run what an instance begins."""
        self._instance = instance

    def start(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Begin a task; nobody asks for its result."""
        self._instance.world.engine.start(f"{self._instance.name}'s job", self._instance, self.run(work))
        return work

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result."""
        try:
            return await work()
        except TxnError:
            raise
        except (OSError, KproxyError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    within = run

    def do(self, work: Callable[[], T]) -> T:
        """Return the result."""
        return work()


class Instance:
    """One process."""

    def __init__(self, world: World, name: str, life: int = 0) -> None:
        """``life``: how often it was started before. Nothing of the log is read yet."""
        self.world, self.name, self.life = world, name, life
        self.is_killed = False
        self.views = Views()
        self.sink = ViewSink(self.views)
        self.reading = LogPartition(0, self.sink)
        #: So much of the partition that rejects producer ids.
        self.rejects_read = 0
        self._nonces = 0
        self._under_way: set[str] = set()
        #: Of all transactions.
        self.writers: list[DataWriter] = []
        self.tools = OwnerTools(
            log=self,
            stats=TransactionStats(),
            groups=self,
            ends=self.ends,
            topics=self,
            former=FormerEpochs(self, world.time),
            connections=lambda: DataConnections(self),
            ask_producer_id=self._producer_id,
            nonce=self._nonce,
            instance_id=name,
            time=world.time,
            traces=NoTraces(),
            report=report,
        )
        self.owners = LogOwners(self.tools, Terms(_PATIENCE_MS, _UNUSED_MS), self.alone, self._start)
        self.take_requests()

    def take_requests(self) -> None:
        """Have requests come as those of a session come in the product."""
        self.jobs = InstanceJobs(self)
        self.requests = OwnerRequests(lambda _: self.owners, self.jobs, lambda _: None)

    def look(self) -> None:
        """Do what is done every second."""
        self.owners.look()

    def kept(self) -> object:
        """Return its memory beside its owners and the log."""
        return None

    def moves(self) -> Iterator[Move]:
        """Yield that it reads on, or is killed and started again."""
        if self.position < len(self.world.log) and self.world.budget["follow"]:
            yield Move(f"{self.name} follows the log", self._follow)
        if self.world.budget["crash"]:
            yield Move(f"{self.name} is killed, and started again", self.crash, is_fault=True)
        if self.world.budget["snapshots"] and self.position:
            yield Move(f"{self.name} takes a snapshot", self._take_snapshot, is_fault=True)
        yield from moves_of_readers(self)
        if self.world.budget["resend"]:
            for writer in self.writers:
                yield from writer.moves()

    def _follow(self) -> None:
        self.world.budget.take("follow")
        self.read()

    def _take_snapshot(self) -> None:
        self.world.budget.take("snapshots")
        self.world.engine.start(f"{self.name}'s snapshot", self, take_snapshot(self))

    def crash(self) -> None:
        """Leave what it has sent to arrive; the next process reads all of the log before it serves anybody."""
        world = self.world
        world.budget.take("crash")
        self.is_killed = True
        world.engine.kill(self)
        world.instances[world.instances.index(self)] = self.again()
        for client in world.clients:
            client.lost(self)

    def again(self) -> "Instance":
        """The process after this one, which has read the log."""
        new = type(self)(self.world, self.name, self.life + 1)
        new.read()
        return new

    # -- the log

    def read(self) -> None:
        """Reads to the end; from the log's start on, where it has not read all that was deleted."""
        read_on(self.reading, self.world)

    @property
    def position(self) -> int:
        """The offset of the log before which it has read all."""
        return max(0, self.reading.position)

    async def read_to_end(self, transactional_id: str) -> IdView | None:
        """Do as the product does."""
        await Reading(self)
        return self.views.of(transactional_id)

    def is_foreign(self, transactional_id: str) -> bool:
        """Answer as the product does: it has not found the log's beginning, or a snapshot of it."""
        return not self.views.knows(0)

    async def append(self, entry: Entry, producer_id: int, epoch: int, sequence: int) -> None:
        """Do as the product does."""
        await self.append_unread(entry, producer_id, epoch, sequence)
        await Reading(self)

    async def append_unread(self, entry: Entry, producer_id: int, epoch: int, sequence: int) -> int:
        """Do as the product does."""
        offset: int = await Appending(self, entry, Producer(producer_id, epoch), sequence)
        return offset

    async def append_unfenced(self, entry: Entry) -> None:
        """Do as the product does."""
        await Appending(self, entry, Producer(-1, -1), 0)

    async def read_all(self) -> None:
        """Read all partitions of the log, as the product does."""
        await Reading(self)
        for offset in range(self.rejects_read, len(self.world.rejects)):
            self.views.apply(1, LogPosition(offset, 0), *encode(self.world.rejects[offset]))
        self.rejects_read = len(self.world.rejects)

    # -- brokers

    async def _producer_id(self) -> int:
        self.world.producer_ids += 1
        return self.world.producer_ids

    def _nonce(self) -> bytes:
        self._nonces += 1
        return f"{self.name}{self.life}{self._nonces:>14}".encode()

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return what they are now."""
        return {place: len(self.world.partitions[place].rows) for place in places}

    async def fence(self, places: Sequence[TopicPartition], markers: Sequence[Marker]) -> Mapping[TopicPartition, bool]:
        """One partition after another."""
        return {place: await Fencing(self, place, markers) for place in places}

    async def scan(self, scans: Mapping[TopicPartition, Scan]) -> Mapping[TopicPartition, str]:
        """Return what they are now."""
        for place, scan in scans.items():
            for row in self.world.partitions[place].rows[scan.position : scan.end]:
                scan.note(row)  # type: ignore[arg-type]  # all that it reads is there
        return {}

    async def errors(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """All may be written."""
        return {}

    def is_known_writable(self, place: TopicPartition) -> bool:
        """All may be written."""
        return True

    def topic_id(self, topic: str) -> bytes | None:
        """Brokers have none."""
        return None

    # -- groups

    async def check(self, offsets: TransactionOffsets) -> int:
        """Ask the group's coordinator."""
        error: int = await CheckingGroup(self, offsets)
        return error

    def check_room(self) -> None:
        """Return at once: room is never short."""

    def committed(self, transactional_id: str, producer: Producer) -> None:
        """Readers know by the log."""

    # -- tasks

    async def alone(self) -> None:
        """Return at once: no former self is there."""

    def _start(self, transactional_id: str, work: Callable[[], Any]) -> None:
        if transactional_id not in self._under_way:
            self._under_way.add(transactional_id)
            self.world.engine.start(f"{self.name}'s rounds", self, self._do(transactional_id, work))

    async def _do(self, transactional_id: str, work: Callable[[], Any]) -> None:
        try:
            await work()
        finally:
            self._under_way.discard(transactional_id)


def batch_of(payload: str) -> memoryview:
    """A batch of one record."""
    return memoryview(build_batch([Record(0, 0, None, payload.encode())]))


def payload_of(batch: memoryview) -> str:
    """The value of a batch of one record."""
    text = bytes(batch[-_MOST_VALUE:]).rstrip(b"\0")
    return text.rsplit(b"<", 1)[-1].rsplit(b">", 1)[0].decode()


#: The end of a batch that surely has the value in it.
_MOST_VALUE: Final = 40


def read_on(reading: LogPartition, world: World) -> None:
    """Reads the log to its end; from its start on, where what would come next is deleted."""
    if reading.position < world.log_start:
        reading.restart(world.log_start)
    for offset in range(reading.position, len(world.log)):
        at, raw = world.record(offset)
        reading.apply([LogBatch(_header(offset), [Record(offset, at.timestamp_ms, *raw)])])


@cache
def _header(offset: int) -> BatchHeader:
    """Return the header of the batch with the record at an offset of the log."""
    return read_header(build_batch([Record(0, 0, None, None)], base_offset=offset))


def report(*_: object, **__: object) -> None:
    """Nobody reads it."""
