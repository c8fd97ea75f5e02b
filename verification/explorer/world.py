"""The outside: the log, partitions, a group's generation, what is in flight, and how much may still go wrong."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, RawRecord, encode
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import LogPosition
from kproxy.txn.views import Views
from verification.explorer.engine import Clock, Engine, Move

if TYPE_CHECKING:
    from verification.explorer.client import Client
    from verification.explorer.instance import Instance

NAME: Final = "id"
#: Longer than an unused id is kept (``transactional.id.timeout.ms``), in seconds.
_FORTNIGHT: Final = 1_209_600.0
PARTITIONS: Final[tuple[TopicPartition, ...]] = (("t", 0), ("t", 1))


class Stored(NamedTuple):
    """A batch of one record in a partition, or a marker that fences; named as in ``BatchHeader``."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int
    payload: str
    is_control: bool = False
    last_offset_delta: int = 0
    record_count: int = 1


@dataclass
class Producers:
    """The memory of a broker of producers in one partition."""

    #: By producer id: the newest epoch, and the sequence that follows.
    known: dict[int, tuple[int, int]] = field(default_factory=dict)

    def refuses(self, producer: Producer, sequence: int) -> bool:
        """Whether a batch is refused: of an epoch that has ended, or out of order.

        A producer that is not known may begin with any sequence.
        """
        if producer.producer_id not in self.known:
            return False
        epoch, following = self.known[producer.producer_id]
        return producer.epoch < epoch or sequence != (following if producer.epoch == epoch else 0)

    def has(self, producer: Producer, sequence: int) -> bool:
        """Whether a batch is a copy of one that was written before."""
        epoch, following = self.known.get(producer.producer_id, (-1, 0))
        return producer.epoch == epoch and sequence < following

    def note(self, producer: Producer, sequence: int) -> None:
        """A batch was written."""
        self.known[producer.producer_id] = producer.epoch, sequence + 1

    def fence(self, producer_id: int, epoch: int) -> bool:
        """No lower epoch writes from now on; whether no higher one was known."""
        known, _ = self.known.get(producer_id, (-1, 0))
        if epoch < known:
            return False
        if epoch > known:
            self.known[producer_id] = epoch, 0
        return True


@dataclass
class Partition:
    """One partition's log."""

    rows: list[Stored] = field(default_factory=list)
    producers: Producers = field(default_factory=Producers)


@dataclass(eq=False)
class Flight:
    """A message that was sent, and may arrive at any time."""

    text: str
    arrive: Callable[[], None]
    #: What tells it from others, for states that are compared.
    key: tuple[Any, ...]
    #: Refuses it for good instead, if it is a batch.
    refuse: Callable[[], None] | None = None


class Budget(Counter[str]):
    """The number of times that each fault may still happen."""

    def __init__(self, most: Mapping[str, int]) -> None:
        """Take how often each may happen."""
        super().__init__(most)
        #: Those that have happened.
        self.taken: set[str] = set()

    def take(self, what: str) -> None:
        """Note that it has happened."""
        self[what] -= 1
        self.taken.add(what)


class World:
    """All but what the instances and the clients know."""

    def __init__(self, budget: Mapping[str, int]) -> None:
        """Nothing has happened yet."""
        self.engine = Engine()
        self.time = Clock(self.engine)
        self.budget = Budget(budget)
        self.log: list[tuple[Entry, int]] = []
        #: What was before this offset is deleted; a reader that begins there needs a snapshot.
        self.log_start = 0
        #: The partition of the log that rejects producer ids.
        self.rejects: list[Entry] = []
        self.writers = Producers()
        #: The offset of each record, by its producer and sequence.
        self._appended: dict[tuple[int, int, int], int] = {}
        self.partitions: dict[TopicPartition, Partition] = {place: Partition() for place in PARTITIONS}
        self.generation = 1
        self.flying: list[Flight] = []
        self.instances: list[Instance] = []
        self.clients: list[Client] = []
        #: As one that has read all of the log sees it.
        self.reader = Views()
        self.producer_ids = 100
        #: Each identity that a client has received, and its name.
        self.given: list[tuple[Producer, str]] = []
        #: Broken invariants, as they were noticed on the way.
        self.broken: list[str] = []
        #: Responses with an offset at which there is another record.
        self.misplaced: list[str] = []
        #: The offsets of the group that readers of the log have seen committed.
        self.moved: set[int] = set()
        #: Of each batch that was once decided for readers: how.
        self.decided: dict[tuple[TopicPartition, int], Verdict] = {}

    def close(self) -> None:
        """Nobody runs it any more."""
        self.engine.close()

    def facts(self) -> tuple[Any, ...]:
        """Return what tells a world of some kind from others of that kind, beside what all worlds have."""
        return ()

    def wrong(self) -> Iterator[tuple[str, str]]:
        """The broken invariants of a world of some kind, and why."""
        return iter(())

    def left(self) -> Iterator[tuple[str, str]]:
        """The invariants of a world of some kind that are broken where nothing more can happen, and why."""
        return iter(())

    # -- the log

    def append(self, entry: Entry, producer: Producer, sequence: int) -> int | None:
        """The offset of a record, also if it is a copy of the one there; None if it is refused."""
        offset, place = len(self.log), (*producer, sequence)
        if producer.producer_id >= 0:
            if self.writers.has(producer, sequence):
                return self._appended[place]
            if self.writers.refuses(producer, sequence):
                return None
            self.writers.note(producer, sequence)
            self._appended[place] = offset
        self.log.append((entry, self.time.wall_ms()))
        at, raw = self.record(offset)
        self.reader.apply(0, at, *raw)
        for _, _, moved in self.reader.unmirrored_offsets("g"):
            self.moved.update(row.offset for topic in moved.topics for row in topic.partitions)
        self._look()
        return offset

    def reject(self, entry: Entry) -> int:
        """Rejects a producer id; the record's offset."""
        offset = len(self.rejects)
        self.rejects.append(entry)
        self.reader.apply(1, LogPosition(offset, 0), *encode(entry))
        self._look()
        return offset

    def record(self, offset: int) -> tuple[LogPosition, RawRecord]:
        """A record of the log, as it is stored."""
        entry, at_ms = self.log[offset]
        return LogPosition(offset, at_ms), encode(entry)

    def delete_records(self, before: int) -> None:
        """Deletes what is in the log before an offset; late requests delete nothing more."""
        self.log_start = max(self.log_start, before)

    # -- partitions

    def write(self, place: TopicPartition, producer: Producer, sequence: int, payload: str) -> int | None:
        """The offset of a batch; None if it is refused."""
        partition = self.partitions[place]
        if partition.producers.has(producer, sequence):
            return next((row.base_offset for row in partition.rows if row[:3] == (*producer, sequence)), None)
        if partition.producers.refuses(producer, sequence):
            return None
        partition.producers.note(producer, sequence)
        offset = len(partition.rows)
        partition.rows.append(Stored(*producer, sequence, offset, payload))
        view = self.reader.of_producer(producer.producer_id)
        bound = view.bounds.get(producer, {}).get(place) if view is not None else None
        is_open = self.reader.verdict(*producer) is Verdict.UNDECIDED
        if is_open and (bound is None or bound > offset):
            self.broken.append(f"announced: {payload} is at {place[1]}:{offset}, and the log does not say so")
        self._look()
        return offset

    def fence(self, place: TopicPartition, producer_id: int, epoch: int) -> bool:
        """Writes a marker; False if a higher epoch was known."""
        partition = self.partitions[place]
        if not partition.producers.fence(producer_id, epoch):
            return False
        offset = len(partition.rows)
        partition.rows.append(Stored(producer_id, epoch, -1, offset, "", is_control=True))
        return True

    def verdict(self, place: TopicPartition, row: Stored) -> Verdict:
        """Return what readers that have read all of the log make of a batch."""
        verdict = self.reader.verdict(row.producer_id, row.producer_epoch)
        producer = Producer(row.producer_id, row.producer_epoch)
        if verdict is Verdict.COMMITTED and self.reader.is_other_copy(
            *producer, place[0], place[1], row.base_sequence, row.base_offset
        ):
            return Verdict.ABORTED
        return verdict

    def shown(self) -> Iterator[tuple[str, Verdict]]:
        """Each record with what readers make of it."""
        for place, partition in self.partitions.items():
            for row in partition.rows:
                if not row.is_control:
                    yield row.payload, self.verdict(place, row)

    def _look(self) -> None:
        for place, partition in self.partitions.items():
            for row in partition.rows:
                if row.is_control:
                    continue
                verdict = self.verdict(place, row)
                before = self.decided.get((place, row.base_offset))
                if before is not None and before is not verdict:
                    self.broken.append(f"decided: {row.payload} was {before.name}, and is {verdict.name}")
                if verdict is not Verdict.UNDECIDED:
                    self.decided[place, row.base_offset] = verdict

    # -- what is in flight

    def send(self, text: str, arrive: Callable[[], None], *key: Any, refuse: Callable[[], None] | None = None) -> None:
        """Something is under way from now on."""
        self.flying.append(Flight(text, arrive, key, refuse))

    def _arrivals(self) -> Iterator[Move]:
        for flight in self.flying:

            def do(flight: Flight = flight) -> None:
                self.flying.remove(flight)
                flight.arrive()

            yield Move(flight.text, do)
            if flight.refuse is not None and self.budget["refuse"]:
                yield Move(f"{flight.text}, and is refused for good", partial(self._refuse, flight), is_fault=True)

    def _refuse(self, flight: Flight) -> None:
        self.budget.take("refuse")
        self.flying.remove(flight)
        assert flight.refuse is not None
        flight.refuse()

    # -- what may happen

    def moves(self) -> list[Move]:
        """Each thing that may happen next."""
        found = [*self.engine.moves(), *self._arrivals()]
        for instance in self.instances:
            found += instance.moves()
        for client in self.clients:
            found += client.moves()
        found += self._times()
        if self.budget["forget"]:
            for place, partition in self.partitions.items():
                if partition.producers.known and self._is_decided(place):
                    do = partial(self._forget, partition)
                    found.append(Move(f"partition {place[1]} forgets its producers", do, is_fault=True))
        if self.budget["forget_log"] and self.writers.known:
            found.append(Move("the log forgets its producers", self._forget_writers, is_fault=True))
        if self.budget["back"] and self.log_start:
            found.append(Move("the log's next leader has not deleted anything", self._go_back, is_fault=True))
        if self.budget["rebalance"]:
            found.append(Move("the group moves on", self._rebalance, is_fault=True))
        return found

    def _times(self) -> Iterator[Move]:
        """Time passes."""
        if self.budget["time"]:
            yield Move("80 s pass", self._pass_time, is_fault=True)
        if self.budget["unused"]:
            yield Move("a fortnight passes", self._pass_a_fortnight, is_fault=True)
        if self.budget["still"]:
            for instance in self.instances:
                do = partial(self._pass_time_for, instance)
                yield Move(f"80 s pass, in which all but {instance.name} stand still", do, is_fault=True)

    def open(self, texts: Sequence[str]) -> None:
        """Makes the moves whose text begins so, and before each of them the first that needs no fault."""
        for text in texts:
            while (wanted := next((move for move in self.moves() if move.text.startswith(text)), None)) is None:
                next(move for move in self.moves() if not move.is_fault).do()
            wanted.do()

    def _pass_time(self) -> None:
        self.budget.take("time")
        self._pass(self.instances)

    def _pass_a_fortnight(self) -> None:
        self.budget.take("unused")
        self._pass(self.instances, _FORTNIGHT)

    def _pass_time_for(self, instance: "Instance") -> None:
        self.budget.take("still")
        instance.read()
        self._pass([instance])

    def _pass(self, instances: "Sequence[Instance]", seconds: float = 80.0) -> None:
        for instance in instances:
            instance.look()
        self.time.seconds += seconds
        for instance in instances:
            instance.look()

    def _is_decided(self, place: TopicPartition) -> bool:
        rows = [row for row in self.partitions[place].rows if not row.is_control]
        return all(self.verdict(place, row) is not Verdict.UNDECIDED for row in rows)

    def _forget(self, partition: Partition) -> None:
        """Long after it was last written to, as brokers do (``producer.id.expiration.ms``)."""
        self.budget.take("forget")
        partition.producers.known.clear()

    def _go_back(self) -> None:
        self.budget.take("back")
        self.log_start = 0

    def _forget_writers(self) -> None:
        self.budget.take("forget_log")
        self.writers.known.clear()

    def is_current(self, offsets: TransactionOffsets) -> bool:
        """Whether the group is still in the generation in which these offsets were read."""
        return offsets.generation_id == self.generation

    def _rebalance(self) -> None:
        self.budget.take("rebalance")
        self.generation += 1
