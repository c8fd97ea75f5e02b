"""The memory that unconfirmed batches may take, and what goes first where they take more.

Anyone who can connect can leave batches in doubt: a request, then a reset. So each peer has a share, and what all take
has a bound. Where a peer takes more, the records of its oldest batches are forgotten first: they are read back from the
log when a request has to be compared with them. Batches go only where that does not suffice, and are counted: their
retries are written.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from kproxy.dedup.identity import Identity
from kproxy.dedup.resting_ledger import RestingLedger
from kproxy.dedup.retry_ledger import LEDGER_BYTES, RetryLedger
from kproxy.dedup.unconfirmed import UnconfirmedBatch

#: Principal and host of a client; no host if clients are told apart by their client.id alone.
Peer: TypeAlias = tuple[str, str]

#: What unconfirmed batches may take in bytes: all of them, and those of one peer.
MAX_BYTES: Final = 64 << 20
MAX_PEER_BYTES: Final = 32 << 20
#: They are bounded when they have grown by so many bytes.
STEP_BYTES: Final = 2 << 20
#: Who takes too much is left with this share of what is allowed, so that not every batch leads to another look.
_LEFT: Final = 7 / 8


def peer_of(identity: Identity) -> Peer:
    """Return whose share a producer's batches count to."""
    return identity.principal, identity.host


def allowed(sizes: Collection[int]) -> int:
    """Return the bytes that each of some peers may take, by what they take: those that take little are left alone."""
    left = MAX_BYTES
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return min(share, MAX_PEER_BYTES)
        left -= size
    return MAX_PEER_BYTES


class Resting(NamedTuple):
    """The producers of one peer whose ledgers rest."""

    rows: Sequence[tuple[Identity, RestingLedger]]
    #: Returns the ledger of one, which rests no more; and forgets all of one.
    wake: Callable[[Identity], RetryLedger]
    forget: Callable[[Identity], None]

    @property
    def size(self) -> int:
        """The approximate bytes of memory that they take."""
        return sum(one.size for _, one in self.rows)


def shed(ledgers: Sequence[RetryLedger], resting: Resting, size: int, limit: int) -> int:
    """Brings the producers of one peer, which take ``size`` bytes, below ``limit``; the number of dropped batches.

    A ledger at rest has so few records that it does not help to forget them first.
    """
    surplus = size - int(limit * _LEFT)
    for ledger in ledgers:
        if surplus > 0:
            surplus -= ledger.forget_order()
    quiet = [ledger for ledger in ledgers if not ledger.compares]
    for _, entry in oldest_first(quiet, RetryLedger.recalled):
        if surplus <= 0:
            return 0
        surplus -= entry.forget_records()
    if surplus <= 0:
        return 0
    return _drop_oldest(ledgers, resting, surplus)


def _drop_oldest(ledgers: Sequence[RetryLedger], resting: Resting, surplus: int) -> int:
    """Drops batches by age until so many bytes are freed; how many. A ledger rests until its oldest batch goes."""
    number, dropped = count(), 0
    # what is freed with a batch of one that rested, in bytes; 0: as for others
    rows: list[tuple[float, int, int, RetryLedger | Identity, UnconfirmedBatch | None, int]] = [
        (entry.since, entry.serial, next(number), ledger, entry, 0)
        for ledger, entry in oldest_first(ledgers, RetryLedger.left_behind)
    ]
    rows += [(one.since, one.serial, next(number), who, None, one.size // one.batches) for who, one in resting.rows]
    several = {who for who, one in resting.rows if one.batches > 1}
    heapify(rows)
    while rows and surplus > 0:
        _, _, _, owner, entry, worth = heappop(rows)
        if isinstance(owner, RetryLedger):
            assert entry is not None
            owner.forget(entry)
            dropped += 1
            surplus -= worth or entry.size + (0 if owner.entries else LEDGER_BYTES)
        elif owner in several:
            ledger = resting.wake(owner)
            for one in ledger.left_behind():
                heappush(rows, (one.since, one.serial, next(number), ledger, one, worth))
        else:
            resting.forget(owner)
            dropped += 1
            surplus -= worth
    return dropped


def oldest_first(
    ledgers: Iterable[RetryLedger], batches: Callable[[RetryLedger], Iterable[UnconfirmedBatch]]
) -> list[tuple[RetryLedger, UnconfirmedBatch]]:
    """Return these batches of all ledgers, each with its ledger, by the time since when they are unconfirmed."""
    rows = [(ledger, entry) for ledger in ledgers for entry in batches(ledger)]
    rows.sort(key=lambda row: (row[1].since, row[1].serial))
    return rows
