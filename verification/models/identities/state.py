"""What is known at one moment."""

from typing import Any, NamedTuple

from verification.models.identities.log import NONE, Part, Record


class Ask(NamedTuple):
    """A request. ``client``: the identity that it names; ``copy``: it comes late, and nobody hears the response."""

    kind: str
    by: int
    client: int
    committed: bool = False
    copy: bool = False


class Kproxy(NamedTuple):
    """One instance, as far as the one id goes."""

    phase: str = "idle"
    #: The claim that it holds.
    nonce: int = NONE
    block: int = NONE
    number: int = 0
    client: int = NONE
    #: The transaction that is open here.
    part: Part | None = None
    doomed: bool = False
    #: The request that it serves, how often it has claimed for it, the record that it has sent, and what is decided.
    ask: Ask | None = None
    tries: int = 0
    pending: Record | None = None
    #: It has come to the log, or may be late.
    is_sent: bool = False
    ending: Part | None = None
    #: Batches that it has taken: identity and sequence number.
    known: frozenset[tuple[int, int]] = frozenset()


class Producer(NamedTuple):
    """One client of the second protocol."""

    phase: str = "new"
    client: int = NONE
    #: Its transactions are numbered; the batches of this one.
    transaction: int = 0
    written: int = 0
    #: What it has asked for and not heard.
    ask: Ask | None = None


class Batch(NamedTuple):
    """One that was acknowledged. ``part``: None if it was taken for a repeated one."""

    producer: int
    transaction: int
    number: int
    part: Part | None


class State(NamedTuple):
    """All of it."""

    log: tuple[Record, ...]
    kproxies: tuple[Kproxy, ...]
    producers: tuple[Producer, ...]
    budget: tuple[tuple[str, int], ...]
    #: Appends that may still come, and copies of requests.
    late: frozenset[Record] = frozenset()
    copies: frozenset[Ask] = frozenset()
    batches: frozenset[Batch] = frozenset()
    #: Identities that producers received, transactions that were reported to them as committed.
    given: frozenset[tuple[int, int]] = frozenset()
    committed: frozenset[tuple[int, int]] = frozenset()
    flaws: frozenset[str] = frozenset()
    nonces: int = 0

    def left(self, what: str) -> bool:
        """Whether it may happen once more."""
        return dict(self.budget).get(what, 0) > 0

    def spend(self, what: str) -> "State":
        """It happens."""
        return self._replace(budget=tuple((name, n - (name == what)) for name, n in self.budget))

    def at(self, k: int, **change: Any) -> "State":
        """With a change at one kproxy."""
        done = self.kproxies[k]._replace(**change)
        return self._replace(kproxies=(*self.kproxies[:k], done, *self.kproxies[k + 1 :]))

    def of(self, i: int, **change: Any) -> "State":
        """With a change of one producer."""
        done = self.producers[i]._replace(**change)
        return self._replace(producers=(*self.producers[:i], done, *self.producers[i + 1 :]))

    def append(self, record: Record) -> "State":
        """With one more record in the log."""
        return self._replace(log=(*self.log, record))
