"""A retry ledger at rest: its state in a few bytes, from which it is rebuilt when it is needed.

Anyone who can connect can leave a ledger: a ``client.id``, a batch, and the end of the connection. So this is the rule
of what is kept of a producer without a connection:

1. A ledger is *forgotten* as soon as nothing of it can matter to a request any more (``RetryLedger.idle``): none of its
   connections is open or still read, no batch is unconfirmed or open, and neither a lane to be fenced nor refused
   records nor the list of another process are remembered. A client that closed its connection in good order, and had
   acknowledged all responses, leaves only batches that expire after ``retry.window.ms``; nothing is kept after that.
2. Until then it *rests* if only unconfirmed batches are left of it (``packed``), and these take at most ``MOST_BYTES``.
   All that decides about a retry survives: places, records, times, and what is known of their connections.
3. What rests counts to the bounds of ``doubt_memory``, as all ledgers do.
"""

from array import array
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from kproxy.codec.packed import pack, unpack
from kproxy.dedup.digest import Digests
from kproxy.dedup.identity import Identity
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.origin import ELSEWHERE, Origin, Software
from kproxy.dedup.retry_ledger import LastUse, Outside, RetryLedger
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import Stamp, UnconfirmedBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A larger state is not packed: of such ledgers the records are forgotten first where memory is short.
MOST_BYTES: Final = 2048
#: A ledger rests when its newest batch has been unconfirmed for so long (s): most clients reconnect sooner.
REST_AFTER_S: Final = 1.0
#: What a producer with a ledger at rest takes beside the state, its lane at rest included, in bytes; measured.
RESTING_BYTES: Final = 1200
#: An entry, or a record of it, takes more.
_RECORD_BYTES: Final = 32

#: Attributes of a ledger: those that are kept as they are, and those that are empty at rest.
PLAIN: Final = (
    "depth",
    "warned",
    "_clean_window",
    "requests",
    "_awaited",
    "_uses_checked_at",
    "_recovered_to",
    "_recent_at",
    "_outlived_to",
)
EMPTY: Final = (
    "members",
    "_calm",
    "_settled",
    "_open",
    "_suspects",
    "_recovered",
    "_shared_looks",
    "_missing",
    "_draining",
    "refused",
    "_awaited_records",
)
#: Fields of an entry that are kept in another form, or built when they are asked for.
_ENTRY_PARTS: Final = ("key", "stamp", "digests", "offsets", "origin")
_ENTRY_PLAIN: Final = tuple(one.name for one in fields(UnconfirmedBatch) if one.name not in _ENTRY_PARTS)
_ORIGIN_PLAIN: Final = tuple(one.name for one in fields(Origin) if one.name != "software")

_state_of = attrgetter(*PLAIN)
_empty_of = attrgetter(*EMPTY)
_entry_of = attrgetter(*_ENTRY_PLAIN)
_stamp_of = attrgetter(*(one.name for one in fields(Stamp)))
_origin_of = attrgetter(*_ORIGIN_PLAIN)


class RestingLedger:
    """The state of one ledger, and what has to be known of it while it rests."""

    __slots__ = ("batches", "count", "cuts", "newest", "packed", "serial", "since")

    def __init__(self, ledger: RetryLedger, packed: bytes, cuts: int) -> None:
        """``packed``: as the function of this name returns it; ``cuts``: how many cuts of logs it knows of."""
        self.packed = packed
        self.cuts = cuts
        #: Time (s) and serial number of its oldest batch.
        self.since, self.serial = min((entry.since, entry.serial) for entry in ledger.left_behind())
        #: Time (s) of its newest batch: when that has expired, the ledger is forgotten.
        self.newest = max(entry.since for entry in ledger.left_behind())
        #: As ``RetryLedger`` counts them, and all.
        self.count, self.batches = ledger.count, ledger.held

    @property
    def size(self) -> int:
        """The approximate bytes of memory that it takes."""
        return RESTING_BYTES + len(self.packed)

    def rebuild(self, identity: Identity, rules: Rules, outside: Outside) -> RetryLedger:
        """The ledger as it was."""
        ledger = RetryLedger(identity, rules, outside)
        state, keys, origins, uses, entries = unpack(self.packed)
        for name, value in zip(PLAIN, state, strict=True):
            setattr(ledger, name, value)
        known = [_origin(row) for row in origins]
        for at, newest, on, serial, idle in uses:
            ledger._uses[keys[at]] = LastUse(newest, None if on is None else known[on], serial, idle)
        for at, stamp, on, digests, offsets, plain in entries:
            entry = UnconfirmedBatch(keys[at], Stamp(*stamp), 0, False, False, 0.0, origin=known[on])
            entry.digests = None if digests is None else Digests(digests[0], array("q", digests[1]))
            entry.offsets = array("q", offsets)
            for name, value in zip(_ENTRY_PLAIN, plain, strict=True):
                setattr(entry, name, value)
            ledger.entries.setdefault(entry.key, []).append(entry)
        return ledger


def packed(ledger: RetryLedger, now: float) -> bytes | None:
    """The state of a ledger that may rest; None if it may not. ``now``: in seconds."""
    if not ledger.entries or any(_empty_of(ledger)) or ledger._checks.keys():
        return None
    lists = (listed for _, listed in ledger._taken_lists.values())  # those without a batch say nothing
    entries = [entry for found in ledger.entries.values() for entry in found]
    if not entries or any(lists) or any(ledger.found()):
        return None
    records = sum(len(entry.offsets) + len(entry.only) for entry in entries)
    if (
        records + len(entries) > MOST_BYTES // _RECORD_BYTES
        or max(entry.since for entry in entries) > now - REST_AFTER_S
    ):
        return None
    keys: dict[TrackKey, int] = {}
    origins: dict[Origin, int] = {}
    uses = [_use_row(key, use, keys, origins) for key, use in ledger._uses.items()]
    batches = [_entry_row(entry, keys, origins) for entry in entries]
    known = [(None if one is ELSEWHERE else (tuple(one.software), _origin_of(one))) for one in origins]
    data = pack((_state_of(ledger), list(keys), known, uses, batches))
    return data if len(data) <= MOST_BYTES else None


def _use_row(key: TrackKey, use: LastUse, keys: dict[TrackKey, int], origins: dict[Origin, int]) -> tuple[Any, ...]:
    last = None if use.last is None else _number(use.last, origins)
    return _number(key, keys), use.newest, last, use.serial, use.idle


def _entry_row(entry: UnconfirmedBatch, keys: dict[TrackKey, int], origins: dict[Origin, int]) -> tuple[Any, ...]:
    digests = None if entry.digests is None else (entry.digests.block, entry.digests.times.tobytes())
    parts = _stamp_of(entry.stamp), _number(entry.origin, origins), digests, entry.offsets.tobytes()
    return _number(entry.key, keys), *parts, _entry_of(entry)


def _number(item: Any, known: dict[Any, int]) -> int:
    return known.setdefault(item, len(known))


def _origin(row: "tuple[tuple[str, str], Iterable[Any]] | None") -> Origin:
    if row is None:
        return ELSEWHERE
    origin = Origin(Software(*row[0]))
    for name, value in zip(_ORIGIN_PLAIN, row[1], strict=True):
        setattr(origin, name, value)
    return origin
