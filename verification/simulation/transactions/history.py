"""Requests and responses of producers, and records that readers saw: the claims that the log is checked against."""

from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from kproxy.txn.ids import Producer
from verification.simulation.history import History


class Given(NamedTuple):
    """An identity that a producer was given by InitProducerId, and when it asked for it (trio's clock)."""

    producer: Producer
    asked: float


#: An InitProducerId without a response may still take effect for so many seconds: it is held up, or waits in a kproxy.
_STRAYS: Final = 30.0


@dataclass(slots=True, eq=False)
class Asked:
    """An InitProducerId, by trio's clock: when it was sent, and when it can take effect no more."""

    sent: float
    over: float = inf
    #: One of its requests has no response.
    is_stray: bool = False


class Input(NamedTuple):
    """The input that a group has read when a transaction that moves its offset is committed."""

    group: str
    position: int


@dataclass(slots=True, eq=False)
class Claimed:
    """One transaction as its producer knows it."""

    name: str
    producer: int
    transactional_id: str
    #: Values by partition, in order, of all that was sent.
    values: dict[int, list[bytes]] = field(default_factory=dict)
    #: Something was asked of the coordinator, or sent.
    begun: bool = False
    #: A commit was requested; only after that may anything of it show.
    asked: bool = False
    #: By partition the highest last stable offset that anyone had received before.
    stable_before: dict[int, int] = field(default_factory=dict)
    #: The result that the producer received: committed or aborted; None: nothing definite.
    told: bool | None = None
    #: Values that were first sent when a newer producer had been told that it has the id.
    zombies: set[bytes] = field(default_factory=set)
    input: Input | None = None


@dataclass(slots=True)
class TransactionHistory(History):
    """The history of one run with transactions."""

    transactions: list[Claimed] = field(default_factory=list)
    #: The transaction that a value is of.
    by_value: dict[bytes, Claimed] = field(default_factory=dict)
    #: Partition, offset and value, as acknowledgements had it.
    acks: list[tuple[int, int, bytes]] = field(default_factory=list)
    #: By transactional id the responses to InitProducerId that producers received.
    given: dict[str, list[Given]] = field(default_factory=dict)
    #: By identity the process that received it first.
    holders: dict[Producer, str] = field(default_factory=dict)
    #: By transactional id every InitProducerId: each may fence the owner of the id, while it can take effect.
    asked: dict[str, list[Asked]] = field(default_factory=dict)
    #: Transactional ids of several producers.
    shared: set[str] = field(default_factory=set)
    #: Transactional ids are given up that are not used for a while.
    ids_expire: bool = False
    #: The time of day jumped, so ids may expire at any time.
    jumped: bool = False
    #: Transactional ids that the brokers have given up, and when they did last (trio's clock).
    expired: dict[str, float] = field(default_factory=dict)
    #: The brokers decide, so they fence who takes too long, and kproxy keeps in memory whom it asks for.
    is_native: bool = False
    #: A kproxy that is started again continues for the clients of the first protocol that it had.
    continues: bool = False
    #: By partition the highest last stable offset that anyone received.
    stable: dict[int, int] = field(default_factory=dict)
    #: The same, by instance and partition: of those that it reported.
    stable_at: dict[tuple[int, int], int] = field(default_factory=dict)
    #: By group the last position that a transaction was to move it to.
    positions: dict[str, int] = field(default_factory=dict)

    def open(self, name: str, producer: int, transactional_id: str) -> Claimed:
        """A producer begins a transaction."""
        claimed = Claimed(name, producer, transactional_id)
        self.transactions.append(claimed)
        return claimed

    def values(self, claimed: Claimed, place: int, count: int, *, late: bool) -> list[bytes]:
        """New records of a transaction for a partition; ``late``: a newer producer has the id."""
        had = claimed.values.setdefault(place, [])
        values = [f"{claimed.name}:{place}.{len(had) + at}".encode() for at in range(count)]
        had += values
        self.by_value.update(dict.fromkeys(values, claimed))
        if late:
            claimed.zombies.update(values)
        return values

    def acknowledges(self, claimed: Claimed, place: int, values: list[bytes], offset: int) -> None:
        """A batch was acknowledged; ``offset`` is said to be its first."""
        self.acknowledged += len(values)
        self.acks += [(place, offset + at, value) for at, value in enumerate(values)]
        self.note(f"{claimed.name} has {len(values)} records at {place}:{offset}")

    def asks(self, claimed: Claimed) -> None:
        """A commit is asked for."""
        if not claimed.asked:
            claimed.asked, claimed.stable_before = True, dict(self.stable)

    def hears_stable(self, instance: int, place: int, offset: int) -> None:
        """An instance has told a last stable offset, in whatever response."""
        self.stable[place] = max(offset, self.stable.get(place, 0))
        self.stable_at[instance, place] = max(offset, self.stable_at.get((instance, place), 0))

    def asks_identity(self, transactional_id: str, now: float) -> Asked:
        """An InitProducerId is sent (trio's clock)."""
        asked = Asked(now)
        self.asked.setdefault(transactional_id, []).append(asked)
        return asked

    def strays(self, asked: Asked, now: float) -> None:
        """One of its requests has no response, and may come late."""
        asked.is_stray, asked.over = True, now + _STRAYS

    def may_come_late(self, transactional_id: str, now: float) -> None:
        """An InitProducerId between kproxy and a broker may take effect late."""
        self.strays(self.asks_identity(transactional_id, now), now)

    def gives(self, transactional_id: str, producer: Producer, asked: float = -inf) -> None:
        """InitProducerId was answered; ``asked``: when it was sent (trio's clock), if that is known."""
        self.given.setdefault(transactional_id, []).append(Given(producer, asked))

    def is_fenced(self, transactional_id: str, producer: Producer, told: float = inf) -> bool:
        """Whether a newer producer has been told that it has the id.

        ``told``: when this one was (trio's clock), if that is known. Who asks for an identity after that gets a newer
        one, whatever its producer id is.
        """
        return any(
            given.asked > told
            or (given.producer.producer_id == producer.producer_id and given.producer.epoch > producer.epoch)
            for given in self.given.get(transactional_id, ())
        )

    def holder(self, producer: Producer, process: str) -> str:
        """The process that received an identity first: this one, if none did."""
        return self.holders.setdefault(producer, process)

    # -- groups

    def next_input(self, group: str) -> Input:
        """The next that a group reads; no two transactions of a producer have the same."""
        self.positions[group] = self.positions.get(group, 0) + 1
        return Input(group, self.positions[group])

    def of_input(self, what: Input) -> list[Claimed]:
        """The transactions that moved a group so far, or would have."""
        return [claimed for claimed in self.transactions if claimed.input == what]

    def least_position(self, group: str) -> int:
        """The least position of a group: the highest one whose commit was reported to a producer."""
        told = (one.input.position for one in self.transactions if one.told and one.input and one.input.group == group)
        return max(told, default=0)
