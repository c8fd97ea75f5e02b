"""A partition of a broker, as far as it concerns duplicates: what Kafka 4.3 was measured to do.

A repeat of one of the last five batches is a success with the first offset; a gap is OUT_OF_ORDER_SEQUENCE_NUMBER; an
older epoch is INVALID_PRODUCER_EPOCH; a newer one begins at 0; a producer id that is unknown may begin anywhere (before
KIP-360 only at 0: ``strict``). A marker fences all epochs below its own, also of a producer id that is unknown.
"""

from collections import deque
from dataclasses import dataclass, field

from kproxy.codec.batch import Record, build_batch, crc_ok, iter_records, read_header
from kproxy.codec.messages import ErrorCode

SPACE = 1 << 31
REMEMBERED = 5


NOW_S = 1_800_000_000.0
"""The time of these tests, in seconds since the epoch."""


def batch_of(number: int, count: int = 1, age_s: float = 0) -> memoryview:
    """A batch that no other one equals."""
    records = [Record(at, int((NOW_S - age_s) * 1000), b"%d" % number, b"%d" % at) for at in range(count)]
    return memoryview(build_batch(records))


def number_of(batch: bytes) -> int:
    """The number that ``batch_of`` was given."""
    return int(next(iter(iter_records(batch, max_decompressed_bytes=1 << 20))).key or b"-1")


@dataclass
class Written:
    """A batch in the log."""

    number: int
    offset: int
    epoch: int
    sequence: int


@dataclass
class State:
    """What a partition remembers of one producer id."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Partition:
    """One partition's log, and the producers that it knows."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.log: list[Written] = []
        self.end = 0
        self.producers: dict[int, State] = {}

    def append(self, batch: bytes) -> tuple[int, int]:
        """Error code and base offset, as the leader would answer."""
        assert crc_ok(batch, 0, len(batch))
        header = read_header(batch)
        first, last = header.base_sequence, (header.base_sequence + header.record_count - 1) % SPACE
        state = self.producers.get(header.producer_id)
        if state is not None and header.producer_epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if state is not None and header.producer_epoch == state.epoch:
            for known_first, known_last, offset in state.batches:
                if (known_first, known_last) == (first, last):
                    return ErrorCode.NONE, offset
            if first != (state.batches[-1][1] + 1 if state.batches else 0) % SPACE:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif state is not None and first != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif self.strict and first != 0:
            return ErrorCode.UNKNOWN_PRODUCER_ID, -1
        if state is None or state.epoch != header.producer_epoch:
            state = self.producers[header.producer_id] = State(header.producer_epoch)
        offset = self.end
        state.batches.append((first, last, offset))
        self.log.append(Written(number_of(batch), offset, header.producer_epoch, first))
        self.end += header.record_count
        return ErrorCode.NONE, offset

    def mark(self, producer_id: int, epoch: int) -> int:
        """The error code for a marker."""
        state = self.producers.get(producer_id)
        if state is not None and epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if state is None or state.epoch != epoch:
            self.producers[producer_id] = State(epoch)
        self.end += 1
        return ErrorCode.NONE

    def found(self) -> dict[tuple[int, int], int]:
        """Where which batch of the log is: (epoch, base sequence) -> base offset, of the one producer."""
        return {(written.epoch, written.sequence): written.offset for written in self.log}
