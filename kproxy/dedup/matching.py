"""Which records of a batch repeat records in doubt."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from kproxy.dedup.digest import Digest
from kproxy.dedup.entries import Entry
from kproxy.dedup.rules import Rules

#: A record of an entry: the entry, and the place among its records.
Place: TypeAlias = tuple[Entry, int]


def match(records: Sequence[Digest], entries: Sequence[Entry], rules: Rules, now: float) -> list[Place | None]:
    """For each record the one in doubt that it repeats, or None.

    ``entries``: oldest first, all read back. In order inside the batch, each record in doubt taken once, newest first;
    of equal ones those with the same time before those that have none.
    """
    places: list[Place] = [(entry, at) for entry in entries for at in range(len(entry.digests or ()))]
    index: dict[bytes, list[int]] = defaultdict(list)
    for number, (entry, at) in enumerate(places):
        assert entry.digests is not None
        index[entry.digests[at].content].append(number)
    found: list[Place | None] = [None] * len(records)
    way = -1 if rules.newest_first() else 1
    limit, used = len(places) if way < 0 else -1, set[int]()
    for number in range(len(records))[::way]:
        numbers = _beyond(index.get(records[number].content, []), limit, way, ordered=rules.within_batch())
        best = _best([n for n in numbers if n not in used], places, records[number], rules, now)
        if best is not None:
            found[number] = places[best]
            limit = best
            used.add(best)
    return found


def _beyond(numbers: list[int], limit: int, way: int, *, ordered: bool) -> list[int]:
    """Those on the right side of ``limit``, the first to be taken first."""
    if not ordered:
        return numbers[::way]
    cut = bisect_left(numbers, limit)
    return numbers[:cut][::-1] if way < 0 else [n for n in numbers[cut:] if n > limit]


def _best(numbers: list[int], places: list[Place], record: Digest, rules: Rules, now: float) -> int | None:
    second = None
    for number in numbers:
        entry, at = places[number]
        assert entry.digests is not None
        digest = entry.digests[at]
        if rules.times_agree(entry, digest, record, now):
            if digest.timestamp_ms == record.timestamp_ms:
                return number
            if second is None:
                second = number
    return second


def offset_of(offsets: Sequence[int], *, whole: bool) -> int:
    """The base offset to answer for matched records: -1 where they are not the whole batch, or not one run."""
    contiguous = offsets[-1] - offsets[0] == len(offsets) - 1
    return offsets[0] if whole and contiguous else -1


def group(places: Sequence[Place]) -> list[tuple[Entry, list[int]]]:
    """By entry, the places taken of it, in order."""
    grouped: dict[Entry, list[int]] = {}
    for entry, at in places:
        grouped.setdefault(entry, []).append(at)
    return [(entry, sorted(taken)) for entry, taken in grouped.items()]
