"""One kproxy: its procedures, and what they ask for of the outside, which arrives, is lost, or is not heard of."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.resend import OLD_S
from kproxy.proxy.traces import NoTraces
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.former import Scan
from kproxy.txn.procedures.former_epochs import FormerEpochs
from kproxy.txn.procedures.log_owners import LogOwners, Terms
from kproxy.txn.procedures.outside import BrokerWrites, Marker, NotAppended, OwnerTools
from kproxy.txn.view import IdView
from kproxy.txn.views import Views
from kproxy.txn.writes import Batch, PartitionWrites, Timing, TxnSend, Writes
from verification.explorer.engine import Move, Step
from verification.explorer.world import World, read

_TIMING: Final = Timing(0.1, 1.0, OLD_S)
_IN_FLIGHT: Final = 5
_PATIENCE_MS: Final = 900_000
#: A week: ids expire only where a world says that a fortnight passes.
_UNUSED_MS: Final = 604_800_000


class Reading(Step):
    """Waits until the log is read to its end."""

    def __init__(self, instance: "Instance") -> None:
        """By an instance."""
        super().__init__("read")
        self._instance = instance

    def moves(self) -> Iterator[Move]:
        """It is read; or the log does not answer."""
        yield Move(f"{self._name} reads the log", self._read)
        if self._instance.world.budget["silent"]:
            yield Move(f"{self._name} can't read the log", self._fail, is_fault=True)

    @property
    def _name(self) -> str:
        assert self.task is not None
        return self.task.name

    def _read(self) -> None:
        assert self.task is not None
        self._instance.read()
        self.task.resume()

    def _fail(self) -> None:
        assert self.task is not None
        self._instance.world.budget.take("silent")
        self.task.resume(error=OSError("no answer"))


class Appending(Step):
    """Waits for the log's response to a record."""

    def __init__(self, instance: "Instance", entry: Entry, producer: Producer, sequence: int) -> None:
        """Sent by an instance."""
        super().__init__("append", entry, producer, sequence)
        self._instance, self._entry, self._producer, self._sequence = instance, entry, producer, sequence

    @property
    def _what(self) -> str:
        assert self.task is not None
        return f"{self.task.name}: {type(self._entry.body).__name__.removeprefix('Transaction').upper()}"

    def moves(self) -> Iterator[Move]:
        """It arrives; or is lost, or late, or the response is lost."""
        yield Move(f"{self._what} arrives", lambda: self._arrive(is_heard=True))
        if self._instance.world.budget["lost"]:
            yield Move(f"{self._what} arrives, and nobody hears of it", self._unheard, is_fault=True)
            yield Move(f"{self._what} is lost", lambda: self._lost(is_late=False), is_fault=True)
            yield Move(f"{self._what} will be late", lambda: self._lost(is_late=True), is_fault=True)

    def _append(self) -> int | None:
        return self._instance.world.append(self._entry, self._producer, self._sequence)

    def _arrive(self, *, is_heard: bool) -> None:
        assert self.task is not None
        offset = self._append()
        if offset is None or not is_heard:
            self.task.resume(error=NotAppended("refused" if offset is None else "no answer"))
        else:
            self.task.resume(offset)

    def _unheard(self) -> None:
        self._instance.world.budget.take("lost")
        self._arrive(is_heard=False)

    def _lost(self, *, is_late: bool) -> None:
        assert self.task is not None
        self._instance.world.budget.take("lost")
        if is_late:
            self.given_up()
        self.task.resume(error=NotAppended("no answer"))

    def given_up(self) -> None:
        """It may still arrive."""
        world, facts = self._instance.world, (self._entry, self._producer, self._sequence)
        world.send(f"the late {self._what} arrives", lambda: _ignore(world.append(*facts)), "append", *facts)


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
        """It answers."""
        assert self.task is not None
        yield Move(f"{self.task.name} checks the group", self._answer)

    def _answer(self) -> None:
        assert self.task is not None
        is_current = self._offsets.generation_id == self._world.generation
        self.task.resume(ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION)


class DataWriter:
    """``procedures.outside.Writer``, with the product's own ``Writes``."""

    def __init__(self, instance: "Instance", producer: Producer) -> None:
        """Of the transaction under an epoch."""
        self._instance, self._producer = instance, producer
        self._writes = Writes(*producer, _TIMING, _IN_FLIGHT)
        self.recreated: str | None = None
        self._parked: list[tuple[Callable[[], bool], Step]] = []
        self._watched: list[tuple[Sequence[TxnSend], Callable[[], None]]] = []
        self._payloads: dict[tuple[TopicPartition, int], str] = {}

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
                self._fly(send, self._payloads[send.place, send.sequence])

    def _fly(self, send: TxnSend, payload: str) -> None:
        world, place, sequence = self._instance.world, send.place, send.sequence

        def arrive() -> None:
            offset = world.write(place, self._producer, sequence, payload)
            if not self._instance.is_killed:
                key = ("answer", self._instance.name, payload, self._producer, offset)
                world.send(f"{self._instance.name} hears of {payload}", lambda: self._answered(send, offset), *key)

        world.send(f"{payload} arrives from {self._instance.name}", arrive, "data", payload, self._producer, sequence)

    def _answered(self, send: TxnSend, offset: int | None) -> None:
        if self._instance.is_killed:
            return
        if offset is None:
            self._writes.refused(send, ErrorCode.INVALID_PRODUCER_EPOCH, self._instance.world.time.now())
        else:
            self._writes.written(send, offset, -1)
        self._send()
        self._changed()

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
        """There is always room."""

    def has_room(self, size: int) -> bool:
        """There is always room."""
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
        """As the product's."""
        return self._writes.failed

    def written(self) -> Mapping[TopicPartition, PartitionWrites]:
        """As the product's."""
        return self._writes.summary()

    def abandon(self) -> None:
        """What was sent may still arrive."""
        self._writes.abandon()
        self._changed()


class DataConnections:
    """``procedures.outside.Connections``."""

    is_open = False

    def __init__(self, instance: "Instance") -> None:
        """Of one id."""
        self._instance = instance

    def writer(self, producer: Producer, native: BrokerWrites | None = None) -> DataWriter:
        """Of the next transaction."""
        return DataWriter(self._instance, producer)

    def rest(self) -> None:
        """There are none."""

    def close(self) -> None:
        """There are none."""


class Instance:
    """One process."""

    def __init__(self, world: World, name: str, life: int = 0) -> None:
        """``life``: how often it was started before. Nothing of the log is read yet."""
        self.world, self.name, self.life = world, name, life
        self.is_killed = False
        self.views = Views()
        self.position = 0
        self._nonces = 0
        self._under_way: set[str] = set()
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
        self.owners = LogOwners(self.tools, Terms(_PATIENCE_MS, _UNUSED_MS), self._alone, self._start)

    def moves(self) -> Iterator[Move]:
        """It reads on, or is killed and started again."""
        if self.position < len(self.world.log) and self.world.budget["follow"]:
            yield Move(f"{self.name} follows the log", self._follow)
        if self.world.budget["crash"]:
            yield Move(f"{self.name} is killed, and started again", self.crash, is_fault=True)

    def _follow(self) -> None:
        self.world.budget.take("follow")
        self.read()

    def crash(self) -> None:
        """What it has sent may still arrive; the next process reads all of the log before it serves anybody."""
        world = self.world
        world.budget.take("crash")
        self.is_killed = True
        world.engine.kill(self)
        world.instances[world.instances.index(self)] = self.again()
        for client in world.clients:
            client.lost(self)

    def again(self) -> "Instance":
        """The process after this one, which has read the log."""
        new = Instance(self.world, self.name, self.life + 1)
        new.read()
        return new

    # -- the log

    def read(self) -> None:
        """Reads to the end."""
        for offset in range(self.position, len(self.world.log)):
            read(self.views, self.world.log, offset)
        self.position = len(self.world.log)

    async def read_to_end(self, transactional_id: str) -> IdView | None:
        """As the product's."""
        await Reading(self)
        return self.views.of(transactional_id)

    def is_foreign(self, transactional_id: str) -> bool:
        """The log has nothing of newer versions."""
        return False

    async def append(self, entry: Entry, producer_id: int, epoch: int, sequence: int) -> None:
        """As the product's."""
        await self.append_unread(entry, producer_id, epoch, sequence)
        await Reading(self)

    async def append_unread(self, entry: Entry, producer_id: int, epoch: int, sequence: int) -> int:
        """As the product's."""
        offset: int = await Appending(self, entry, Producer(producer_id, epoch), sequence)
        return offset

    async def append_unfenced(self, entry: Entry) -> None:
        """As the product's."""
        await Appending(self, entry, Producer(-1, -1), 0)

    # -- brokers

    async def _producer_id(self) -> int:
        self.world.producer_ids += 1
        return self.world.producer_ids

    def _nonce(self) -> bytes:
        self._nonces += 1
        return f"{self.name}{self.life}{self._nonces:>14}".encode()

    async def ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """As they are now."""
        return {place: len(self.world.partitions[place].rows) for place in places}

    async def fence(self, places: Sequence[TopicPartition], markers: Sequence[Marker]) -> Mapping[TopicPartition, bool]:
        """One partition after another."""
        return {place: await Fencing(self, place, markers) for place in places}

    async def scan(self, scans: Mapping[TopicPartition, Scan]) -> Mapping[TopicPartition, str]:
        """As they are now."""
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
        """As the group's coordinator says."""
        error: int = await CheckingGroup(self, offsets)
        return error

    def check_room(self) -> None:
        """There is always room."""

    def committed(self, transactional_id: str, producer: Producer) -> None:
        """Readers know by the log."""

    # -- tasks

    async def _alone(self) -> None:
        """No former self is there."""

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


def report(*_: object, **__: object) -> None:
    """Nobody reads it."""


def _ignore(_: object) -> None:
    pass
