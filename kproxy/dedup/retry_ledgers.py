"""The retry ledgers of all producers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

from kproxy.dedup.doubt_memory import STEP_BYTES, Peer, allowed, oldest_first, peer_of, shed
from kproxy.dedup.identity import Identity
from kproxy.dedup.listed import NOTHING, InDoubt, ListedBatch
from kproxy.dedup.origin import Origin
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.retry_ledger import Outside, RetryLedger
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import Wire

#: What batches may take in all that were found far back in logs (``timed_only``), in bytes.
#: Beyond it the oldest count as received.
MAX_FOUND_BYTES = 64 << 20


class RetryLedgers:
    """The producers of one process."""

    def __init__(
        self,
        rules: Rules,
        former: Callable[[Identity], Sequence[Suspect]],
        changed: Callable[[], None],
        look_for_ends: Callable[[float], None],
        elsewhere: Callable[[Identity], Sequence[Suspect]] = lambda _: (),
        recent: Callable[[Identity], Collection[int]] = lambda _: (),
        lists: Callable[[Identity], Mapping[str, InDoubt]] = lambda _: {},
    ) -> None:
        """See ``Outside``."""
        self._rules = rules
        serials = count(1).__next__
        self._outside = Outside(former, elsewhere, recent, lists, changed, look_for_ends, serials, self.grew)
        self._ledgers: dict[Identity, RetryLedger] = {}
        self.unconfirmed = 0
        #: About how many bytes of memory the unconfirmed batches took when they were last swept.
        self.size = 0
        #: By how many they have grown since they were last bounded; and batches dropped since the last sweep.
        self._growth = self._dropped = 0

    def join(
        self, identity: Identity, wire: Wire, since: float = 0.0, origin: Origin | None = None
    ) -> ProducerConnection:
        """A new connection of a producer, opened at ``since`` (seconds); ``origin``: what is known of it."""
        self.bound_growth()
        ledger = self._ledgers.get(identity)
        if ledger is None:
            ledger = RetryLedger(identity, self._rules.of(identity), self._outside)
            self._ledgers[identity] = ledger
        return ledger.join(wire, since, origin or Origin())

    def in_doubt(self, identity: Identity, now: float) -> Sequence[ListedBatch]:
        """Batches that another process would have to compare with the requests that a producer sends there."""
        ledger = self._ledgers.get(identity)
        if ledger is None:
            return NOTHING
        ledger.take_lists(now)  # what a former kproxy listed has to be in the list that replaces it
        return ledger.in_doubt(now)

    def in_question(self) -> list[Identity]:
        """The producers of which a batch may be in doubt."""
        return [identity for identity, ledger in self._ledgers.items() if ledger.may_be_in_doubt]

    def sweep(self, now: float) -> int:
        """Forgets what is too old to matter; the number of entries that were dropped for want of room."""
        for identity, ledger in list(self._ledgers.items()):
            ledger.expire(now)
            if ledger.idle:
                del self._ledgers[identity]
        self.size = self._bound_found() + self._bound()
        self.unconfirmed = sum(ledger.count for ledger in self._ledgers.values())
        dropped, self._dropped = self._dropped, 0
        return dropped

    def _bound(self) -> int:
        """Has who takes too much memory take less; the bytes that are left, without what was found in logs."""
        self._growth = 0
        peers: dict[Peer, list[RetryLedger]] = {}
        for identity, ledger in self._ledgers.items():
            peers.setdefault(peer_of(identity), []).append(ledger)
        sizes = {peer: sum(ledger.size for ledger in ledgers) for peer, ledgers in peers.items()}
        limit = allowed(sizes.values())
        for peer, size in sizes.items():
            if size > limit:
                self._dropped += shed(peers[peer], size, limit)
                sizes[peer] = sum(ledger.size for ledger in peers[peer])
        return sum(sizes.values())

    def grew(self, size: int) -> None:
        """Records that unconfirmed batches take so many bytes more."""
        self._growth += size

    def bound_growth(self) -> None:
        """Bounds them, if they have grown by much since the last time."""
        if self._growth > STEP_BYTES:
            self._bound()

    def counts(self) -> dict[Identity, int]:
        """How many batches of each producer are unconfirmed, where there are some."""
        return {identity: ledger.count for identity, ledger in self._ledgers.items() if ledger.count}

    def _bound_found(self) -> int:
        """Drops the oldest of what was found in logs where that takes too much; the bytes that are left."""
        found = oldest_first(self._ledgers.values(), RetryLedger.found)
        size = sum(entry.size for _, entry in found)
        for ledger, entry in found:
            if size <= MAX_FOUND_BYTES:
                break
            size -= entry.size
            self._dropped += 1
            ledger.forget(entry)
        return size
