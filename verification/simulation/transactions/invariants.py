"""The invariants of transactions, named; most are checked after a run, against the records that readers are shown."""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from verification.simulation.transactions.history import Claimed, Input, TransactionHistory

LOST = "no committed record is lost"
TORN = "a transaction is whole or not at all"
ABORTED = "nothing aborted is ever shown"
OUTCOME = "the outcome that was reported holds"
DUPLICATE = "no record twice in a committed transaction"
ORDER = "order is kept per partition and producer"
ZOMBIE = "what a fenced producer writes is never shown"
FENCED = "a fenced producer has no success"
IDENTITY = "no producer is given another's identity"
TIMEOUT = "a transaction's time-out holds"
FALLS = "the last stable offset never falls"
STUCK = "the last stable offset reaches the end at last"
FILTER = "committed is all without what is not committed"
SKIPPED = "readers are shown everything, in order"
STABLE = "nothing undecided lies below the last stable offset"
MOVED = "a group moves if and only if the data show"
INPUT = "an input is in one committed transaction at most"
OFFSETS = "offsets answered hold the record"
CAUSE = "no fatal error without a cause"
DONE = "every producer comes to an end"

INVARIANTS = (
    LOST,
    TORN,
    ABORTED,
    OUTCOME,
    DUPLICATE,
    ORDER,
    ZOMBIE,
    FENCED,
    IDENTITY,
    TIMEOUT,
    FALLS,
    STUCK,
    FILTER,
    SKIPPED,
    STABLE,
    MOVED,
    INPUT,
    OFFSETS,
    CAUSE,
    DONE,
)

#: Values by offset, by partition.
Shown = Mapping[int, Mapping[int, bytes]]
Findings = Iterator[tuple[str, str]]
"""Invariants that are broken, and how."""


def broken(
    history: TransactionHistory,
    committed: Shown,
    everything: Shown,
    readers: list[Shown],
    positions: Mapping[str, int] = MappingProxyType({}),
) -> Findings:
    """The invariants that are broken, and how: the gravest first.

    ``committed`` and ``everything`` is what new readers of both isolation levels are shown when all has come to rest;
    ``readers`` those of committed data that have read all the while; ``positions`` those of groups, 0 for none.
    """
    counts = Counter((place, value) for place, log in committed.items() for value in log.values())
    for claimed in history.transactions:
        yield from _one(claimed, counts)
    for (_, value), count in counts.items():
        if count > 1:
            yield DUPLICATE, f"{value.decode()} is shown {count} times"
        if value in history.by_value and value in history.by_value[value].zombies:
            yield ZOMBIE, f"{value.decode()} was sent when a newer producer had the id"
    for place, log in committed.items():
        yield from _order(history, place, log)
        yield from _filter(history, place, log, everything[place])
        yield from _stable(history, place, log)
        for reader in readers:
            yield from _reader(place, log, reader[place])
    yield from _offsets(history, everything)
    for group, position in positions.items():
        yield from _group(history, group, position, counts)
    yield from _inputs(history, counts)
    if history.broken is not None:
        yield history.broken


def _one(claimed: Claimed, counts: Counter[tuple[int, bytes]]) -> Findings:
    sent = [(place, value) for place, values in claimed.values.items() for value in values]
    shown = [value for place, value in sent if counts[place, value]]
    what = f"{claimed.name}: {len(shown)} of {len(sent)} records are shown"
    if claimed.told is True:
        if sent and not shown:
            yield OUTCOME, f"{what}, told: committed"
        elif len(shown) < len(sent):
            yield LOST, f"{what}, told: committed"
    elif shown and not claimed.asked:
        yield ABORTED, f"{what}, and nobody asked for a commit"
    elif shown and claimed.told is False:
        yield OUTCOME, f"{what}, told: aborted"
    elif shown and len(shown) < len(sent):
        yield TORN, what


def _order(history: TransactionHistory, place: int, log: Mapping[int, bytes]) -> Findings:
    at = {value: offset for offset, value in log.items()}
    last: dict[int, tuple[int, bytes]] = {}
    for claimed in history.transactions:
        for value in claimed.values.get(place, ()):
            if value not in at:
                continue
            before = last.get(claimed.producer)
            if before is not None and at[value] < before[0]:
                yield ORDER, f"{value.decode()} is before {before[1].decode()}"
            last[claimed.producer] = (at[value], value)


def _filter(
    history: TransactionHistory, place: int, log: Mapping[int, bytes], everything: Mapping[int, bytes]
) -> Findings:
    """Checks each shown record at its offset, since one of a batch's copies may be shown."""
    for offset, value in log.items():
        if everything.get(offset) != value:
            yield FILTER, f"{value.decode()} is shown at {place}:{offset}, where {everything.get(offset)!r} stands"
    shown = set(log.values())
    for value in everything.values():
        claimed = history.by_value.get(value)
        if value not in shown and claimed is not None and claimed.told is True:
            yield FILTER, f"{value.decode()} was committed and is left out"


def _reader(place: int, log: Mapping[int, bytes], seen: Mapping[int, bytes]) -> Findings:
    if seen == log and list(seen) == sorted(seen):
        return
    for offset, value in seen.items():
        if log.get(offset) != value:
            yield ABORTED, f"{value.decode()} was shown at {place}:{offset}"
    yield SKIPPED, f"a reader of {place} was shown {len(seen)} records of {len(log)}, in the order {list(seen)[:20]}"


def _stable(history: TransactionHistory, place: int, log: Mapping[int, bytes]) -> Findings:
    """Checks that committed data were undecided at least until their producer asked for the commit."""
    for offset, value in log.items():
        claimed = history.by_value.get(value)
        before = claimed.stable_before.get(place, 0) if claimed is not None else 0
        if offset < before:
            yield STABLE, f"{value.decode()} at {place}:{offset} was undecided when {before} was reported"


def _offsets(history: TransactionHistory, everything: Shown) -> Findings:
    for place, offset, value in history.acks:
        found = everything[place].get(offset)
        if found != value:
            yield OFFSETS, f"{value.decode()} was said to be at {place}:{offset}, where {found!r} stands"


def _is_shown(claimed: Claimed, counts: Counter[tuple[int, bytes]]) -> bool | None:
    """Whether a transaction's data show; of one without data what was reported."""
    if not any(claimed.values.values()):
        return claimed.told if claimed.asked else False
    return any(counts[place, value] for place, values in claimed.values.items() for value in values)


def _group(history: TransactionHistory, group: str, position: int, counts: Counter[tuple[int, bytes]]) -> Findings:
    """Checks that a group is where the last of its transactions that shows has moved it."""
    moves = [(one.input.position, one) for one in history.transactions if one.input and one.input.group == group]
    least = max((at for at, one in moves if _is_shown(one, counts)), default=0)
    if position < least:
        yield MOVED, f"{group} is at {position}, and what moved it to {least} is shown"
    there = [one for at, one in moves if at == position]
    if there and all(_is_shown(one, counts) is False for one in there):
        yield MOVED, f"{group} is at {position}, and nothing of {' or '.join(one.name for one in there)} is shown"


def _inputs(history: TransactionHistory, counts: Counter[tuple[int, bytes]]) -> Findings:
    by_input: dict[Input, list[str]] = {}
    for claimed in history.transactions:
        if claimed.input is not None and _is_shown(claimed, counts):
            by_input.setdefault(claimed.input, []).append(claimed.name)
    for what, names in by_input.items():
        if len(names) > 1:
            yield INPUT, f"{what.position} of {what.group} is in {' and '.join(names)}"
