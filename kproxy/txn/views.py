"""All views of the transaction log: what follows the log fills them, what filters and coordinates asks them."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_member import TransactionMember
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.codec._generated.transaction_reject import TransactionReject
from kproxy.codec.messages import Message
from kproxy.errors import RemoteProtocolError
from kproxy.txn.ids import Producer, is_transactional_producer_id
from kproxy.txn.log_records import Entry, UnknownRecord, decode
from kproxy.txn.resting_view import pack, unpack
from kproxy.txn.snapshot import PartitionLoader
from kproxy.txn.unknown import UnknownProducers
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView, LogPosition

if TYPE_CHECKING:
    from kproxy.codec.topic_partition import TopicPartition

_NOBODY: Final[frozenset[str]] = frozenset()
_NONE: Final[frozenset[int]] = frozenset()
#: About what one entry of ``IdView.copies`` takes in memory.
COPY_BYTES: Final = 256
#: So many views are packed at a time: clients wait meanwhile.
MOST_PACKED: Final = 1000


class Views:
    """The views of every transactional id, as far as the log has been read."""

    def __init__(self, told: Callable[[str, str], None] = lambda what, why: None) -> None:
        """``told(what, why)`` is called for records that are not understood."""
        self._told = told
        #: The ids of each, in the order in which they came.
        self._partitions: dict[int, dict[str, None]] = {}
        self._by_producer: dict[int, str] = {}
        self._by_place: dict[TopicPartition, set[str]] = {}
        self._by_group: dict[str, set[str]] = {}
        #: The topics that a transaction has partitions of, or had since this process has read the log.
        self._topics: set[str] = set()
        self._ids: dict[str, IdView] = {}
        #: The others, which are at rest, as ``resting_view.pack`` gives them.
        self._resting: dict[str, bytes] = {}
        #: Those of them that somebody still has, or has again: of an id there is one view at a time.
        self._held: WeakValueDictionary[str, IdView] = WeakValueDictionary()
        #: Those of them whose turn has not come yet (``some_at_rest``).
        self._turns: Iterator[str] = iter(())
        #: Ids that were asked for since ``rest`` was called last.
        self._used: set[str] = set()
        #: Those that are not settled: a fleet's other ids are not gone through each second by each of its instances.
        self._unsettled: dict[str, IdView] = {}
        self._loaders: dict[int, PartitionLoader] = {}
        #: Producer ids that are rejected, by the partition that says so.
        self._rejected: dict[int, set[int]] = {}
        #: The sum of ``IdView.offsets_bytes``.
        self.offsets_bytes = 0
        #: Producer ids that readers have met, while the log says nothing of them.
        self.unknown = UnknownProducers()
        #: Partitions with records of a newer kproxy: what follows is undecided, nothing is decided, no snapshot taken.
        self.foreign: set[int] = set()

    # -- what is read

    def restart(self, partition: int, start: int) -> None:
        """Forgets what one partition of the log said; it is read again, from its log start ``start`` on."""
        for name in self._partitions.pop(partition, {}):
            view = self.of(name)
            if view is None:
                continue
            del self._ids[name]
            self._unsettled.pop(name, None)
            self.offsets_bytes -= view.offsets_bytes
            for producer_id in view.producer_ids():
                self._by_producer.pop(producer_id, None)
        self._rejected.pop(partition, None)
        self.foreign.discard(partition)
        self._loaders[partition] = PartitionLoader(start)

    def apply(self, partition: int, at: LogPosition, key: bytes | None, value: bytes | None) -> list[Entry]:
        """Takes the next record of a partition; what changed something: with a snapshot, also records that came before.

        What follows a record that is not understood is not applied: it might have been a claim.
        """
        if partition in self.foreign:
            return []
        try:
            step = self.loader(partition).take(decode(key, value), at, len(key or b"") + len(value or b""))
        except RemoteProtocolError as error:
            self.foreign.add(partition)
            self._told("newer" if isinstance(error, UnknownRecord) else "damaged", str(error))
            return []
        for view in step.views:
            self._take_over(partition, view)
        for producer_id in step.rejected:
            self._reject(partition, producer_id)
        return [entry for entry, stand in step.records if self._apply(partition, entry, stand)]

    def begin_without(self, partition: int) -> list[Entry]:
        """Continues a partition that has lost its beginning with the records that are left; what they changed."""
        step = self.loader(partition).begin_without()
        return [entry for entry, stand in step.records if self._apply(partition, entry, stand)]

    def knows(self, partition: int) -> bool:
        """Whether the views are all that a partition says so far: else nothing may be decided, nor stated."""
        return partition not in self.foreign and self.loader(partition).is_sure

    def without_beginning(self, partitions: Iterable[int]) -> list[int]:
        """Those of which the log no longer has the first records, nor a snapshot that replaces them."""
        return [partition for partition in partitions if not self.loader(partition).is_sure]

    def loader(self, partition: int) -> PartitionLoader:
        """The reader of a partition; from its first record on, unless ``restart`` said otherwise."""
        return self._loaders.setdefault(partition, PartitionLoader(0))

    def _apply(self, partition: int, entry: Entry, at: LogPosition) -> bool:
        if isinstance(entry.body, TransactionReject):
            return self._reject(partition, entry.body.producer_id)
        name = entry.transactional_id
        view = self.of(name) or IdView(name)
        size = view.offsets_bytes
        if _begun_by(entry.body) in self._rejected.get(partition, _NONE) or not view.apply(entry.body, at):
            return False
        self.offsets_bytes += view.offsets_bytes - size
        self._ids[name] = view
        self._used.add(name)
        self._partitions.setdefault(partition, {})[name] = None
        self._index(view, entry)
        self._note_settled(view)
        return True

    def _note_settled(self, view: IdView) -> None:
        if view.is_settled:
            self._unsettled.pop(view.transactional_id, None)
        else:
            self._unsettled[view.transactional_id] = view

    def _reject(self, partition: int, producer_id: int) -> bool:
        """Rejects a producer id, unless a CLAIM or MEMBER in the partition came first."""
        is_known = self._by_producer.get(producer_id) in self._partitions.get(partition, {})
        if is_known or not is_transactional_producer_id(producer_id) or producer_id in self.rejected(partition):
            return False
        self._rejected.setdefault(partition, set()).add(producer_id)
        self.unknown.forget(producer_id)
        return True

    def _take_over(self, partition: int, view: IdView) -> None:
        name = view.transactional_id
        former = self.of(name)
        self.offsets_bytes += view.offsets_bytes - (former.offsets_bytes if former is not None else 0)
        self._ids[name] = view
        self._partitions.setdefault(partition, {})[name] = None
        for producer_id in view.producer_ids():
            self._know(producer_id, view)
        for places in view.bounds.values():
            for place in places:
                self._topics.add(place[0])
                self._by_place.setdefault(place, set()).add(name)
        for _, record in view.undecided_groups():
            self._by_group.setdefault(record.group_id, set()).add(name)
        for _, group_id in view.unmirrored:
            self._by_group.setdefault(group_id, set()).add(name)
        self._note_settled(view)

    def _index(self, view: IdView, entry: Entry) -> None:
        body, name = entry.body, entry.transactional_id
        if isinstance(body, TransactionClaim):
            self._know(body.producer_id, view)
        elif isinstance(body, TransactionMember):
            self._know(body.member_producer_id, view)
        elif isinstance(body, TransactionPartitions):
            for topic in body.topics:
                self._topics.add(topic.name)
                for row in topic.partitions:
                    self._by_place.setdefault((topic.name, row.index), set()).add(name)
        elif isinstance(body, TransactionOffsets):
            self._by_group.setdefault(body.group_id, set()).add(name)

    def _know(self, producer_id: int, view: IdView) -> None:
        self._by_producer[producer_id] = view.transactional_id
        self.unknown.forget(producer_id)

    # -- what is asked

    def of(self, transactional_id: str) -> IdView | None:
        """The view of an id; None if the log says nothing of it."""
        view = self._ids.get(transactional_id)
        if view is None and transactional_id in self._resting:
            view = self._ids[transactional_id] = self._look(transactional_id)
            del self._resting[transactional_id]
            self._held.pop(transactional_id, None)
        if view is not None:
            self._used.add(transactional_id)
        return view

    def _look(self, transactional_id: str) -> IdView:
        """The view of an id that the log names, which may rest on."""
        view = self._ids.get(transactional_id) or self._held.get(transactional_id)
        if view is None:
            view = self._held[transactional_id] = unpack(transactional_id, self._resting[transactional_id])
        return view

    def rest(self, most: int = MOST_PACKED) -> None:
        """Packs views for which nobody has anything to do, and for which nobody has asked since the last call."""
        found = (name for name in self._ids if name not in self._used and name not in self._unsettled)
        for name in list(islice(found, most)):
            data = pack(self._ids[name])
            if data is not None:
                self._held[name] = self._ids.pop(name)
                self._resting[name] = data
        self._used.clear()

    def all(self) -> Iterator[IdView]:
        """Every view."""
        return chain(self.awake(), map(self._look, list(self._resting)))

    def awake(self) -> list[IdView]:
        """Those that do not rest."""
        return list(self._ids.values())

    def some_at_rest(self, most: int) -> list[IdView]:
        """The next of those that rest; all in turn, if it is called often enough."""
        found = [name for name in islice(self._turns, most) if name in self._resting]
        if len(found) < most:
            self._turns = iter(list(self._resting))
        return [self._look(name) for name in found]

    @property
    def names(self) -> list[str]:
        """Every transactional id."""
        return [*self._ids, *self._resting]

    @property
    def count(self) -> int:
        """The number of views."""
        return len(self._ids) + len(self._resting)

    def unsettled(self) -> list[IdView]:
        """Those for which somebody has something to do (``IdView.is_settled``)."""
        return list(self._unsettled.values())

    def of_partition(self, partition: int) -> Iterable[IdView]:
        """The views that a snapshot of a partition states."""
        return map(self._look, self._partitions.get(partition, {}))

    def of_producer(self, producer_id: int) -> IdView | None:
        """The view of the id that has a producer id."""
        name = self._by_producer.get(producer_id)
        return None if name is None else self.of(name)

    def rejected(self, partition: int) -> Collection[int]:
        """The producer ids that a partition rejects: what a snapshot of it states, too."""
        return self._rejected.get(partition, _NONE)

    def is_rejected(self, producer_id: int) -> bool:
        """Whether any partition rejects a producer id."""
        return any(producer_id in ids for ids in self._rejected.values())

    def verdict(self, producer_id: int, epoch: int) -> Verdict:
        """Whether data of one of kproxy's transactions are to be seen: not, while nothing is known of them."""
        if self.is_rejected(producer_id):
            return Verdict.ABORTED
        view = self.of_producer(producer_id)
        return Verdict.UNDECIDED if view is None else view.verdict(Producer(producer_id, epoch))

    def is_other_copy(
        self, producer_id: int, epoch: int, topic: str, partition: int, base_sequence: int, base_offset: int
    ) -> bool:
        """Whether this batch does not count: another copy does, or its epoch was continued by another before."""
        view, part = self.of_producer(producer_id), Producer(producer_id, epoch)
        return view is not None and view.is_other_copy(part, (topic, partition), base_sequence, base_offset)

    def copied(self) -> set[tuple[Producer, "TopicPartition"]]:
        """The transactions and partitions of batches that were sent more than once."""
        every = (item for view in self._ids.values() for item in view.copies.items())
        return {(producer, (topic, index)) for producer, copies in every for topic, index, _ in copies}

    def forget_copies(self, producer: Producer, place: "TopicPartition") -> None:
        """Forgets which of them counts: none is in the partition any more."""
        view = self.of_producer(producer.producer_id)
        if view is not None:
            view.forget_copies(producer, place)

    def copies_bytes(self) -> int:
        """An estimate of the memory that the offsets of batches take that were sent more than once, in bytes."""
        return COPY_BYTES * sum(len(copies) for view in self._ids.values() for copies in view.copies.values())

    def has_written(self, topic: str) -> bool:
        """Whether a transaction that kproxy decides has records in a topic, as far as the log still says so."""
        return topic in self._topics

    def bound(self, topic: str, partition: int) -> int | None:
        """The lowest offset of a partition at which undecided data may lie; None if there are none."""
        place = (topic, partition)
        bounds: list[int] = []
        for name in list(self._by_place.get(place, _NOBODY)):
            view = self._ids.get(name)
            bound = view.bound(place) if view is not None else None
            if bound is None:
                self._by_place[place].discard(name)
            else:
                bounds.append(bound)
        unknown = self.unknown.bound(topic, partition)
        if unknown is not None:
            bounds.append(unknown)
        return min(bounds, default=None)

    def met(self, producer_id: int, topic: str, partition: int, offset: int) -> None:
        """A reader stops at a batch that is undecided; noted if the log says nothing of it."""
        if producer_id not in self._by_producer and not self.is_rejected(producer_id):
            self.unknown.note(producer_id, topic, partition, offset)

    def undecided_offsets(self, group_id: str) -> Iterator[tuple[IdView, Producer, TransactionOffsets]]:
        """Group offsets that wait for the decision of a transaction."""
        for name in self._of_group(group_id):
            view = self._ids[name]
            for producer, record in view.undecided_groups():
                if record.group_id == group_id:
                    yield view, producer, record

    def unmirrored_offsets(self, group_id: str) -> Iterator[tuple[IdView, Producer, TransactionOffsets]]:
        """Group offsets of committed transactions that the broker may not have yet, the oldest of each id first."""
        for name in self._of_group(group_id):
            view = self._ids[name]
            for (producer, group), records in view.unmirrored.items():
                if group == group_id:
                    yield from ((view, producer, record) for record in records)

    def _of_group(self, group_id: str) -> list[str]:
        names = self._by_group.get(group_id)
        if not names:
            return []
        for name in list(names):
            view = self._ids.get(name)
            if view is None or not (view.pending or view.unmirrored):
                names.discard(name)
        return sorted(names)


def _begun_by(body: Message) -> int | None:
    """The producer id that a record takes into use; None for other records."""
    if isinstance(body, TransactionClaim):
        return body.producer_id
    return body.member_producer_id if isinstance(body, TransactionMember) else None
