"""The steps of a repair (``kproxy.dedup.kept.repair``), their results, and the batch that it is about."""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from kproxy.codec.batch_header import BatchHeader
from kproxy.codec.messages import ErrorCode
from kproxy.codec.sequence import advance
from kproxy.dedup.kept.numbers import is_before
from kproxy.dedup.kept.producers import Missing
from kproxy.dedup.kept.raised import Matched

#: Errors of a broker where a producer's numbers are not the ones that it expects.
REPAIRED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
#: A client sends a batch again that was refused so, after those that it sent before: nothing of it is in the log.
SEND_AGAIN: Final = ErrorCode.NOT_ENOUGH_REPLICAS
#: A batch that its client had left out comes after others that followed it; no client sends it again.
LEFT_OUT: Final = ErrorCode.INVALID_RECORD
#: Of a batch whose client has raised its epoch since: it waits for no response to it.
OLD_EPOCH: Final = ErrorCode.INVALID_PRODUCER_EPOCH
#: The cause of a success for a batch that is in the log under an earlier epoch.
FOUND_OLDER: Final = "found_older"


class KeptBatch(NamedTuple):
    """A batch of a kept producer, as its client has numbered it."""

    producer_id: int
    epoch: int
    sequence: int
    records: int
    #: When it came (``KeptPartition.arrivals``).
    arrival: int = 0

    @property
    def last(self) -> int:
        """The sequence of its last record."""
        return advance(self.sequence, self.records - 1)


class Look(NamedTuple):
    """Ask the partition's leader what it remembers of these producer ids; a ``LeaderView``."""

    producer_ids: tuple[int, ...]


class Remembered(NamedTuple):
    """A broker's state of a producer on a partition; -1 as ``last``: nothing written in this epoch."""

    epoch: int
    last: int


class LeaderView(NamedTuple):
    """The states of those producers that a leader remembers, by id."""

    states: Mapping[int, Remembered]
    #: The end of the log before they were asked for: a batch of any other one is after it, or was forgotten.
    end: int = 0


class Find(NamedTuple):
    """Search the log for the batch, written under one of these ids at ``since`` or later; its offset, None: not found.

    -1: only its last records were written under its numbers: the others are there under an earlier epoch or in another
    batch, or were left out by the client.
    """

    producer_ids: tuple[int, ...]
    since: int = 0


class FindRecords(NamedTuple):
    """Search the log for the batch's first records, at ``since`` or later; a ``FoundRecords``."""

    producer_ids: tuple[int, ...]
    #: Under their own numbers, up to this sequence.
    last: int
    since: int = 0
    #: The producer's last batch is not before this offset.
    floor: int = 0
    seen: LeaderView = LeaderView({})


class FoundRecords(NamedTuple):
    """The first records of a batch that are in the log."""

    #: The number of those that are there under their own numbers.
    own: int
    #: Those that are there under any numbers, of an earlier epoch or of this one.
    older: Matched


class Check(NamedTuple):
    """Read the batch at an offset; whether what was written there is lost: neither deleted by retention, nor there.

    A log that was cut and written again may have another batch of the same producer there.
    """

    offset: int
    producer_ids: tuple[int, ...]
    #: Of the batch.
    epoch: int
    #: The sequence of the record at the offset, -1: it is not known; and one that is not before the batch's last.
    sequence: int = -1
    last: int = -1

    def is_met(self, header: BatchHeader) -> bool:
        """Whether a batch at the offset is the one that was written there."""
        if header.producer_id not in self.producer_ids or header.is_control:
            return False
        if self.sequence < 0:
            return True
        at = advance(header.base_sequence, self.offset - header.base_offset)
        end = advance(header.base_sequence, header.last_offset_delta)
        return (header.producer_epoch, at) == (self.epoch, self.sequence) and not is_before(end, self.last)


class FenceOff(NamedTuple):
    """Fence a producer id below an epoch, so that no copy of what was sent under it is written any more."""

    producer_id: int
    epoch: int


class Send(NamedTuple):
    """Send the batch to the partition's leader under this id, without its first records; a ``Told``."""

    producer_id: int
    first: int = 0


class Told(NamedTuple):
    """The response about a batch, to the client or to kproxy."""

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    #: The acknowledged records that are missing.
    lost: Missing | None = None
    #: The cause, for the counters.
    cause: str = ""
    #: Where all its records are in the log under earlier epochs, the offset after the last one; -1: they are not.
    end: int = -1


Step: TypeAlias = Look | Find | FindRecords | Check | FenceOff | Send
