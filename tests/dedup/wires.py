"""A client's connection as the cores see it, under a test's control."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from kproxy.dedup.identity import Identity
from kproxy.dedup.listed import InDoubt
from kproxy.dedup.origin import Origin
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.retry_ledgers import RetryLedgers
from kproxy.dedup.retry_rules import Rules

RULES = Rules(window=120.0, in_flight=5, client_timeout=60.0)
#: For clients that wait for each response.
ALONE = replace(RULES, in_flight=1)
#: clean.close.window.ms of a connection of which something ends TCP on the way, in seconds.
CLEAN_WINDOW = 10.0
ONE = Identity("", "one", "localhost")


@dataclass
class FakeWire:
    """All that is written is acknowledged at once, unless a test says otherwise."""

    written: int = 1 << 40
    missing: int = 0
    gone: bool = False
    reset: bool = False
    writing: int = 0
    received: int = 0
    unread: int = 0
    told: Callable[[], None] = lambda: None
    #: How often the kernel was asked.
    asked: int = 0

    def unacked(self) -> int:
        self.asked += 1
        return self.missing

    def closed_well(self) -> bool:
        return not self.reset

    def arrived(self) -> int:
        return self.received + self.unread

    def has_taken(self, position: int) -> bool:
        return self.received >= position or not self.unread

    def may_have_ended(self) -> bool:
        return bool(self.unread) or (self.gone and not self.reset)

    def tell_taken(self, changed: Callable[[], None]) -> None:
        self.told = changed

    def read(self) -> None:
        """All that was there is taken."""
        self.received, self.unread = self.received + self.unread, 0
        self.told()


class Ledgers(RetryLedgers):
    """A ledger to which each connection tells by its wire that it has ended."""

    def __init__(
        self,
        rules: Rules,
        former: Callable[[Identity], Sequence[Suspect]] = lambda identity: (),
        changed: Callable[[], None] = lambda: None,
        elsewhere: Callable[[Identity], Sequence[Suspect]] = lambda identity: (),
        recent: Callable[[Identity], Collection[int]] = lambda identity: (),
        lists: Callable[[Identity], Mapping[str, InDoubt]] = lambda identity: {},
    ) -> None:
        super().__init__(rules, former, changed, self._look, elsewhere, recent, lists)
        self._joined: list[tuple[FakeWire, ProducerConnection]] = []
        #: Before each connection of any producer all ledgers are put to rest that may.
        self.always_rest = False

    def enter(
        self, identity: Identity, wire: FakeWire, since: float, origin: Origin | None = None
    ) -> ProducerConnection:
        """As ``join``, and watches the wire."""
        if self.always_rest:
            self.rest(inf)
        member = self.join(identity, wire, since, origin)
        self._joined.append((wire, member))
        return member

    def _look(self, now: float) -> None:
        for wire, member in self._joined:
            if wire.gone:
                member.end(now)


def ledger(rules: Rules = RULES) -> Ledgers:
    """A ledger whose changes nobody waits for."""
    return Ledgers(rules)


def member() -> ProducerConnection:
    """The first connection of a producer that has no other."""
    return ledger().join(ONE, FakeWire(), 0.0)
