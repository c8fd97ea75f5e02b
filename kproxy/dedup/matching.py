"""Which records of a batch repeat records in doubt."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kproxy.dedup.digest import Digest
from kproxy.dedup.entries import Entry
from kproxy.dedup.rules import Rules

#: A record of an entry: the entry, and the place among its records.
Place: TypeAlias = tuple[Entry, int]


def match(records: Sequence[Digest], entries: Sequence[Entry], rules: Rules, now: float) -> list[Place | None]:
    """For each record the one in doubt that it repeats, or None.

    ``entries``: oldest first, all read back. In order inside each of them, but not from one to another: what was
    written for one request may lie in the log before and behind what it repeated. Each record in doubt is taken once,
    newest first; of equal ones those with the same time before those that have none.
    """
    places: list[Place] = [(entry, at) for entry in entries for at in range(len(entry.digests or ()))]
    #: By content, the places that are not taken, in order.
    index: dict[bytes, list[int]] = defaultdict(list)
    for number, (entry, at) in enumerate(places):
        assert entry.digests is not None
        index[entry.digests[at].content].append(number)
    found: list[Place | None] = [None] * len(records)
    way = -1 if rules.newest_first() else 1
    last: dict[Entry, int] = {}
    for number in range(len(records))[::way]:
        numbers = index.get(records[number].content)
        if not numbers:
            continue
        allowed = (n for n in numbers[::way] if _in_order(last.get(places[n][0]), n, way, rules))
        best = _best(allowed, places, records[number], rules, now)
        if best is not None:
            found[number] = places[best]
            last[places[best][0]] = best
            del numbers[bisect_left(numbers, best)]
    return found


def _in_order(last: int | None, number: int, way: int, rules: Rules) -> bool:
    """Whether a place lies on the right side of the one that was taken last from its entry."""
    return last is None or (number - last) * way > 0 or not rules.within_batch()


def _best(numbers: Iterable[int], places: list[Place], record: Digest, rules: Rules, now: float) -> int | None:
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
