"""A batch under an epoch that its client has raised, compared with the batches of earlier epochs in the log.

A client that raises its epoch, after a time-out of its own, sends again what it has no success for, under new numbers
and perhaps in other batches. It keeps the order. So the records that it repeats are the first ones that it sends, and
what follows a record which is not in the log is new.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kproxy.codec.sequence import advance
from kproxy.dedup.digest import Digest, Digests, have_same_time
from kproxy.dedup.kept.numbers import is_before


class OldRecord(NamedTuple):
    """A record that is in the log under an earlier epoch of its producer."""

    offset: int
    digest: Digest


class Matched(NamedTuple):
    """The first records of a batch that are in the log."""

    records: int = 0
    #: The offset of the first one; -1: they are not next to each other.
    offset: int = -1
    #: The offset after the last one: what the client repeats next comes later.
    end: int = -1


def is_copy(old: OldRecord, record: Digest) -> bool:
    """Whether a record is the one in the log: it has the same timestamp, which its client has given."""
    return have_same_time(old.digest, record) and old.digest.content == record.content


def count_written(records: Digests, first: int, last: int, log: Mapping[int, Digest]) -> int:
    """Return how many of a batch's first records, from sequence ``first`` up to ``last``, are in the log.

    ``log``: records of its epoch, by their sequences.
    """
    count = 0
    for at, record in enumerate(records):
        sequence = advance(first, at)
        old = log.get(sequence)
        if old is None or old.content != record.content or is_before(last, sequence):
            break
        count += 1
    return count


def align(records: Digests, log: Iterable[OldRecord]) -> Matched:
    """Return which of the first records of a batch are in the log.

    ``log``: in its order. A record there that the client does not repeat is one that it has a success for, or has
    given up.
    """
    found: list[int] = []
    left = iter(log)
    for record in records:
        offset = next((old.offset for old in left if is_copy(old, record)), None)
        if offset is None:
            break
        found.append(offset)
    if not found:
        return Matched()
    is_whole = found[-1] - found[0] == len(found) - 1
    return Matched(len(found), found[0] if is_whole else -1, found[-1] + 1)
