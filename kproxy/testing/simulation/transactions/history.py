"""What producers asked for and were told, and what readers saw: the claims that the log is held against."""

from dataclasses import dataclass, field

from kproxy.testing.simulation.history import History
from kproxy.txn.ids import Producer


@dataclass(slots=True, eq=False)
class Claimed:
    """One transaction as its producer knows it."""

    name: str
    producer: int
    transactional_id: str
    #: Values by partition, in order, of all that was sent.
    values: dict[int, list[bytes]] = field(default_factory=dict)
    #: Values that were acknowledged.
    acknowledged: set[bytes] = field(default_factory=set)
    #: Something was asked of the coordinator.
    joined: bool = False
    #: A commit was asked for; only then may anything of it show.
    asked: bool = False
    #: What the producer was told: committed or aborted; None: nothing definite.
    told: bool | None = None
    #: Values that were first sent when a newer producer had been told that it has the id.
    zombies: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class TransactionHistory(History):
    """Of one run."""

    transactions: list[Claimed] = field(default_factory=list)
    #: The transaction that a value is of.
    by_value: dict[bytes, Claimed] = field(default_factory=dict)
    #: By transactional id what producers were told by InitProducerId.
    given: dict[str, list[Producer]] = field(default_factory=dict)
    #: Transactional ids for which an InitProducerId may still come late and fence whoever has the id.
    loose: set[str] = field(default_factory=set)
    #: Transactional ids of several producers.
    shared: set[str] = field(default_factory=set)
    #: By partition the highest last stable offset that anyone was told.
    stable: dict[int, int] = field(default_factory=dict)

    def open(self, name: str, producer: int, transactional_id: str) -> Claimed:
        """A producer begins a transaction."""
        claimed = Claimed(name, producer, transactional_id)
        self.transactions.append(claimed)
        return claimed

    def is_fenced(self, transactional_id: str, producer: Producer) -> bool:
        """Whether a newer producer has been told that it has the id."""
        return any(
            given.producer_id == producer.producer_id and given.epoch > producer.epoch
            for given in self.given.get(transactional_id, ())
        )
