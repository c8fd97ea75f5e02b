"""Up to where partitions are decided, for ListOffsets: nobody may be told of an end that a reader can't reach.

Each transaction announces a partition in the log, with the partition's end, before it writes there. So behind the end
of that log nothing undecided lies below the lowest offset announced, and a look at the headers from there on tells.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kproxy.codec.batch import read_header
from kproxy.codec.records import MAGIC_OFFSET
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config import Config
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_leaders import Leaders
from kproxy.net.broker_log_reads import read_logs
from kproxy.net.broker_log_tail import Wish
from kproxy.net.cluster import Cluster
from kproxy.net.single_flight import SingleFlight
from kproxy.proxy.stats import Stats
from kproxy.txn.verdict import Decisions
from kproxy.txn.visibility import entries, undecided_in

#: Read at a time; of what is read only headers are looked at.
_READ_BYTES: Final = 1 << 20
#: Partitions whose last result is remembered: what lies before it need not be read again.
_MOST_KNOWN: Final = 10_000
_MAGIC_V2: Final = 2


class StableOffsets:
    """Answers for many partitions at a time."""

    def __init__(
        self,
        cluster: Cluster,
        config: Config,
        stats: Stats,
        decisions: Decisions,
        bound: Callable[[str, int], int | None],
        read_to_end: Callable[[], Awaitable[None]],
    ) -> None:
        """``bound`` gives the lowest offset at which undecided data may lie, None if there are none.

        ``read_to_end`` reads the transaction log to its end, after which ``bound`` and ``decisions`` know all that was
        written before; OSError or RemoteProtocolError if that can't be done.
        """
        self._config = config
        self._stats = stats
        self._decisions = decisions
        self._bound = bound
        self._read_to_end = SingleFlight(read_to_end)
        self._leaders = Leaders(cluster, config)
        self._known: dict[TopicPartition, int] = {}

    async def stable(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Each partition's offset or, if that is lower, its last stable one; None where that can't be known.

        The offsets must have been the ends, or lain before them, when this is called.
        """
        found: dict[TopicPartition, int | None] = dict(ends)
        try:
            await self._read_to_end()
        except (OSError, RemoteProtocolError):
            return dict.fromkeys(ends)
        scans: dict[TopicPartition, _Scan] = {}
        for place, end in ends.items():
            bound = self._bound(*place)
            if bound is not None and bound < end:
                known = self._known.pop(place, 0)
                scans[place] = _Scan(place, max(bound, known if known <= end else 0), end, self._decisions)
        try:
            failed = await read_logs(self._leaders, self._config, self._stats, scans)
        finally:
            for place, scan in scans.items():
                self._remember(place, scan.position)
        found.update((place, None if place in failed else scan.position) for place, scan in scans.items())
        return found

    def _remember(self, place: TopicPartition, offset: int) -> None:
        while len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[place] = offset

    def close(self) -> None:
        """Closes the connections that it has of its own."""
        self._leaders.close()


class _Scan:
    """Looks for the first undecided batch in [position, end)."""

    may_wait = False

    def __init__(self, place: TopicPartition, position: int, end: int, decisions: Decisions) -> None:
        self._place = place
        #: Nothing before it is undecided.
        self.position = position
        self._end = end
        self._decisions = decisions
        self._met = False

    @property
    def wish(self) -> Wish | None:
        """What to read next; None: no more."""
        return None if self._met or self.position >= self._end else (self.position, _READ_BYTES)

    def take(self, data: bytes | memoryview) -> int:
        """Takes a record set read from the offset of the wish; the bytes of whole batches in it."""
        size = 0
        for entry in entries(data):
            size += len(entry)
            base_offset = int.from_bytes(entry[:8], "big", signed=True)
            behind = base_offset + 1
            if entry[MAGIC_OFFSET] == _MAGIC_V2:
                behind += read_header(entry).last_offset_delta
            if behind <= self.position:
                continue
            undecided = undecided_in(entry, self._decisions)
            if undecided is not None:
                self._met = True
                self._decisions.met(undecided.producer_id, *self._place, base_offset)
            self._pass(max(self.position, base_offset) if self._met else behind)
            if self.wish is None:
                break
        return size

    def cut(self, start: int) -> None:
        """Takes note that the log begins at ``start``."""
        self._pass(max(self.position, start))

    def _pass(self, offset: int) -> None:
        self.position = min(offset, self._end)
