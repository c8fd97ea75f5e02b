"""The retry ledgers of all producers."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, count, islice

from kproxy.dedup.doubt_memory import STEP_BYTES, Peer, Resting, allowed, oldest_first, peer_of, shed
from kproxy.dedup.identity import Identity
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.listed import NOTHING, InDoubt, ListedBatch
from kproxy.dedup.origin import Origin
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.resting_ledger import RestingLedger, packed
from kproxy.dedup.retry_ledger import Outside, RetryLedger
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import Wire

#: What batches may take in all that were found far back in logs (``timed_only``), in bytes.
#: Beyond it the oldest count as received.
MAX_FOUND_BYTES = 64 << 20
#: So many ledgers are put to rest at a time: clients wait meanwhile.
MOST_PACKED = 1000
#: Logs that were cut lately, which ledgers at rest do not know of: each about 200 bytes and the name of its topic.
_MOST_CUTS = 10_000


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
        with_lists: Callable[[], Collection[Identity]] | None = None,
    ) -> None:
        """See ``Outside``. ``with_lists``: the producers of which there may be lists; None: any."""
        self._rules = rules
        self._with_lists = with_lists
        serials = count(1).__next__
        self._outside = Outside(former, elsewhere, recent, lists, changed, look_for_ends, serials, self.grew)
        self._ledgers: dict[Identity, RetryLedger] = {}
        #: The others, which rest.
        self._resting: dict[Identity, RestingLedger] = {}
        self.unconfirmed = 0
        #: About how many bytes of memory the unconfirmed batches took when they were last swept.
        self.size = 0
        #: By how many they have grown since they were last bounded; and batches dropped since the last sweep.
        self._growth = self._dropped = 0
        #: Logs that were cut lately, and how many were so far: what rests learns of it when it is used.
        self._cuts: deque[tuple[TrackKey, int]] = deque(maxlen=_MOST_CUTS)
        self._cut_count = 0

    def join(
        self, identity: Identity, wire: Wire, since: float = 0.0, origin: Origin | None = None
    ) -> ProducerConnection:
        """A new connection of a producer, opened at ``since`` (seconds); ``origin``: what is known of it."""
        self.bound_growth()
        ledger = self.of(identity)
        if ledger is None:
            ledger = RetryLedger(identity, self._rules.of(identity), self._outside)
            self._ledgers[identity] = ledger
        return ledger.join(wire, since, origin or Origin())

    # -- which rest

    def of(self, identity: Identity) -> RetryLedger | None:
        """The ledger of a producer, which rests no more; None if nothing is kept of it."""
        if identity in self._resting:
            self._ledgers[identity] = self._rebuilt(identity, self._resting.pop(identity))
        return self._ledgers.get(identity)

    def _rebuilt(self, identity: Identity, resting: RestingLedger) -> RetryLedger:
        ledger = resting.rebuild(identity, self._rules.of(identity), self._outside)
        missed = self._cut_count - resting.cuts
        for key, offset in islice(self._cuts, max(0, len(self._cuts) - missed), None):
            ledger.cut(key, offset)
        return ledger

    def cut(self, key: TrackKey, offset: int) -> None:
        """Forgets what was acknowledged with this offset or later: the partition's log was cut, and has lost it.

        A retry of it is written again.
        """
        self._cuts.append((key, offset))
        self._cut_count += 1
        for ledger in self._ledgers.values():
            ledger.cut(key, offset)

    def rests(self, identity: Identity) -> bool:
        """Whether a producer's ledger rests. What is in doubt of it is the same as when it was put to rest."""
        return identity in self._resting

    def rest(self, now: float, busy: Collection[RetryLedger] = ()) -> None:
        """Puts ledgers to rest that may (``resting_ledger``), once other processes know what is in doubt of them.

        ``busy``: those that something else works with.
        """
        left = MOST_PACKED
        for identity, ledger in list(self._ledgers.items()):
            state = None if ledger in busy or self._is_listed(identity) else packed(ledger, now)
            if state is not None:
                self._resting[identity] = RestingLedger(ledger, state, self._cut_count)
                del self._ledgers[identity]
                left -= 1
                if not left:
                    break

    def _is_listed(self, identity: Identity) -> bool:
        """Whether another process lists a batch of a producer."""
        return any(told.batches for told in self._outside.lists(identity).values())

    def _wake_due(self, now: float) -> None:
        """Ends the rest where a batch has expired, or another process lists one. Forgets those of which all have."""
        soonest = now - self._rules.window
        for identity, resting in [row for row in self._resting.items() if row[1].since < soonest]:
            if resting.newest < soonest:
                del self._resting[identity]
            else:
                self.of(identity)
        told: Collection[Identity] = list(self._resting)
        if self._with_lists is not None:
            told = self._resting.keys() & self._with_lists()
        for identity in told:
            if self._is_listed(identity):
                self.of(identity)

    def in_doubt(self, identity: Identity, now: float) -> Sequence[ListedBatch]:
        """Batches that another process would have to compare with the requests that a producer sends there."""
        resting = self._resting.get(identity)
        if resting is not None and not self._is_listed(identity):
            return self._rebuilt(identity, resting).in_doubt(now)
        ledger = self.of(identity)
        if ledger is None:
            return NOTHING
        ledger.take_lists(now)  # what a former kproxy listed has to be in the list that replaces it
        return ledger.in_doubt(now)

    def in_question(self) -> list[Identity]:
        """The producers of which a batch may be in doubt; without those whose ledger rests."""
        return [identity for identity, ledger in self._ledgers.items() if ledger.may_be_in_doubt]

    def sweep(self, now: float) -> int:
        """Forgets what is too old to matter; the number of entries that were dropped for want of room."""
        self._wake_due(now)
        for identity, ledger in list(self._ledgers.items()):
            ledger.expire(now)
            if ledger.idle:
                del self._ledgers[identity]
        self.size = self._bound_found() + self._bound()
        every = chain[RetryLedger | RestingLedger](self._ledgers.values(), self._resting.values())
        self.unconfirmed = sum(ledger.count for ledger in every)
        dropped, self._dropped = self._dropped, 0
        return dropped

    def _bound(self) -> int:
        """Has who takes too much memory take less; the bytes that are left, without what was found in logs."""
        self._growth = 0
        peers: dict[Peer, tuple[list[RetryLedger], list[tuple[Identity, RestingLedger]]]] = {}
        for identity, ledger in self._ledgers.items():
            peers.setdefault(peer_of(identity), ([], []))[0].append(ledger)
        for row in self._resting.items():
            peers.setdefault(peer_of(row[0]), ([], []))[1].append(row)
        kept = {peer: (ledgers, Resting(rows, self._woken, self._forget)) for peer, (ledgers, rows) in peers.items()}
        sizes = {peer: sum(one.size for one in ledgers) + resting.size for peer, (ledgers, resting) in kept.items()}
        limit, left = allowed(sizes.values()), 0
        for peer, size in sizes.items():
            if size > limit:
                self._dropped += shed(*kept[peer], size, limit)
                left += min(size, limit)
            else:
                left += size
        return left

    def _woken(self, identity: Identity) -> RetryLedger:
        ledger = self.of(identity)
        assert ledger is not None
        return ledger

    def _forget(self, identity: Identity) -> None:
        del self._resting[identity]

    def grew(self, size: int) -> None:
        """Records that unconfirmed batches take so many bytes more."""
        self._growth += size

    def bound_growth(self) -> None:
        """Bounds them, if they have grown by much since the last time."""
        if self._growth > STEP_BYTES:
            self._bound()

    def counts(self) -> dict[Identity, int]:
        """The number of unconfirmed batches of each producer, where there are some."""
        every: Mapping[Identity, RetryLedger | RestingLedger] = {**self._resting, **self._ledgers}
        return {identity: count for identity, ledger in every.items() if (count := ledger.count)}

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
