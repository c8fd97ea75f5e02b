"""How a legacy producer behaves, and what it puts on the wire for that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.message_formats import from_v2
from kproxy.codec.topic_partition import TopicPartition

MAGICS: Final = (0, 0, 1, 2)
"""The record format by version of Produce."""
EQUAL: Final = "all alike"
"""The value of all records of those who send equal ones."""
_UNLIMITED: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Habits:
    """How a producer behaves.

    ``places`` are the partitions that it writes to, each round one batch to each, those of one leader in one request.
    ``depth`` requests are sent before a response is read. ``regroup``: retries are batched differently, at random.
    ``equal``: all records have the same bytes and only their timestamps differ (magic 0 has none).
    """

    name: str
    places: tuple[TopicPartition, ...]
    version: int = 2
    codec: int = 0
    acks: int = -1
    depth: int = 1
    batch_records: int = 4
    regroup: bool = False
    equal: bool = False
    pause_s: float = 0.1
    timeout_ms: int = 4000
    backoff_s: float = 0.1
    delivery_s: float = 60.0

    @property
    def magic(self) -> int:
        """The record format that goes with the version."""
        return MAGICS[self.version]


@dataclass(slots=True)
class PendingRecord:
    """A record whose outcome is open; its timestamp in ms stays what it was when it is sent again."""

    place: TopicPartition
    value: str
    timestamp: int
    invoke: int


def record_set(batch: Sequence[PendingRecord], magic: int, codec: int) -> bytes:
    """Write records in the format of their time: a message set of magic 0 or 1, or a batch of magic 2."""
    records = [Record(index, entry.timestamp, None, entry.value.encode()) for index, entry in enumerate(batch)]
    modern = bytes(build_batch(records, codec=codec))
    if magic == 2:
        return modern
    old = from_v2(modern, magic=magic, first_offset=0, max_decompressed_bytes=_UNLIMITED, max_bytes=_UNLIMITED)
    return bytes(old.data)
