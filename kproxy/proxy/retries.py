"""Takes out of a Produce request what its client had sent before: it is answered, not written."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from kproxy.budget import MOST_STEPS, READ_RECORD_STEPS, RequestBudget
from kproxy.codec.batch import RawRecord, build_batch, read_header
from kproxy.codec.message_formats import to_v2
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import PartitionData
from kproxy.codec.records import CODEC_MASK, DecompressionLimit
from kproxy.dedup.batch_records import BatchRecords, read_batch
from kproxy.dedup.digest import UNTIMED, Digest, Digests
from kproxy.dedup.matching import RecordInBatch, group, match
from kproxy.dedup.producer_connection import ProducerConnection
from kproxy.dedup.unconfirmed import PendingProduce, UnconfirmedBatch
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.produce_batches import MAGIC_AT
from kproxy.proxy.produce_calls import PartitionCall
from kproxy.proxy.reading import Reading
from kproxy.proxy.retry_stats import RetryStats

if TYPE_CHECKING:
    from kproxy.dedup.lanes import TrackKey

#: A part of a call, a batch of format v2 for it, and the number of its records.
Batch: TypeAlias = tuple[PartitionCall, memoryview, int]


_FIRST_MAGIC_OF_BATCHES = 2


class Retries:
    """What may be a retry in one request, compared record by record."""

    def __init__(
        self,
        member: ProducerConnection,
        answer: PendingProduce,
        now: float,
        reading: Reading,
        stats: RetryStats,
    ) -> None:
        """For one request of a connection, when it is read and nothing hinders the comparison any more."""
        self._member = member
        self._answer = answer
        self._now = now
        self._reading = reading
        self._stats = stats
        self._budget = reading.budget.on_loop()  # it changes what connections share
        #: A partition on which a record was matched without an equal timestamp; None: there is none.
        self.untimed: TrackKey | None = None
        #: The partitions for which something is left to write.
        self.new: set[TrackKey] = set()

    def strip(self, batch: Batch, number: int, arrival_ms: int | None = None) -> list[Batch]:
        """What is left to write of a batch: all, some or nothing of it.

        ``number``: which one of the request's; ``arrival_ms``: see ``read_batch``.
        """
        part, data, _ = batch
        key, ledger = (part.topic, part.index), self._member.ledger
        check = ledger.quick_check(self._member, key, self._now)
        if check is not None and check.clears(data, arrival_ms):
            self.new.add(key)
            return [batch]
        records = self._reading.of(number)
        if records is None:
            self._count_too_many()
            return [batch]
        if not records:
            return [batch]
        if part.error_code:  # the batch before it in this request was refused
            self._await(key, records.digests)
            return []
        if self._is_orphan(key):
            self._stats.requests_dropped += 1
            part.error_code = ErrorCode.REQUEST_TIMED_OUT  # nobody is there to read it
            return []
        return self._compare(batch, records)

    def _is_orphan(self, key: "TrackKey") -> bool:
        member, ledger = self._member, self._member.ledger
        if not member.ended:
            return False
        outrun = ledger.is_outrun(member, key) or ledger.is_at_another_instance(member)
        return ledger.rules.drops_orphan(outrun=outrun)

    def _compare(self, batch: Batch, records: BatchRecords) -> list[Batch]:
        part, data, _ = batch
        digests = records.digests
        key, ledger = (part.topic, part.index), self._member.ledger
        entries = ledger.candidates(self._member, key, self._answer, self._now, digests)
        places = match(digests, entries, ledger.rules, self._now, self._budget)
        if places is None:
            self._count_too_many()
            return [batch]
        if isinstance(places, UnconfirmedBatch):
            if places.written:
                self._move_whole(part, places, untimed=digests[0].timestamp_ms == UNTIMED)
                return []
            places = [(places, at) for at in range(len(digests))]
        found = self._written(places)
        new = [at for at, place in enumerate(found) if place is None]
        fresh = digests if len(new) == len(digests) else digests.chosen(new)
        if fresh and not ledger.admits(self._member, key, fresh, self._now):
            part.error_code = ErrorCode.REQUEST_TIMED_OUT
            self._await(key, fresh)
            return []
        self._move(part, [(place, digests[at]) for at, place in enumerate(found) if place is not None])
        if new:
            self.new.add(key)
        if len(new) == len(digests):
            return [batch]
        return [self._rest(part, data, records.raw(new))] if new else []

    def _count_too_many(self) -> None:
        self._stats.readbacks_failed["too_many"] = self._stats.readbacks_failed.get("too_many", 0) + 1

    def _await(self, key: "TrackKey", records: Digests) -> None:
        """Records that these are refused unsent, since others that were refused before still come."""
        self._member.refused_unsent(key, records, self._answer.received_at, self._now)
        self._member.ledger.refuse_in_order(self._member, key, records, self._now, self._answer)

    def _written(self, found: list[RecordInBatch | None]) -> list[RecordInBatch | None]:
        """What was matched without the records that were refused unsent: these are written, and not expected again."""
        unwritten = [place for place in found if place is not None and not place[0].written]
        for entry, taken in group(unwritten):
            entry.part(taken)
        return [place if place is not None and place[0].written else None for place in found] if unwritten else found

    def _move_whole(self, part: PartitionCall, entry: UnconfirmedBatch, *, untimed: bool) -> None:
        """As ``_move``, of all records of an entry, whose timestamps are equal where they are known."""
        count = len(entry.offsets)
        if untimed:
            self._stats.records_matched_untimed += count
            self.untimed = entry.key
        part.matched += entry.offsets
        self._confirmed(entry.whole(), count)

    def _confirmed(self, moved: UnconfirmedBatch, count: int) -> None:
        if self._member.ledger.rules.stays_unconfirmed():
            self._answer.moved = (*self._answer.moved, moved)
        self._stats.records_matched += count

    def _move(self, part: PartitionCall, matched: list[tuple[RecordInBatch, Digest]]) -> None:
        """Confirms what was matched, and makes it unconfirmed again as part of this request."""
        for (entry, at), record in matched:
            if not entry.has_time_of(at, record):
                self._stats.records_matched_untimed += 1
                self.untimed = entry.key
            part.matched.append(entry.offsets[at])
            entry.taken_as(at, record)
        for entry, taken in group([place for place, _ in matched]):
            self._confirmed(entry.part(taken), len(taken))

    def _rest(self, part: PartitionCall, data: memoryview, new: list[RawRecord]) -> Batch:
        header = read_header(data)
        records = [record._replace(offset=at) for at, record in enumerate(new)]
        rest = build_batch(records, codec=header.attributes & CODEC_MASK)
        self._stats.records_stripped += header.record_count - len(new)
        return part, memoryview(rest), len(new)


def digests_in(frame: bytearray, place: PartitionData, max_batch_bytes: int, budget: RequestBudget) -> Digests:
    """The records of a record set in a request, UNTIMED in magic 0; none if there are none, or it is damaged.

    None also if that takes more than ``budget`` has, which is for all sets of a request.
    """
    data: memoryview | bytearray = memoryview(frame)[max(place.start, 0) : place.end]
    if len(data) <= MAGIC_AT:
        return Digests()
    try:
        batches = [data]
        if data[MAGIC_AT] < _FIRST_MAGIC_OF_BATCHES:
            converted = to_v2(data, arrival_ms=UNTIMED, max_batch_bytes=max_batch_bytes, budget=budget)
            batches = [batch.data for batch in converted]
        count = sum(read_header(batch).record_count for batch in batches)
        if budget.bytes <= 0 or not budget.take_steps(count * READ_RECORD_STEPS):
            return Digests()
    except RemoteProtocolError:
        return Digests()
    found: list[BatchRecords] = []
    for one in batches:
        with suppress(DecompressionLimit):
            found.append(read_batch(one, max_decompressed_bytes=budget.bytes))
    budget.take_bytes(sum(records.size for records in found))
    return found[0].digests if len(found) == 1 else Digests.of(chain.from_iterable(one.digests for one in found))


def digests_at(batch: bytes, max_decompressed_bytes: int, *, as_sent: bool = False) -> tuple[Digests, Sequence[int]]:
    """The records of a batch that was read back from a log: for ``UnconfirmedBatch.recall``.

    None if it has more than are compared. ``as_sent``: as for ``read_batch``. DecompressionLimit: it is too large.
    """
    if read_header(batch).record_count * READ_RECORD_STEPS > MOST_STEPS:
        found = BatchRecords()
    else:
        found = read_batch(batch, max_decompressed_bytes=max_decompressed_bytes, as_sent=as_sent)
    return found.digests, found.offsets
