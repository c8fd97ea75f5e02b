"""The retry ledgers of all producers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count

from kproxy.dedup.identity import Identity
from kproxy.dedup.listed import NOTHING, InDoubt, ListedBatch
from kproxy.dedup.origin import Origin
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.retry_ledger import RetryLedger
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import UnconfirmedBatch, Wire

#: Unconfirmed batches at a time, in all. Beyond it the oldest count as received, so that reconnects can't take all
#: memory.
MAX_ENTRIES = 100_000
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
        """``former`` gives the lanes that a former kproxy used for a producer; ``changed`` wakes who waits.

        ``look_for_ends`` is given the time, and calls ``ProducerConnection.end`` of all connections that have ended.
        ``elsewhere`` gives the lanes that other instances have, or had within the retry window;
        ``recent`` gives their producer ids; ``lists`` by instance what a former kproxy and the others had in doubt.
        """
        self._rules = rules
        self._former = former
        self._elsewhere = elsewhere
        self._recent = recent
        self._lists = lists
        self._changed = changed
        self._look_for_ends = look_for_ends
        self._ledgers: dict[Identity, RetryLedger] = {}
        self._serials = count(1)
        self.unconfirmed = 0
        #: About how many bytes of memory the unconfirmed batches took when they were last swept.
        self.size = 0

    def join(
        self, identity: Identity, wire: Wire, since: float = 0.0, origin: Origin | None = None
    ) -> ProducerConnection:
        """A new connection of a producer, opened at ``since`` (seconds); ``origin``: what is known of it."""
        ledger = self._ledgers.get(identity)
        if ledger is None:
            ledger = RetryLedger(
                identity,
                self._rules.of(identity),
                self._former,
                self._changed,
                self._serials.__next__,
                self._look_for_ends,
                self._elsewhere,
                self._recent,
                self._lists,
            )
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
        dropped = self._drop_found()
        held = sum(ledger.held for ledger in self._ledgers.values())
        if held > MAX_ENTRIES:
            surplus = self._drop_oldest(held - MAX_ENTRIES)
            dropped, held = dropped + surplus, held - surplus
        self.size = sum(ledger.size for ledger in self._ledgers.values())
        self.unconfirmed = held - sum(ledger.ended_well for ledger in self._ledgers.values())
        return dropped

    def counts(self) -> dict[Identity, int]:
        """How many batches of each producer are unconfirmed, where there are some."""
        return {identity: ledger.count for identity, ledger in self._ledgers.items() if ledger.count}

    def _drop_oldest(self, surplus: int) -> int:
        oldest = self._by_age(lambda _: True)[:surplus]
        for ledger, entry in oldest:
            ledger.forget(entry)
        return len(oldest)

    def _drop_found(self) -> int:
        found = self._by_age(lambda entry: entry.timed_only)
        surplus, dropped = sum(entry.size for _, entry in found) - MAX_FOUND_BYTES, 0
        while surplus > 0:
            ledger, entry = found[dropped]
            surplus -= entry.size
            dropped += 1
            ledger.forget(entry)
        return dropped

    def _by_age(self, counts: Callable[[UnconfirmedBatch], bool]) -> list[tuple[RetryLedger, UnconfirmedBatch]]:
        """The entries that count, the oldest first."""
        rows = [
            (ledger, entry)
            for ledger in self._ledgers.values()
            for entries in ledger.entries.values()
            for entry in entries
            if counts(entry)
        ]
        rows.sort(key=lambda row: (row[1].since, row[1].serial))
        return rows
