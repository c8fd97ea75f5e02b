"""The records of a batch that repeat unconfirmed records."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeAlias

from kproxy.budget import MATCHED_RECORD_STEPS, SEARCHED_RECORD_STEPS, RequestBudget
from kproxy.dedup.digest import UNTIMED, Digest, Digests
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import UnconfirmedBatch

#: A record of an entry: the entry, and the place among its records.
RecordInBatch: TypeAlias = tuple[UnconfirmedBatch, int]

#: Of equal records with other timestamps at most so many are compared. More are not retries, and could take long.
_MOST_LOOKED_AT = 1000


def match(
    records: Digests,
    entries: Sequence[UnconfirmedBatch],
    rules: Rules,
    now: float,
    budget: RequestBudget | None = None,
) -> list[RecordInBatch | None] | UnconfirmedBatch | None:
    """The unconfirmed record that each record repeats, or None. None for all where ``budget`` does not suffice.

    An entry if the records are those of it, all, in their order: a large batch is then matched at once.

    ``entries``: the newest last, all read back. Each unconfirmed record is matched once, newest first. Among equal
    records, one with the same timestamp comes first, then the order of their batch. A record is matched even if the
    order does not fit: records of one request may lie before and after the ones that they repeat, and of equal records
    this request may match another one than the request before it.
    """
    oldest, newest = min(records.times, default=UNTIMED), max(records.times, default=UNTIMED)
    # of these there may be a thousand times as many as of others, and nearly none has the time of a new record
    near = [
        entry for entry in entries if not entry.timed_only or (oldest <= entry.newest_ms and entry.oldest_ms <= newest)
    ]
    whole = partial(_is_whole, records, oldest, newest, rules, now)
    if near and whole(near[-1]):  # spares a look at all others
        return near[-1]
    # entries may hold far more records than the request: only those that equal one of these count
    keys = records.keys
    alike = [entry for entry in near if entry.digests is not None and entry.digests.has_any(keys)]
    if not alike:
        return [None] * len(records)
    searched = sum(len(entry.offsets) for entry in alike)
    if budget is not None and not budget.take_steps(searched * SEARCHED_RECORD_STEPS):
        return None
    if whole(alike[-1]):
        return alike[-1]
    numbers = {content: number for number, content in enumerate(records.contents())}
    found = _match_distinct(records, numbers, alike, rules, now) if len(numbers) == len(records) else None
    if found is not None:
        return found
    # equal ones are among them, or their order is another
    if budget is not None and not budget.take_steps(len(records) * MATCHED_RECORD_STEPS):
        return None
    return _Matching(records, alike, numbers.keys(), rules, now).match()


def _is_whole(records: Digests, oldest: int, newest: int, rules: Rules, now: float, entry: UnconfirmedBatch) -> bool:
    """Whether an entry has these records, which are of these times, in their order, and all of them repeat it."""
    if not records or entry.digests != records:
        return False
    timed = oldest > UNTIMED or (newest == UNTIMED and rules.times_agree(entry, records[0], records[0], now))
    return timed and rules.newest_first()


def _match_distinct(
    records: Digests, numbers: Mapping[bytes, int], entries: Sequence[UnconfirmedBatch], rules: Rules, now: float
) -> list[RecordInBatch | None] | None:
    """Match as ``match``, where no two records are equal; None if the order of a batch is not kept, or has equal ones.

    ``numbers``: the place of each record, by its content.

    Nearly every retry is like this, and may have many records: a look at each record of the entries has to do.
    """
    if not rules.newest_first():
        return None
    wanted, times = numbers.get, records.times
    found: list[RecordInBatch | None] = [None] * len(records)
    others: list[list[tuple[int, int]]] = []
    for entry in reversed(entries):
        rest: list[tuple[int, int]] = []
        last = -1
        digests = _digests_of(entry)
        for place, number in enumerate(map(wanted, digests.contents())):
            if number is None:
                continue
            if number <= last:
                return None
            last = number
            if found[number] is None and times[number] == digests.times[place] != UNTIMED:
                found[number] = entry, place
            else:
                rest.append((number, place))
        others.append(rest)
    for entry, rest in zip(reversed(entries), others, strict=True):
        digests = _digests_of(entry)
        for number, place in rest:
            if found[number] is None and rules.times_agree(entry, digests[place], records[number], now):
                found[number] = entry, place
    return found


def _digests_of(entry: UnconfirmedBatch) -> Digests:
    assert entry.digests is not None  # all are read back
    return entry.digests


class _Matching:
    def __init__(
        self,
        records: Digests,
        entries: Sequence[UnconfirmedBatch],
        wanted: Collection[bytes],
        rules: Rules,
        now: float,
    ) -> None:
        self._records = list(records)
        self._rules = rules
        self._now = now
        self._way = -1 if rules.newest_first() else 1
        self._digests: list[Digest] = []
        self._places: list[RecordInBatch] = []
        for entry in entries:
            digests = _digests_of(entry)
            for at, content in enumerate(digests.contents()):
                if content in wanted:
                    self._digests.append(Digest(content, digests.times[at]))
                    self._places.append((entry, at))
        #: The places that are not taken, in order.
        self._by_digest: dict[Digest, list[int]] = defaultdict(list)
        self._by_content: dict[bytes, list[int]] = defaultdict(list)
        for number, digest in enumerate(self._digests):
            self._by_digest[digest].append(number)
            self._by_content[digest.content].append(number)
        #: By entry, the place that was taken last.
        self._last: dict[UnconfirmedBatch, int] = {}

    def match(self) -> list[RecordInBatch | None]:
        records = self._records
        found: list[RecordInBatch | None] = [None] * len(records)
        for same_time in (True, False):  # first, lest one with another time takes what is surely another's
            for at in range(len(records))[:: self._way]:
                number = self._find(records[at], same_time) if found[at] is None else None
                if number is not None:
                    found[at] = self._take(number)
        return found

    def _find(self, record: Digest, same_time: bool) -> int | None:
        if not same_time:
            return self._best(self._by_content.get(record.content, []), record)
        if record.timestamp_ms == UNTIMED:
            return None
        return self._best(self._by_digest.get(record, []), record)

    def _best(self, numbers: list[int], record: Digest) -> int | None:
        second = None
        for number in islice(self._directed(numbers), _MOST_LOOKED_AT):
            if self._agrees(number, record):
                if self._fits(number):
                    return number
                if second is None and self._rules.across_order():
                    second = number
        return second

    def _directed(self, numbers: list[int]) -> Iterable[int]:
        return reversed(numbers) if self._way < 0 else numbers

    def _agrees(self, number: int, record: Digest) -> bool:
        return self._rules.times_agree(self._places[number][0], self._digests[number], record, self._now)

    def _fits(self, number: int) -> bool:
        """Whether a place lies on the right side of the one that was taken last from its entry."""
        last = self._last.get(self._places[number][0])
        return last is None or (number - last) * self._way > 0

    def _take(self, number: int) -> RecordInBatch:
        digest, place = self._digests[number], self._places[number]
        for numbers in (self._by_digest[digest], self._by_content[digest.content]):
            del numbers[bisect_left(numbers, number)]
        self._last[place[0]] = number
        return place


def offset_of(offsets: Sequence[int], *, whole: bool) -> int:
    """The base offset to answer for matched records: -1 where they are not the whole batch, or not one run."""
    one_run = all(offset == at for at, offset in enumerate(offsets, offsets[0]))
    return offsets[0] if whole and one_run else -1


def group(places: Sequence[RecordInBatch]) -> list[tuple[UnconfirmedBatch, list[int]]]:
    """The places taken of each entry, in order."""
    grouped: dict[UnconfirmedBatch, list[int]] = {}
    for entry, at in places:
        grouped.setdefault(entry, []).append(at)
    return [(entry, sorted(taken)) for entry, taken in grouped.items()]
