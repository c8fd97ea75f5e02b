"""What the clients did and were told: the claims that the logs are held against."""

from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

import trio

from verification.simulation.plan import ClientPlan


class State(Enum):
    """What a client knows of a record of its own."""

    NEW = "never sent"
    OPEN = "sent, unknown"
    OK = "acknowledged"
    REFUSED = "refused for good"


#: What a kproxy reads behind a crash: the last batches of a producer id, or those of the last seconds if that is more.
_TAIL_BATCHES: Final = 5
_TAIL_SECONDS: Final = 2.0


@dataclass(slots=True, eq=False)
class Sent:
    """One record that a client means to write once."""

    client: ClientPlan
    nth: int
    partition: int
    value: bytes
    timestamp: int = -1
    state: State = State.NEW
    offset: int = -1
    tries: int = 0
    #: When it was acknowledged, counted over the whole run, and by trio's clock.
    order: int = -1
    told_at: float = 0.0
    #: When it was sent last, by trio's clock: what is acknowledged comes again if another part of its request failed.
    sent_at: float = 0.0
    #: What its client sent since shows that the acknowledgement was had.
    evident: bool = False
    #: When it was sent first, that was so of all equal records of its producer; and no kproxy died meanwhile.
    clear: bool = False
    #: Its client lost a connection, timed out or got an error while the record's fate was open.
    shaken: bool = False

    @property
    def settled_at(self) -> float:
        """What befalls its client later does not concern it (trio's clock): it is acknowledged, and not sent again."""
        return max(self.told_at, self.sent_at) if self.state is State.OK else inf


@dataclass(slots=True)
class History:
    """Of one run."""

    records: list[Sent] = field(default_factory=list)
    #: Records that were sent, by partition, value and identity of the producer.
    sent: dict[tuple[int, bytes, str, str], list[Sent]] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    #: Since when (trio's clock), by identity (client.id, host):
    #: identities that lost a connection, timed out or got an error: their equal records without
    #: timestamps can't be told apart.
    disturbed: dict[tuple[str, str], float] = field(default_factory=dict)
    #: Since when, by identity:
    #: identities one of whose connections became half-open, or whose end is held up behind other bytes: nobody can see
    #: that it has ended. And those that sent again on a connection on which an answer was held up.
    half_open: dict[tuple[str, str], float] = field(default_factory=dict)
    #: Since when, by client number:
    #: clients of which a request that was ready may have come long after the refusal, for which kproxy waits half a
    #: second; and those with more requests on their way behind a refused one than kproxy has seen without an answer.
    held_up: dict[int, float] = field(default_factory=dict)
    #: The first invariant that broke while the run went on, and how.
    broken: tuple[str, str] | None = None
    acknowledged: int = 0
    #: kproxy is told that all clients wait for each answer (clients.in.flight=1): it knows what they gave up.
    single: bool = False
    #: Until when (trio's clock) batches reached a broker, or waited there.
    last_produce: float = 0.0
    #: Clients (by number) that may have lost requests on their way to kproxy, or in it.
    troubled: set[int] = field(default_factory=set)
    #: A run made by hand, in which kproxy can tell all equal records apart.
    strict: bool = False
    #: The topic's records get the broker's time (LogAppendTime).
    untimed: bool = False
    #: What was in partitions before the topic was deleted and made again, once for each time.
    deleted: list[list[dict[int, bytes]]] = field(default_factory=list)
    #: Partition and value of records in batches of a producer epoch that was over, written since the broker had
    #: forgotten it.
    outlived: set[tuple[int, bytes]] = field(default_factory=set)
    #: Partition and value of records that lay too far back when their kproxy was killed: its successor reads only the
    #: last batches. They can come again all the same, with a request of which another part has failed.
    buried: set[tuple[int, bytes]] = field(default_factory=set)
    #: Partition and value of records of which one was told to be where another stands, that bears another time: it came
    #: first, while that one was surely not had, and kproxy died since, who alone knew which of them was told.
    retold: set[tuple[int, bytes]] = field(default_factory=set)
    #: When each instance of kproxy was killed last, by trio's clock.
    killed: dict[int, float] = field(default_factory=dict)
    #: What compaction took out of partitions.
    compacted: dict[int, dict[int, bytes]] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Adds a line to the trace."""
        self.trace.append(f"{trio.current_time():9.4f} {text}")

    def breaks(self, invariant: str, how: str) -> None:
        """An invariant broke; the first one counts."""
        if self.broken is None:
            self.broken = (invariant, how)

    def begin(self, sent: Sent) -> None:
        """A record is about to be sent for the first time."""
        key = (sent.partition, sent.value, sent.client.client_id, sent.client.host)
        equal = self.sent.setdefault(key, [])
        sent.clear = all(other.evident for other in equal)
        equal.append(sent)

    def cannot_be_seen(self, client: ClientPlan) -> None:
        """A client's connection has ended, or an answer on it is overdue, and nobody can tell."""
        self.troubled.add(client.number)
        self.half_open.setdefault((client.client_id, client.host), trio.current_time())

    def holds_up(self, client: ClientPlan) -> None:
        """A request of a client may have come long after what was sent before it."""
        self.held_up.setdefault(client.number, trio.current_time())

    def crashed(self, instance: int, now: float) -> None:
        """A kproxy was killed, and with it all that it knew of answers that its clients have had.

        ``now``: by trio's clock.
        """
        self.killed[instance] = now
        for sent in self.records:
            if sent.client.instance == instance:
                if sent.state is State.OK and self._is_buried(sent, now):
                    self.buried.add((sent.partition, sent.value))
                self.disturb(sent.client)
                sent.evident = False
                if sent.state is State.OPEN:
                    sent.clear = False

    def _is_buried(self, sent: Sent, now: float) -> bool:
        later = [
            other
            for other in self.records
            if other.client is sent.client and other.partition == sent.partition and other.order > sent.order
        ]
        return sent.told_at < now - _TAIL_SECONDS and len(later) >= _TAIL_BATCHES

    def disturb(self, client: ClientPlan) -> None:
        """A client may not know what it was told."""
        for sent in self.records:
            if sent.client.number == client.number and sent.state is State.OPEN:
                sent.shaken = True
        self.troubled.add(client.number)
        self.disturbed.setdefault((client.client_id, client.host), trio.current_time())
