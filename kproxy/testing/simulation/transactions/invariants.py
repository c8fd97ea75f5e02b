"""What must hold of transactions, named; most of it is checked when a run is over, against what readers are shown."""

from collections import Counter
from collections.abc import Iterator, Mapping

from kproxy.testing.simulation.transactions.history import Claimed, TransactionHistory

LOST = "no committed record is lost"
TORN = "a transaction is whole or not at all"
ABORTED = "nothing aborted is ever shown"
OUTCOME = "what was told is what holds"
DUPLICATE = "no record twice in a committed transaction"
ORDER = "order is kept per partition and producer"
ZOMBIE = "what a fenced producer writes is never shown"
FENCED = "a fenced producer has no success"
FALLS = "the last stable offset never falls"
STUCK = "the last stable offset does not stay behind for ever"
FILTER = "committed is all without what is not committed"
SKIPPED = "readers are shown everything, in order"
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
    FALLS,
    STUCK,
    FILTER,
    SKIPPED,
    CAUSE,
    DONE,
)

#: Values by offset, by partition.
Shown = Mapping[int, Mapping[int, bytes]]


def broken(
    history: TransactionHistory, committed: Shown, everything: Shown, readers: list[Shown]
) -> Iterator[tuple[str, str]]:
    """The invariants that are broken, and how: the gravest first.

    ``committed`` and ``everything`` is what new readers of both isolation levels are shown when all has come to rest;
    ``readers`` those of committed data that have read all the while.
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
        for reader in readers:
            yield from _reader(place, log, reader[place])
    if history.broken is not None:
        yield history.broken


def _one(claimed: Claimed, counts: Counter[tuple[int, bytes]]) -> Iterator[tuple[str, str]]:
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


def _order(history: TransactionHistory, place: int, log: Mapping[int, bytes]) -> Iterator[tuple[str, str]]:
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
) -> Iterator[tuple[str, str]]:
    """Of each transaction's copies one may be shown: so it is asked where each record that is shown stands."""
    for offset, value in log.items():
        if everything.get(offset) != value:
            yield FILTER, f"{value.decode()} is shown at {place}:{offset}, where {everything.get(offset)!r} stands"
    shown = set(log.values())
    for value in everything.values():
        claimed = history.by_value.get(value)
        if value not in shown and claimed is not None and claimed.told is True:
            yield FILTER, f"{value.decode()} was committed and is left out"


def _reader(place: int, log: Mapping[int, bytes], seen: Mapping[int, bytes]) -> Iterator[tuple[str, str]]:
    if seen == log and list(seen) == sorted(seen):
        return
    for offset, value in seen.items():
        if log.get(offset) != value:
            yield ABORTED, f"{value.decode()} was shown at {place}:{offset}"
    yield SKIPPED, f"a reader of {place} was shown {len(seen)} records of {len(log)}, in the order {list(seen)[:20]}"
