"""The lanes of other processes, by the entries in the log: of a former kproxy, or of other instances."""

from collections.abc import Callable, Iterable, Set
from typing import Final, NamedTuple

from kproxy.codec.records import Record
from kproxy.codec.stored import UnknownRecord
from kproxy.dedup.identity import Identity
from kproxy.dedup.lane_record import LaneKey, LaneRecord, decode_key, decode_value
from kproxy.dedup.listed import InDoubt
from kproxy.errors import RemoteProtocolError

#: More lanes than an instance has connections and pauses; about 40 MB.
MOST_LANES: Final = 50_000
#: What the identities of all lanes and the batches that they list may take together, in bytes. kproxy writes short
#: identities only; other entries were written by an older version, or by somebody else.
MOST_BYTES: Final = 16 << 20
#: What a listed batch takes, and the offset of a record of it, in bytes; measured.
_BATCH_BYTES: Final = 300
_OFFSET_BYTES: Final = 40


class _Entry(NamedTuple):
    lane: LaneRecord
    #: The time of the record, in ms since 1970.
    appended_ms: int


class FormerLanes:
    """A view of the log: of each producer id the last entry counts, compacted or not.

    Of the batches in doubt only the newest list of each producer and instance is kept. Each entry has a list, and none
    that is older is asked for.

    Where a caller says since when entries count, older ones are not there, deleted or not.
    """

    def __init__(
        self,
        is_wanted: Callable[[str], bool],
        most: int = MOST_LANES,
        others: Callable[[Record], bool] = lambda record: False,
    ) -> None:
        """Keeps lanes of the instances that ``is_wanted``. At most ``most`` lanes are kept, the ones last written.

        ``others`` takes the topic's other entries, and says whether a record is one.
        """
        self._others = others
        self._is_wanted = is_wanted
        self._most = most
        #: The first to be written first, as far as they are from one partition.
        self._lanes: dict[LaneKey, _Entry] = {}
        self._by_identity: dict[Identity, dict[LaneKey, _Entry]] = {}
        #: By instance and identity, the entry whose list is the newest.
        self._newest_lists: dict[tuple[str, Identity], LaneKey] = {}
        #: Bytes of identities, and of listed batches.
        self._named = self.listed = 0
        self._is_complete = False
        #: Entries of newer versions, and ones that are no entries: kept in the log, not used.
        self.newer = self.damaged = 0
        #: Lanes beyond ``most`` or ``MOST_BYTES``: retries of what was sent under them are not recognised.
        self.dropped = 0
        #: The time of the newest list of batches in doubt (``InDoubt.at_ms``); 0: there is none.
        self.newest_list_ms = 0

    def __len__(self) -> int:
        """The number of lanes that are known."""
        return len(self._lanes)

    @property
    def identities(self) -> Set[Identity]:
        """The producers of which lanes are known."""
        return self._by_identity.keys()

    def apply(self, records: Iterable[Record]) -> None:
        """Takes the next entries of the log."""
        for record in records:
            if self._others(record) or self._is_complete:
                continue
            try:
                self._apply(record)
            except UnknownRecord:
                self.newer += 1
            except RemoteProtocolError:
                self.damaged += 1

    def complete(self) -> None:
        """Ends the reading of a former process's entries: this process has begun to write."""
        self._is_complete = True

    def of(self, identity: Identity, since_ms: int = -1) -> list[LaneRecord]:
        """The lanes that a producer had, the oldest entry first."""
        entries = self._by_identity.get(identity, {}).values()
        return [entry.lane for entry in entries if entry.appended_ms >= since_ms]

    def expire(self, since_ms: int) -> None:
        """Frees entries that were written before; some may stay until those that were read before them expire."""
        while self._lanes and next(iter(self._lanes.values())).appended_ms < since_ms:
            self._remove(next(iter(self._lanes)))

    def forget_lists(self, since_ms: int) -> None:
        """Frees the batches of each list of which none came in doubt later: no client sends them again any more.

        That such a list is complete (``LaneRecord.says_all``) remains known.
        """
        for key in self._newest_lists.values():
            in_doubt = self._lanes[key].lane.in_doubt
            if in_doubt is not None and all(batch.since_ms < since_ms for batch in in_doubt.batches):
                self._strip(key, in_doubt)

    def leave(self, instance_id: str) -> None:
        """Records that what is known of an instance was written by a process that has ended."""
        for key, entry in self._lanes.items():
            if key.instance_id == instance_id and not entry.lane.is_left:
                left = entry._replace(lane=entry.lane._replace(is_left=True))
                self._lanes[key] = self._by_identity[left.lane.identity][key] = left

    def take_all(self, since_ms: int = -1) -> list[LaneRecord]:
        """All lanes; none is known from then on."""
        lanes = [entry.lane for entry in self._lanes.values() if entry.appended_ms >= since_ms]
        self._lanes.clear()
        self._by_identity.clear()
        self._newest_lists.clear()
        self._named = self.listed = 0
        return lanes

    def _apply(self, record: Record) -> None:
        key = decode_key(record.key)
        if not self._is_wanted(key.instance_id):
            return
        self._remove(key)  # replaced, even if what replaces it can't be read
        if record.value is None:
            return
        lane = decode_value(key, record.value)
        self._put(key, _Entry(lane, record.timestamp))
        if lane.in_doubt is not None:
            self.newest_list_ms = max(self.newest_list_ms, lane.in_doubt.at_ms)
            self._keep_newest(key, lane, lane.in_doubt)
        while len(self._lanes) > self._most or self._named + self.listed > MOST_BYTES:
            self._remove(next(iter(self._lanes)))
            self.dropped += 1

    def _put(self, key: LaneKey, entry: _Entry) -> None:
        self._lanes[key] = entry
        self._by_identity.setdefault(entry.lane.identity, {})[key] = entry
        self._count(entry.lane, 1)

    def _count(self, lane: LaneRecord, times: int) -> None:
        self._named += times * sum(map(len, lane.identity))
        self.listed += times * _listed(lane)

    def _keep_newest(self, key: LaneKey, lane: LaneRecord, in_doubt: InDoubt) -> None:
        """Drops the batches of the older one of two lists."""
        owner = lane.instance_id, lane.identity
        before = self._newest_lists.get(owner)
        other = None if before is None else self._lanes[before].lane.in_doubt
        if before is not None and other is not None:
            if other.at_ms > in_doubt.at_ms:
                self._strip(key, in_doubt)
                return
            self._strip(before, other)
        self._newest_lists[owner] = key

    def _strip(self, key: LaneKey, in_doubt: InDoubt) -> None:
        if not in_doubt.batches:
            return
        entry = self._lanes[key]
        self._count(entry.lane, -1)
        self._put(key, entry._replace(lane=entry.lane._replace(in_doubt=in_doubt._replace(batches=()))))

    def _remove(self, key: LaneKey) -> None:
        entry = self._lanes.pop(key, None)
        if entry is not None:
            lane = entry.lane
            self._count(lane, -1)
            if self._newest_lists.get((lane.instance_id, lane.identity)) == key:
                del self._newest_lists[lane.instance_id, lane.identity]
            lanes = self._by_identity[lane.identity]
            del lanes[key]
            if not lanes:
                del self._by_identity[lane.identity]


def _listed(lane: LaneRecord) -> int:
    batches = () if lane.in_doubt is None else lane.in_doubt.batches
    return sum(_BATCH_BYTES + _OFFSET_BYTES * len(batch.offsets) for batch in batches)


def newest_lists(lanes: Iterable[LaneRecord]) -> dict[str, InDoubt]:
    """The newest list of a producer's batches in doubt, by the instance that wrote it."""
    found: dict[str, InDoubt] = {}
    for lane in lanes:
        before = found.get(lane.instance_id)
        if lane.in_doubt is not None and (before is None or lane.in_doubt.at_ms >= before.at_ms):
            found[lane.instance_id] = lane.in_doubt
    return found
