"""What is outside: the log, partitions, a group's generation, what is in flight, and how much may still go wrong."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, encode
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
    """What a broker remembers of producers in one partition."""

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
    """What was sent, and may arrive at any time."""

    text: str
    arrive: Callable[[], None]
    #: What tells it from others, for states that are compared.
    key: tuple[Any, ...]


class Budget(Counter[str]):
    """How often each fault may still happen."""

    def __init__(self, most: Mapping[str, int]) -> None:
        """How often each may happen."""
        super().__init__(most)
        #: Those that have happened.
        self.taken: set[str] = set()

    def take(self, what: str) -> None:
        """It has happened."""
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
        self.writers = Producers()
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
        #: Of each batch that was once decided for readers: how.
        self.decided: dict[tuple[TopicPartition, int], Verdict] = {}

    def close(self) -> None:
        """Nobody runs it any more."""
        self.engine.close()

    def facts(self) -> tuple[Any, ...]:
        """What tells a world of some kind from others of that kind, beside what all worlds have."""
        return ()

    # -- the log

    def append(self, entry: Entry, producer: Producer, sequence: int) -> int | None:
        """The offset of a record; None if it is refused."""
        if producer.producer_id >= 0:
            if self.writers.refuses(producer, sequence):
                return None
            self.writers.note(producer, sequence)
        offset = len(self.log)
        self.log.append((entry, self.time.wall_ms()))
        read(self.reader, self.log, offset)
        self._look()
        return offset

    # -- partitions

    def write(self, place: TopicPartition, producer: Producer, sequence: int, payload: str) -> int | None:
        """The offset of a batch; None if it is refused."""
        partition = self.partitions[place]
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
        """What readers that have read all of the log make of a batch."""
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

    def moved(self) -> Iterator[int]:
        """The offsets of the group that readers of the log see committed."""
        for _, _, record in self.reader.unmirrored_offsets("g"):
            yield from (row.offset for topic in record.topics for row in topic.partitions)

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

    def send(self, text: str, arrive: Callable[[], None], *key: Any) -> None:
        """Something is under way from now on."""
        self.flying.append(Flight(text, arrive, key))

    def _arrivals(self) -> Iterator[Move]:
        for flight in self.flying:

            def do(flight: Flight = flight) -> None:
                self.flying.remove(flight)
                flight.arrive()

            yield Move(flight.text, do)

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
            instance.owners.look()
        self.time.seconds += seconds
        for instance in instances:
            instance.owners.look()

    def _is_decided(self, place: TopicPartition) -> bool:
        rows = [row for row in self.partitions[place].rows if not row.is_control]
        return all(self.verdict(place, row) is not Verdict.UNDECIDED for row in rows)

    def _forget(self, partition: Partition) -> None:
        """Long after it was last written to, as brokers do (``producer.id.expiration.ms``)."""
        self.budget.take("forget")
        partition.producers.known.clear()

    def _rebalance(self) -> None:
        self.budget.take("rebalance")
        self.generation += 1


def read(views: Views, log: list[tuple[Entry, int]], offset: int) -> None:
    """Has views take the record at an offset."""
    entry, at_ms = log[offset]
    views.apply(0, LogPosition(offset, at_ms), *encode(entry))
