"""The decided ends of partitions, for ListOffsets: no client may receive an end that a reader can't reach.

Each transaction announces a partition in the log, with the partition's end, before it writes there. So once that log is
read to its end, nothing below the lowest announced offset is undecided, and the batch headers from there on show the
rest.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from kproxy.codec.batch import read_header
from kproxy.codec.records import MAGIC_OFFSET
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.transaction_options import TransactionOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import LATEST, list_offsets
from kproxy.net.broker_log_reads import read_logs
from kproxy.net.broker_log_tail import ReadRange
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.leaders import Leaders
from kproxy.proxy.retry_stats import RetryStats
from kproxy.single_flight import SingleFlight
from kproxy.txn.last_stable import LastStable, Question
from kproxy.txn.verdict import Decisions
from kproxy.txn.visibility import entries, undecided_in

#: Bytes read at a time; only the headers in them are examined.
_READ_BYTES: Final = 1 << 20
#: Partitions whose last scan is remembered: what lies before it need not be read again.
_MOST_SCANNED: Final = 10_000
#: A leader that does not know the high watermark yet says so (KIP-207).
_END: Final = list_offsets(LATEST, oldest=5)
_MAGIC_V2: Final = 2


class StableOffsets:
    """Answers for many partitions at a time."""

    def __init__(
        self,
        cluster: Cluster,
        config: TransactionOptions,
        stats: RetryStats,
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
        #: Offsets that were found, by this or by readers.
        self.told = LastStable()
        self._scanned: dict[TopicPartition, int] = {}

    async def stable(self, question: Question) -> dict[TopicPartition, int | None]:
        """The offset to report of each partition; None where it can't be known.

        The offsets asked for must have been below the high watermark when this is called.
        """
        told: dict[TopicPartition, int | None] = dict.fromkeys((*question.ends, *question.hints))
        try:
            lost = await self._lost(question.receded)
            await self._read_to_end()
        except (OSError, RemoteProtocolError):
            return told
        for place in lost:
            self.told.lost(place)
            self._scanned.pop(place, None)
        scans: dict[TopicPartition, _Scan] = {}
        found: dict[TopicPartition, int | None] = {}
        for place, end in (*question.hints.items(), *question.ends.items()):
            bound = self._bound(*place)
            if bound is None or bound >= end:
                found[place] = end
            elif place in question.hints:
                found[place] = bound
            else:
                scans[place] = self._scan(place, bound, end)
        told.update(self.told.found(question, found))  # before the scans, which may take longer than is waited
        told.update(self.told.found(question, await self._run(scans)))
        return told

    def _scan(self, place: TopicPartition, bound: int, end: int) -> "_Scan":
        known = max(self.told.reported(place), self._scanned.pop(place, 0))
        return _Scan(place, max(bound, known if known <= end else 0), end, self._decisions)

    async def _run(self, scans: "Mapping[TopicPartition, _Scan]") -> dict[TopicPartition, int | None]:
        """The first undecided batch of each, or the end."""
        try:
            failed = await read_logs(self._leaders, self._config, self._stats, scans)
        finally:
            for place, scan in scans.items():
                self._remember(place, scan.position)
        return {place: None if place in failed else scan.position for place, scan in scans.items()}

    async def _lost(self, places: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those whose logs end before what was reported, by a leader that knows the high watermark."""
        # Before the question: what is reported while it is asked may be of records that came after the response.
        reported = {place: self.told.reported(place) for place in places}
        ends = await self._leaders.ask(places, _END)
        return [
            place
            for place, offset in reported.items()
            if not ends[place].error_code and (end := ends[place].value) is not None and end < offset
        ]

    def _remember(self, place: TopicPartition, offset: int) -> None:
        while len(self._scanned) >= _MOST_SCANNED:
            del self._scanned[next(iter(self._scanned))]
        self._scanned[place] = offset

    def close(self) -> None:
        """Closes the connections that it has of its own."""
        self._leaders.close()


class _Scan:
    """Finds the first undecided batch in [position, end)."""

    may_wait = False

    def __init__(self, place: TopicPartition, position: int, end: int, decisions: Decisions) -> None:
        self._place = place
        #: Nothing before it is undecided.
        self.position = position
        self._end = end
        self._decisions = decisions
        self._met = False

    @property
    def wish(self) -> ReadRange | None:
        """The range to read next; None: no more."""
        return None if self._met or self.position >= self._end else (self.position, _READ_BYTES)

    def take(self, data: bytes | memoryview) -> int:
        """Takes a record set read from the offset of the wish; the bytes of whole batches in it."""
        size = 0
        for entry in entries(data):
            size += len(entry)
            base_offset = int.from_bytes(entry[:8], "big")
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
        """Records that the log begins at ``start``."""
        self._pass(max(self.position, start))

    def _pass(self, offset: int) -> None:
        self.position = min(offset, self._end)
