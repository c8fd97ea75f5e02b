"""The clients' requests and the responses: the claims that the logs are checked against."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, NamedTuple, TypeAlias

import trio

from verification.simulation.contents import Content, Headers
from verification.simulation.link import Link
from verification.simulation.plan import ClientPlan, Relay


class State(Enum):
    """The knowledge of a client about a record of its own."""

    NEW = "never sent"
    OPEN = "sent, unknown"
    OK = "acknowledged"
    REFUSED = "refused for good"


#: Seconds within which a request has arrived, or the acknowledgement of a response, unless a fault holds it up.
_SURELY_SEEN: Final = 0.7
#: kproxy takes this share of a request's time-out for the client's own: a response that is later may be one that its
#: client did not wait for.
GIVEN_UP: Final = 0.9
#: It counts from when the connection was last seen empty. That is about so many seconds before the request arrived, for
#: nothing is read while another request of the connection waits at kproxy.
_WAITED_BEFORE: Final = 2.0
#: Seconds for which kproxy surely waits for the end of a connection whose client may have left it.
_WAITS_FOR_END: Final = 0.9


@dataclass(frozen=True, slots=True)
class Attempt:
    """A record that is sent to kproxy, once."""

    link: Link
    #: Of the connection's bytes, so many are it and what was sent before it.
    position: int
    #: When the last of them arrives, by trio's clock, unless a fault delays it later.
    arrives: float

    def is_hidden_from(self, other: "Attempt", *, is_timed: bool, alone: bool = True) -> bool:
        """Whether kproxy reads both before it can see that the connection of this one has ended.

        It waits for that end if this one arrives after the other, over a connection that has been used before. If this
        one comes first, a direct connection that does not acknowledge has been left; only timestamps count then. For
        granted is taken that a program reads what its kernel has acknowledged before it leaves a connection. Another
        process of its name (not ``alone``) may have made its connection wait in vain before: then it waits no more.
        """
        link, end = self.link, self.link.end_unseen_until
        if link is other.link or other.arrives >= end:
            return False
        if link.up.arrived >= self.position:
            is_unread = bool(link.down.inbox) or link.left_unread
            return not is_timed or is_unread or link.beyond is not None or other.link.number < link.number
        arrives = max(self.arrives, link.up.stalled_until)
        is_outrun = alone and arrives > other.arrives and bool(link.rounds)
        return not link.half_open and arrives + (_WAITS_FOR_END if is_outrun else 0.0) < end


class Doubt(NamedTuple):
    """An equal record that was acknowledged, or is another process's: whether a record may be taken for its retry shows
    when its connection ends.

    For granted is taken that a FIN after the acknowledgement of all responses means that they were read, and that a
    process has one connection to a broker. If a process read, over the connection that was opened first, the response
    to a request that it had sent while the other was in use, there are two processes, and a record of one is none of
    the other's. kproxy need not know that before an acknowledgement surely has arrived, nor which of two connections
    that were opened at nearly the same time was opened first.
    """

    link: Link
    #: It had no response yet.
    is_open: bool
    #: Its response was an error, or too late.
    is_amiss: bool
    #: The connection of the other process that sent this record, and when; None: the same process, or one with several.
    over: Link | None
    at: float
    #: Both bear the same timestamp of the client: then an end in good order proves nothing. For granted is taken that
    #: a client which writes records that are equal in all wants no more than one of them after a connection ended.
    at_same_time: bool

    @property
    def arose(self) -> bool:
        """Whether the record may be taken for a retry."""
        if self.over is not None and _are_two(self.link, self.over, self.at):
            return False
        return self.is_open or self.is_amiss or self.at_same_time or not self.link.ended_well


def _are_two(one: Link, other: Link, at: float) -> bool:
    """Whether it could be seen by ``at`` (trio's clock) that two processes have the connections.

    Connections to two brokers show nothing: every process has one to each.
    """
    if one.port != other.port:
        return False
    first, second = sorted((one, other), key=lambda link: link.opened_at)
    at_once = second.opened_at < first.opened_at + _SURELY_SEEN
    return _shows_two(first, second, at) and (not at_once or _shows_two(second, first, at))


def _shows_two(first: Link, second: Link, at: float) -> bool:
    """Whether it could be seen by ``at`` over ``first`` that its process was there while ``second`` was in use."""
    return not first.was_cut and any(
        asked >= second.used_at + _SURELY_SEEN and read <= at - _SURELY_SEEN for asked, read in first.rounds
    )


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
    answered_at: float = 0.0
    #: Its place in its batch, as the client has formed that first.
    at: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    #: The client's later requests show that the acknowledgement was received.
    evident: bool = False
    #: The last request that had it was answered with an error, too late, or not in time: it may be retried there.
    amiss: bool = False
    #: A response said an error for it; or a success, and it was repeated since another partition had an error.
    refused: bool = False
    beside: bool = False
    #: Its client lost a connection, timed out or got an error while the record's outcome was open.
    shaken: bool = False
    #: It was sent again while kproxy could not know that its client did not wait for the answer any more: a second copy
    #: is excused.
    unseen: bool = False
    #: Since it was sent last its kproxy was killed, or its client moved to another one.
    left: bool = False
    #: When it was sent last to a kproxy that knew of the earlier attempts only from the log, by trio's clock.
    resumed_at: float = -1.0
    #: It was sent while an equal record of its producer was in doubt, or may have been taken for such a one.
    mixed: bool = False
    #: Or it will show whether it was.
    doubts: list[Doubt] = field(default_factory=list)
    #: When one with the same timestamp arrived that was acknowledged over the same connection, by trio's clock.
    alike_since: float = inf
    #: The kproxy that knew of its acknowledgement was killed, or its client has moved to another one.
    forgotten: bool = False
    #: Of the first record of an idempotent client's batch; -1: it was not sent yet.
    sequence: int = -1
    #: The client's later requests may have arrived before its retry, and kproxy could not know that a retry follows.
    held_up: bool = False
    key: bytes | None = None
    headers: Headers = ()
    content: Content = field(init=False)

    def __post_init__(self) -> None:
        """Compares it with others by its content."""
        self.content = Content(self.value, self.key, self.headers)

    @property
    def is_mergeable(self) -> bool:
        """Whether it may be taken for the retry of an equal one.

        For granted is taken that kproxy treats it so, if the timestamps are equal, where it arrives when the client may
        have given up the request before, and nothing arrived in between: either way may have been held up.
        """
        waited = self.answered_at - self.alike_since
        is_late = waited >= GIVEN_UP * self.client.timeout_ms / 1000 - _WAITED_BEFORE
        return self.mixed or is_late or any(doubt.arose for doubt in self.doubts)

    @property
    def place(self) -> "Place":
        """Its partition and content."""
        return self.partition, self.content


#: Partition and content.
Place: TypeAlias = tuple[int, Content]


@dataclass(slots=True)
class History:
    """The history of one run."""

    records: list[Sent] = field(default_factory=list)
    #: Records that were sent, by place and identity of the producer.
    sent: dict[tuple[Place, str, str], list[Sent]] = field(default_factory=dict)
    #: The timestamps that records of a place were sent with.
    stamps: dict[Place, set[int]] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    #: The first invariant that was broken during the run, and how.
    broken: tuple[str, str] | None = None
    acknowledged: int = 0
    #: kproxy's option says that all clients wait for each response (clients.in.flight=1): it knows what they gave up.
    single: bool = False
    #: Until when (trio's clock) batches reached a broker, or waited there.
    last_produce: float = 0.0
    #: Clients (by number) that may have lost requests before they reached kproxy, or in it.
    troubled: set[int] = field(default_factory=set)
    #: A run made by hand, in which kproxy can tell all equal records apart.
    strict: bool = False
    #: By client.id and host, the most requests that a client has in flight: kproxy can't tell which of them has.
    depths: dict[tuple[str, str], int] = field(default_factory=dict)
    #: By client.id and host, the clients (by number) that have sent something.
    processes: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    #: The topic's records get the broker's time (LogAppendTime).
    untimed: bool = False
    #: kproxy's option says that something in between ends TCP (clean.close.window.ms): a FIN says nothing.
    declared: bool = False
    #: Contents of partitions before the topic was deleted and made again, once for each time.
    deleted: list[list[dict[int, Content]]] = field(default_factory=list)
    #: Records in batches of a producer epoch that was over, written since the broker had forgotten it.
    outlived: set[Place] = field(default_factory=set)
    #: Records of producers that a broker forgot for the age of their records.
    aged_out: set[Place] = field(default_factory=set)
    #: Records of which one was answered with the offset of another, which has another timestamp: the response to that
    #: one was surely not received, and it was retried where nobody knew which record was answered.
    retold: set[Place] = field(default_factory=set)
    #: The offsets of copies that lay before the last batches of their producer id, when the record was written again
    #: under another one: a kproxy that knows them only from the log does not read so far back.
    buried: dict[Place, set[int]] = field(default_factory=dict)
    #: At which instance a client is that has moved.
    places: dict[int, int] = field(default_factory=dict)
    #: The number of times that a client continued over an older connection, to another instance than it used last.
    returned: Counter[int] = field(default_factory=Counter)
    #: Clients (by number) that sent something while a response waited that they would have read, had they been running.
    stood_still: set[int] = field(default_factory=set)
    #: When each instance of kproxy was killed last, by trio's clock.
    killed: dict[int, float] = field(default_factory=dict)
    #: Records that compaction took out of partitions.
    compacted: dict[int, dict[int, Content]] = field(default_factory=dict)

    def is_timed(self, client: ClientPlan) -> bool:
        """Whether retries of a client bear the timestamp of the record, and no other record need do."""
        if client.numbered:
            return True  # LogAppendTime leaves them in the log
        return bool(client.magic) and not client.renews_timestamps and not self.untimed

    def note(self, text: str) -> None:
        """Adds a line to the trace."""
        self.trace.append(f"{trio.current_time():9.4f} {text}")

    def breaks(self, invariant: str, how: str) -> None:
        """An invariant broke; the first one counts."""
        if self.broken is None:
            self.broken = (invariant, how)

    def sends(self, sent: Sent, attempt: Attempt) -> None:
        """A record is sent, perhaps not for the first time."""
        equal = self.sent.setdefault((sent.place, sent.client.client_id, sent.client.host), [])
        self.stamps.setdefault(sent.place, set()).add(sent.timestamp)
        attempt.link.used_at = min(attempt.link.used_at, trio.current_time())
        if sent.client.numbered:  # nothing is excused, since nothing is compared
            sent.attempts.append(attempt)
            return
        for other in equal:
            if other is not sent and not other.evident:
                self._compare(other, sent, attempt.link)
        is_timed, alone = self.is_timed(sent.client), self._is_alone(sent.client)
        sent.unseen |= any(former.is_hidden_from(attempt, is_timed=is_timed, alone=alone) for former in sent.attempts)
        if sent.left:
            sent.left, sent.resumed_at = False, attempt.arrives
        if not sent.attempts:
            equal.append(sent)
        sent.attempts.append(attempt)

    def _is_alone(self, client: ClientPlan) -> bool:
        """Whether no other process of a client's name and host has sent anything yet."""
        numbers = self.processes.setdefault((client.client_id, client.host), set())
        numbers.add(client.number)
        return len(numbers) == 1

    def _compare(self, other: Sent, sent: Sent, link: Link) -> None:
        """Records whether a record that is sent over a connection may be taken for a retry of an equal one.

        For granted is taken that what nobody could see to be a retry leaves the attempt before in doubt.
        """
        before, now = other.attempts[-1].link, trio.current_time()
        is_twin = other.client.number != sent.client.number
        keeps = other.client.keeps_connections or sent.client.keeps_connections
        is_open = other.state is not State.OK
        same = other.timestamp == sent.timestamp >= 0 and bool(sent.client.magic)
        is_unknown = other.unseen and not self.is_timed(sent.client)
        if other.forgotten or is_unknown or (before is not link and self.is_relayed(other.client)):
            sent.mixed = True
        elif is_twin and not keeps:
            sent.doubts.append(Doubt(before, is_open, other.amiss, link, now, same))
        elif before is not link and not is_open and not other.amiss:
            sent.doubts.append(Doubt(before, False, False, None, now, same))
        elif before is not link or other.amiss:
            sent.mixed = True
        elif same:
            sent.alike_since = min(sent.alike_since, other.attempts[-1].arrives)

    def is_relayed(self, client: ClientPlan) -> bool:
        """Whether an option or a header says that something ends TCP before the client: then a FIN is no evidence."""
        return self.declared or client.relay is Relay.NAMED

    def goes_amiss(self, records: Iterable[Sent]) -> None:
        """A request gets an error, or no response in time; a request in flight may be treated as its retry."""
        for sent in records:
            sent.amiss = True
            key = (sent.place, sent.client.client_id, sent.client.host)
            for other in self.sent.get(key, ()):
                other.mixed |= other is not sent and other.state is State.OPEN

    def crashed(self, instance: int, now: float) -> None:
        """A kproxy was killed, and with it all that it knew of responses that its clients have had.

        ``now``: by trio's clock.
        """
        self.killed[instance] = now
        for client in {sent.client.number: sent.client for sent in self.records}.values():
            if self.places.get(client.number, client.instance) == instance:
                self._leave(client)

    def moved(self, client: ClientPlan, instance: int) -> None:
        """A client is at a kproxy that does not know which answers it has had."""
        self.places[client.number] = instance
        self._leave(client)

    def _leave(self, client: ClientPlan) -> None:
        for sent in self.records:
            if sent.client.number == client.number:
                sent.left, sent.evident, sent.forgotten = sent.tries > 0, False, sent.tries > 0
        self.disturb(client)

    def disturb(self, client: ClientPlan) -> None:
        """A client may not have received its response."""
        for sent in self.records:
            if sent.client.number == client.number and sent.state is State.OPEN:
                sent.shaken = True
        self.troubled.add(client.number)
