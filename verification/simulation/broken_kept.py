"""kproxy without one of its rules about epochs that clients raise: put in the place of rules."""

from collections.abc import Generator, Iterable
from typing import Any, Final

import trio

from kproxy.dedup.digest import Digest, Digests
from kproxy.dedup.kept.ids import successor
from kproxy.dedup.kept.producers import KeptPartition
from kproxy.dedup.kept.raised import Matched, OldRecord, align
from kproxy.dedup.kept.steps import FenceOff, KeptBatch
from kproxy.net.log_reading import LogReading

_ALIGN: Final = align


def unfenced(_: Any, partition: KeptPartition) -> Generator[Any, Any, None]:
    """Nothing of earlier epochs can arrive any more."""
    partition.fenced = partition.generation
    yield from ()


def fenced_in_use(batch: KeptBatch, partition: KeptPartition) -> Generator[Any, Any, None]:
    """Nothing was sent under a later id than the one in use."""
    yield FenceOff(successor(batch.producer_id, partition.generation), batch.epoch)
    partition.fences(batch.epoch, partition.generation + 1)


def continued(partition: KeptPartition) -> int:
    """The client has received what it was answered under an epoch that it has left."""
    return max(partition.older_from, partition.floor)


def equal(old: OldRecord, record: Digest) -> bool:
    """An equal record is a copy."""
    return old.digest.content == record.content


def as_shown(max_decompressed_bytes: int, limiter: trio.CapacityLimiter, **_: Any) -> LogReading:
    """The records of a log have the timestamps that a consumer sees."""
    return LogReading(max_decompressed_bytes, limiter)


def whole(records: Digests, log: Iterable[OldRecord]) -> Matched:
    """A batch is in the log, or none of it."""
    found = _ALIGN(records, log)
    return found if found.records == len(records) else Matched()
