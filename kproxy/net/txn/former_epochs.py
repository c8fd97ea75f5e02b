"""What an open transaction's former epochs wrote: fenced, so that nothing can follow, then read from the partitions.

The instance before may be dead, or only slow, and says nothing. The log has the partitions, each announced before its
first data, and the client's sequence of the first record in each. All else is in the partitions. The fence comes before
the read: what the former instance acknowledged is in what is read, and whatever it has in flight is refused.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import trio

from kproxy.codec.batch import BatchHeader, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.codec.records import MAGIC_OFFSET
from kproxy.codec.sequence import advance
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.transaction_options import TransactionOptions
from kproxy.errors import KproxyError, RemoteProtocolError
from kproxy.net.broker_log_questions import LATEST, list_offsets, write_markers
from kproxy.net.broker_log_reads import read_logs
from kproxy.net.broker_log_tail import ReadRange
from kproxy.net.brokers.leaders import Leaders
from kproxy.proxy.retry_stats import RetryStats
from kproxy.txn.ids import LAST_EPOCH, Producer
from kproxy.txn.view import IdView
from kproxy.txn.visibility import entries
from kproxy.txn.writes import Written

_READ_BYTES: Final = 1 << 20
_MAGIC_V2: Final = 2
#: After so long the transaction is aborted: its client waits, and so do readers.
_MOST_SECONDS: Final = 30.0
#: A leader that does not know the high watermark yet says so (KIP-207).
_END: Final = list_offsets(LATEST, oldest=5)
#: kproxy's principal has no right to write markers, or the broker does not serve them.
_FORBIDDEN: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)
#: No batch has it: a producer id that is replaced by the next one is fenced by it.
_BEYOND_ALL: Final = LAST_EPOCH + 1
#: Producer ids of a transactional id that are fenced: each lasts for tens of thousands of epochs.
_GENERATIONS: Final = 2

Parts: TypeAlias = Sequence[Producer]


class Uncertain(KproxyError):
    """It can't be told what was written: the transaction can only be aborted."""


class SentBatch(NamedTuple):
    """A batch of the client's that is in a partition: by the client's sequence."""

    sequence: int
    records: int
    base_offset: int


class Former(NamedTuple):
    """What is there of an open transaction."""

    written: Mapping[Producer, Mapping[TopicPartition, Written]]
    """Of each former epoch that has data, in order."""
    following: Mapping[TopicPartition, int]
    """The client's next sequence in each partition that the log names."""
    sent: Mapping[TopicPartition, Sequence[SentBatch]]
    """In order."""


class FormerEpochs:
    """Fences and reads what open transactions wrote through other instances."""

    def __init__(self, leaders: Leaders, config: TransactionOptions, stats: RetryStats) -> None:
        """Reads are counted in ``stats``."""
        self._leaders = leaders
        self._config = config
        self._stats = stats

    async def read(self, view: IdView, parts: Parts) -> Former:
        """What these epochs of an id wrote, the first first. Uncertain."""
        with trio.move_on_after(_MOST_SECONDS):
            try:
                return await self._read(view, parts)
            except (OSError, RemoteProtocolError) as error:
                raise Uncertain(str(error)) from error
        raise Uncertain(f"the transaction's partitions could not be read within {_MOST_SECONDS:.0f} s")

    async def fence(self, producer_ids: Sequence[int], following: Producer, places: Sequence[TopicPartition]) -> None:
        """No epoch before ``following`` writes to these partitions from now on. OSError, RemoteProtocolError.

        ``producer_ids``: those that the transactional id has had, the newest last. Does nothing if kproxy's principal
        has no right to write markers.
        """
        newest = producer_ids[-_GENERATIONS:]
        fences = [(one, following.epoch if one == following.producer_id else _BEYOND_ALL) for one in newest]
        for place, told in (await self._leaders.ask(places, write_markers(fences))).items():
            if told.error_code not in _FORBIDDEN:
                told.get(place, "WriteTxnMarkers")

    async def _read(self, view: IdView, parts: Parts) -> Former:
        fences = {part.producer_id: part.epoch + 1 for part in sorted(parts)}
        places = list(dict.fromkeys(place for part in parts for place in view.bounds.get(part, ())))
        for place, told in (await self._leaders.ask(places, write_markers(list(fences.items())))).items():
            if not told.get(place, "WriteTxnMarkers"):
                raise Uncertain(f"another instance has fenced the transaction on {place[0]}-{place[1]}")
        ends = await self._leaders.ask(places, _END)
        scans = {
            place: _Scan(view.bound(place) or 0, ends[place].get(place, "ListOffsets"), parts, fences)
            for place in places
        }
        failed = await read_logs(self._leaders, self._config, self._stats, scans)
        for place, error in failed.items():
            raise Uncertain(f"{place[0]}-{place[1]}: {error}")
        return _summary(view, parts, scans)


@dataclass(slots=True)
class _Scan:
    """Reads [position, end) of a partition for the batches of some epochs."""

    position: int
    end: int
    parts: Collection[Producer]
    #: By producer id the epoch of the marker that has to be met.
    fences: Mapping[int, int]
    found: dict[Producer, list[BatchHeader]] = field(default_factory=dict)
    met: set[int] = field(default_factory=set)
    is_cut: bool = False
    may_wait: bool = False

    @property
    def wish(self) -> ReadRange | None:
        """What to read next; None: no more."""
        return (self.position, _READ_BYTES) if self.position < self.end else None

    def take(self, data: bytes | memoryview) -> int:
        """Takes a record set that was read from the offset of the wish; the bytes of whole batches in it."""
        size = 0
        for entry in entries(data):
            size += len(entry)
            following = int.from_bytes(entry[:8], "big") + 1
            if entry[MAGIC_OFFSET] == _MAGIC_V2:
                header = read_header(entry)
                following += header.last_offset_delta
                if following > self.position:
                    self._note(header)
            self.position = max(self.position, following)
        return size

    def _note(self, header: BatchHeader) -> None:
        producer = Producer(header.producer_id, header.producer_epoch)
        if header.is_control:
            if self.fences.get(producer.producer_id) == producer.epoch:
                self.met.add(producer.producer_id)
        elif producer in self.parts:
            self.found.setdefault(producer, []).append(header)

    def cut(self, start: int) -> None:
        """Records that the log begins at ``start``: what lay before may have been the transaction's."""
        self.position, self.is_cut = start, True


def _summary(view: IdView, parts: Parts, scans: Mapping[TopicPartition, _Scan]) -> Former:
    written: dict[Producer, dict[TopicPartition, Written]] = {}
    following: dict[TopicPartition, int] = {}
    sent: dict[TopicPartition, list[SentBatch]] = {}
    for place, scan in scans.items():
        if scan.is_cut or scan.met != set(scan.fences):
            raise Uncertain(f"{place[0]}-{place[1]} lacks records that were there when the transaction began")
        for part in parts:
            first = view.first_sequences.get(part, {}).get(place)
            headers = scan.found.get(part, [])
            if first is None:
                if place in view.bounds.get(part, ()) or headers:
                    raise Uncertain(f"the log does not say where the client began on {place[0]}-{place[1]}")
                continue
            if not headers:
                if place not in sent:
                    following[place] = first
                continue
            if sent.get(place) and following[place] != first:
                raise Uncertain(f"the client left out sequences on {place[0]}-{place[1]}")
            batches = _counted(place, first, headers)
            sent.setdefault(place, []).extend(batches)
            following[place] = advance(batches[-1].sequence, batches[-1].records)
            end = headers[-1].base_offset + headers[-1].last_offset_delta + 1
            written.setdefault(part, {})[place] = Written(end, ())
    ordered = {part: written[part] for part in parts if part in written}
    return Former(ordered, following, sent)


def _counted(place: TopicPartition, first: int, headers: Sequence[BatchHeader]) -> list[SentBatch]:
    """The batches by the client's sequences. Uncertain unless each of kproxy's sequences is there once, in order."""
    batches: list[SentBatch] = []
    expected = 0
    for header in headers:
        count = header.last_offset_delta + 1
        if header.base_sequence != expected or header.record_count != count:
            raise Uncertain(f"{place[0]}-{place[1]} has copies of batches, or gaps")
        batches.append(SentBatch(advance(first, expected), count, header.base_offset))
        expected = advance(expected, count)
    return batches
