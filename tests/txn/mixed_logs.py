"""Logs in which plain data, kproxy's transactions and Kafka's own are mixed, and what a reader should see of them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from kproxy.codec.batch import HEADER_SIZE, Record, build_batch
from kproxy.txn.ids import TXN_BITS
from kproxy.txn.verdict import Verdict
from kproxy.txn.visibility import Aborted
from tests.codec.message_sets import entry

NOW = 1_700_000_000_000
TXN_PID = TXN_BITS | 5
LANE_PID = 1 << 62 | 5
COMMITTED, ABORTED, UNDECIDED = 1, 2, 3  # epochs of TXN_PID
#: The base sequence of batches that are in the log more than once, and the copy that counts by its base offset.
COPIED = 77

KINDS = ["plain", "lane", "old", "empty", "committed", "aborted", "copy", "native", "native-abort", "native-commit"]
#: What is in a log, in order: the kind, how many records, and a number that distinguishes native producers.
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 4), st.integers(0, 2)), max_size=25)


@dataclass
class MixedLog:
    """The batches of one partition, and the decisions about them."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # first offset, end offset, bytes
    #: Offsets of the records that are to be seen, whatever is undecided before them.
    seen: set[int] = field(default_factory=set)
    #: Offsets of all records, but those of markers.
    written: set[int] = field(default_factory=set)
    aborted: list[Aborted] = field(default_factory=list)
    end: int = 0
    undecided: list[int] = field(default_factory=list)
    #: The epochs that were decided after all.
    verdicts: dict[int, Verdict] = field(
        default_factory=lambda: {COMMITTED: Verdict.COMMITTED, ABORTED: Verdict.ABORTED, UNDECIDED: Verdict.UNDECIDED}
    )
    #: The offset of each aborted transaction's marker.
    _markers: list[int] = field(default_factory=list)
    _open: dict[int, tuple[int, list[int]]] = field(default_factory=dict)

    # -- writing

    def add(self, kind: str, count: int = 1, number: int = 0, *, size: int = 5) -> int:
        """Append a batch; its first offset."""
        first = self.end
        data = self._data(kind, count, number, size)
        self.end += 1 if kind == "old" or kind.startswith("native-") else count
        self.batches.append((first, self.end, data))
        offsets = range(first, self.end)
        if kind != "empty" and not kind.startswith("native-"):
            self.written.update(offsets)
        if kind in ("plain", "lane", "old", "committed"):
            self.seen.update(offsets)
        elif kind == "undecided":
            self.undecided.append(first)
        elif kind == "native":
            self._open.setdefault(number, (first, []))[1].extend(offsets)
        elif kind.startswith("native-"):
            begun, written = self._open.pop(number, (first, []))
            if kind == "native-commit":
                self.seen.update(written)
            elif written:
                self.aborted.append(Aborted(number, begun))
                self._markers.append(first)
        return first

    def _data(self, kind: str, count: int, number: int, size: int) -> bytes:
        first = self.end
        if kind == "old":
            return entry(first, None, b"v" * size, timestamp=NOW)
        producer = {
            "lane": (LANE_PID, 0, 3),
            "committed": (TXN_PID, COMMITTED, 0),
            "aborted": (TXN_PID, ABORTED, 0),
            "undecided": (TXN_PID, UNDECIDED, 0),
            "copy": (TXN_PID, COMMITTED, COPIED),
        }.get(kind, (number, 0, 0) if kind.startswith("native") else (-1, -1, -1))
        records = [Record(n, NOW + n, None, b"%d:" % (first + n) + b"v" * size) for n in range(count)]
        is_marker = kind.startswith("native-")
        if is_marker:
            records = [Record(0, NOW, b"\0\0\0" + bytes([kind == "native-commit"]), bytes(6))]
        batch = build_batch(
            records,
            base_offset=first,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=-1 if is_marker else producer[2],
            is_transactional=kind.startswith("native"),
            is_control=is_marker,
            partition_leader_epoch=6,
        )
        if kind == "empty":
            batch = batch[:HEADER_SIZE]
            struct.pack_into(">i", batch, 8, HEADER_SIZE - 12)
            struct.pack_into(">i", batch, 57, 0)
        return bytes(batch)

    # -- as kproxy.txn.verdict.Decisions

    def verdict(self, producer_id: int, epoch: int) -> Verdict:
        assert producer_id == TXN_PID
        return self.verdicts[epoch]

    def is_other_copy(
        self, producer_id: int, epoch: int, topic: str, partition: int, base_sequence: int, base_offset: int
    ) -> bool:
        assert (producer_id, topic, partition) == (TXN_PID, "t", 0)
        assert self.verdicts[epoch] is Verdict.COMMITTED
        return base_sequence == COPIED

    def met(self, producer_id: int, topic: str, partition: int, offset: int) -> None:
        assert (producer_id, topic, partition) == (TXN_PID, "t", 0)
        assert offset in self.undecided

    # -- reading

    @property
    def native_lso(self) -> int:
        """Up to where a broker answers read_committed."""
        return min((begun for begun, _ in self._open.values()), default=self.end)

    @property
    def stable(self) -> int:
        """The last stable offset of a reader who knows kproxy's decisions."""
        undecided = [first for first in self.undecided if self.verdicts[UNDECIDED] is Verdict.UNDECIDED]
        return min([self.native_lso, *undecided])

    def read(self, offset: int, max_bytes: int = 1 << 30, *, committed: bool = True) -> bytes:
        """What a broker answers, to a read_committed reader or another; the last batch may be cut."""
        limit = self.native_lso if committed else self.end
        found = [data for _, end, data in self.batches if offset < end <= limit]
        whole = len(found[0]) if found else 0
        return b"".join(found)[: max(max_bytes, whole)]

    def aborted_from(self, offset: int) -> list[Aborted]:
        """A broker's list of aborted transactions: those that end at ``offset`` or later."""
        return [each for each, marker in zip(self.aborted, self._markers, strict=True) if marker >= offset]

    def visible(self, offset: int) -> list[int]:
        """The offsets that a reader from ``offset`` on should get, and no others."""
        undecided = self.verdicts[UNDECIDED]
        return sorted(
            n
            for n in self.seen | (self._undecided_offsets() if undecided is Verdict.COMMITTED else set())
            if offset <= n < self.stable
        )

    def _undecided_offsets(self) -> set[int]:
        return {n for first, end, _ in self.batches if first in self.undecided for n in range(first, end)}


def log_of(steps: Sequence[tuple[str, int, int]]) -> MixedLog:
    """A log with these batches."""
    log = MixedLog()
    for kind, count, number in steps:
        log.add(kind, count, number)
    return log
