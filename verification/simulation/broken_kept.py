"""kproxy without one of its rules about epochs that clients raise: put in the place of rules."""

from collections.abc import Generator, Iterable
from typing import Any, Final

from kproxy.dedup.digest import Digest, Digests
from kproxy.dedup.kept import repair
from kproxy.dedup.kept.producers import KeptPartition
from kproxy.dedup.kept.raised import Matched, OldRecord, align

_SETTLE_FIRST: Final = repair._settle_first
_ALIGN: Final = align


def unfenced(batch: Any, partition: KeptPartition, *more: Any) -> Generator[Any, Any, Any]:
    """Nothing of earlier epochs can arrive any more."""
    partition.older_arrive = False
    return _SETTLE_FIRST(batch, partition, *more)


def continued(partition: KeptPartition) -> int:
    """The client has received what it was answered under an epoch that it has left."""
    return max(partition.older_from, partition.floor)


def equal(old: OldRecord, record: Digest) -> bool:
    """An equal record is a copy."""
    return old.digest.content == record.content


def whole(records: Digests, log: Iterable[OldRecord]) -> Matched:
    """A batch is in the log, or none of it."""
    found = _ALIGN(records, log)
    return found if found.records == len(records) else Matched()
