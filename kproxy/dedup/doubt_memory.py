"""How much memory unconfirmed batches may take, and what goes first where they take more.

Anyone who can connect can leave batches in doubt: a request, then a reset. So each peer has a share, and what all take
has a bound. Where a peer takes more, the records of its oldest batches are forgotten first: they are read back from the
log when a request has to be compared with them. Batches go only where that does not suffice, and are counted: their
retries are written.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

from kproxy.dedup.identity import Identity
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


def shed(ledgers: Sequence[RetryLedger], size: int, limit: int) -> int:
    """Brings the producers of one peer, which take ``size`` bytes, below ``limit``; the number of dropped batches."""
    surplus = size - int(limit * _LEFT)
    for ledger in ledgers:
        if surplus > 0:
            surplus -= ledger.forget_order()
    resting = [ledger for ledger in ledgers if not ledger.compares]
    for _, entry in oldest_first(resting, RetryLedger.recalled):
        if surplus <= 0:
            return 0
        surplus -= entry.forget_records()
    dropped = 0
    for ledger, entry in oldest_first(ledgers, RetryLedger.left_behind):
        if surplus <= 0:
            break
        ledger.forget(entry)
        dropped += 1
        surplus -= entry.size + (0 if ledger.entries else LEDGER_BYTES)
    return dropped


def oldest_first(
    ledgers: Iterable[RetryLedger], batches: Callable[[RetryLedger], Iterable[UnconfirmedBatch]]
) -> list[tuple[RetryLedger, UnconfirmedBatch]]:
    """Return these batches of all ledgers, each with its ledger, by the time since when they are unconfirmed."""
    rows = [(ledger, entry) for ledger in ledgers for entry in batches(ledger)]
    rows.sort(key=lambda row: (row[1].since, row[1].serial))
    return rows
