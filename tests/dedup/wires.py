"""A client's connection as the cores see it, under a test's control."""

from collections.abc import Sequence
from dataclasses import dataclass

from kproxy.dedup.identity import Identity
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.retry_ledgers import RetryLedgers
from kproxy.dedup.retry_rules import Rules

RULES = Rules(window=120.0, clean_window=10.0, in_flight=5, client_timeout=60.0)
ONE = Identity("", "one", "localhost")


@dataclass
class FakeWire:
    """All that is written is acknowledged at once, unless a test says otherwise."""

    written: int = 1 << 40
    missing: int = 0
    gone: bool = False
    reset: bool = False
    writing: int = 0
    node_id: int = 1

    def unacked(self) -> int:
        return self.missing

    def peer_closed(self) -> bool:
        return self.gone

    def was_reset(self) -> bool:
        return self.reset


def ledger(rules: Rules = RULES, former: Sequence[Suspect] = ()) -> RetryLedgers:
    """A ledger whose changes nobody waits for."""
    return RetryLedgers(rules, lambda identity: former, lambda: None)


def member() -> ProducerConnection:
    """The first connection of a producer that has no other."""
    return ledger().join(ONE, FakeWire(), 0.0)
