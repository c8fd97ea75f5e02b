"""Every short run of one producer of equal records: what its client, kproxy's clock and the broker may do, by steps.

A run is a string, a letter for each step:

- ``a``, ``b`` the client sends a new record with that value; ``r`` it sends again what was not acknowledged, the oldest
- ``w`` the broker writes the oldest batch, and its response arrives; ``o`` that of the connection before
- ``t`` time passes until kproxy has to answer the oldest request; ``l`` so, but kproxy does not look at the time yet
- ``p`` time passes until the client gives the oldest request up; it stays on its connection
- ``x`` from now on no response reaches the client; ``c`` it closes its connection, and opens another one
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.dedup.digest import UNTIMED
from kproxy.dedup.lanes import Lane
from kproxy.dedup.retry_ledger import ReadBack
from kproxy.proxy.commands import Resolve
from kproxy.proxy.retries import digests_at
from kproxy.proxy.waiting_request import WaitingRequest
from tests.dedup.wires import ONE, FakeWire, ledger
from tests.proxy.playbook import KAFKA_44, PID, Play

LIMIT = 1 << 20


def _request(topic: str, records: bytes) -> ProduceRequest:
    part = ProduceRequestPartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[ProduceRequestTopicProduceData(name=topic, partition_data=[part])]
    )


def _response(topic: str, offset: int) -> ProduceResponse:
    row = ProduceResponsePartitionProduceResponse(index=0, base_offset=offset)
    return ProduceResponse(responses=[ProduceResponseTopicProduceResponse(name=topic, partition_responses=[row])])


#: Seconds: the client's own time-out, and when kproxy answers.
PATIENCE, DUE = 10.0, 9.0


@dataclass(eq=False)
class Sent:
    """A record that the client means to write once."""

    number: int
    letter: str
    time: int
    #: When its last attempt was sent, over which connection, and what came of it.
    at: float = 0.0
    over: "Link | None" = None
    offset: int | None = None
    #: Its last attempt got an error, or a response too late, or none in time.
    amiss: bool = False
    #: kproxy can't know whether it is one that was sent before.
    excused: bool = False

    def batch(self) -> bytes:
        """It alone."""
        return bytes(build_batch([Record(0, self.time, None, self.letter.encode(), ())]))


@dataclass(eq=False)
class Link:
    """A connection: requests that kproxy has not taken, and those without a response, in order."""

    play: Play
    wire: FakeWire
    waiting: deque[tuple[bytearray, float]] = field(default_factory=deque)
    #: The first of these, if it was handed in.
    head: WaitingRequest | None = None
    flight: deque[tuple[Sent, float]] = field(default_factory=deque)
    upstream: deque[tuple[int, int, Sent]] = field(default_factory=deque)
    by_id: dict[int, Sent] = field(default_factory=dict)
    deaf: bool = False
    ended: bool = False
    #: Bytes that the client has read.
    had: int = 0


class Run:
    """One run. ``depth``: requests that the client sends before it reads a response."""

    def __init__(self, depth: int, *, timed: bool) -> None:
        self.depth, self.timed = depth, timed
        self.now = 1000.0
        self.book = ledger()
        self.links: list[Link] = []
        self.sent: list[Sent] = []
        self.log: list[Sent] = []
        self._connect()

    @property
    def link(self) -> Link:
        """The connection that the client uses."""
        return self.links[-1]

    def _connect(self) -> None:
        play, wire = Play(), FakeWire(written=0)
        play.session.connected(KAFKA_44, 1)
        self.now += 0.01
        play.session.join(self.book.enter(ONE, wire, self.now))
        play.session.lease(Lane(PID + len(self.links)))
        play.session.read_all(self.now)
        self.links.append(Link(play, wire))

    # -- steps

    def steps(self) -> Iterator[str]:
        """What may happen next."""
        link = self.link
        owed = [sent for sent, _ in link.flight if sent.over is link and not sent.amiss]
        todo = self.todo()
        if len(owed) < self.depth:
            if todo:
                yield "r"
            else:
                yield from "ab"
        if link.upstream:
            yield "w"
        if any(old.upstream for old in self.links[:-1]):
            yield "o"
        if owed:
            yield from "tl" if link.deaf else "tlpx"
        if (owed or todo) and len(self.links) < 3:
            yield "c"

    def todo(self) -> list[Sent]:
        """What the client has to send again."""
        owed = {sent for sent, _ in self.link.flight if sent.over is self.link and not sent.amiss}
        return [sent for sent in self.sent if sent.offset is None and sent not in owed]

    def step(self, what: str) -> None:
        """Does one step."""
        self.now += 0.01
        match what:
            case "r":
                self._send(self.todo()[0])
            case "w":
                self._write(self.link)
            case "o":
                self._write(next(old for old in self.links[:-1] if old.upstream))
            case "t" | "l" | "p":
                self._wait(what)
            case "x":
                self.link.deaf = True
            case "c":
                self._close()
            case _:
                self._new(what)
        self._pump()

    def _new(self, letter: str) -> None:
        number = len(self.sent)
        sent = Sent(number, letter, 1_700_000_000_000 + number if self.timed else UNTIMED)
        self.sent.append(sent)
        self._send(sent)

    def _send(self, sent: Sent) -> None:
        link = self.link
        for other in self.sent:
            if other is not sent and other.letter == sent.letter and not self.timed:
                sent.excused |= self._may_be_taken_for(other)
        frame = link.play.frame(_request("t", sent.batch()), 7)
        link.by_id[link.play.correlation_id] = sent
        sent.at, sent.over, sent.amiss = self.now, link, False
        link.waiting.append((frame, self.now))
        link.flight.append((sent, self.now))

    def _may_be_taken_for(self, other: Sent) -> bool:
        """Whether what is sent now may as well be a retry of an equal record without a timestamp.

        That one was answered over a connection that has ended; or it is overdue on this one.
        """
        if other.offset is None:
            return other.over is self.link and not other.amiss and self.now >= other.at + DUE
        return other.over is not self.link

    def _write(self, link: Link) -> None:
        version, correlation_id, sent = link.upstream.popleft()
        self.log.append(sent)
        link.play.answered_at = self.now
        link.play.reply(_response("t", len(self.log) - 1), version, correlation_id)

    def _wait(self, what: str) -> None:
        since = next(at for sent, at in self.link.flight if sent.over is self.link and not sent.amiss and sent.at == at)
        self.now = max(self.now, since + (PATIENCE if what == "p" else DUE) + 0.01)
        if what != "l":
            self._pump(looks=True)
        if what == "p":
            for sent, at in self.link.flight:
                if sent.offset is None and at == sent.at <= self.now - PATIENCE:
                    sent.amiss = True

    def _close(self) -> None:
        link = self.link
        link.wire.gone, link.wire.reset = True, link.deaf
        self._connect()

    # -- kproxy

    def _pump(self, *, looks: bool = False) -> None:
        for link in self.links:
            if looks:
                link.play.session.time_out(self.now)
            _account(link)
            self._take(link, looks=looks)
            if link.wire.gone and not link.waiting and not link.ended:
                link.ended = True
                link.play.session.client_ended(self.now)
            self._read(link)

    def _take(self, link: Link, *, looks: bool) -> None:
        session = link.play.session
        while link.waiting:
            frame, arrived_at = link.waiting[0]
            session.read_all(arrived_at)
            if link.head is None:
                link.head = session.request(frame, self.now)
            else:
                link.head.resume(self.now)
            if link.head is not None:
                command = link.head.command
                if isinstance(command, Resolve):
                    assert isinstance(command.prerequisite, ReadBack)
                    for entry in command.prerequisite.entries:
                        at = entry.stamp.base_offset
                        entry.recall(digests_at(self.log[at].batch(), LIMIT)[0], [at])
                    continue
                if command is not None:
                    due = link.head.due
                    if not looks or due is None or due > self.now or link.wire.gone:
                        return
                    link.head.refuse(self.now)
                link.head.close()
                link.head = None
            link.waiting.popleft()
            for version, correlation_id, _ in link.play.upstream():
                link.upstream.append((version, correlation_id, link.by_id[correlation_id]))

    def _read(self, link: Link) -> None:
        for version, correlation_id, _ in link.play.upstream():
            link.upstream.append((version, correlation_id, link.by_id[correlation_id]))
        _account(link)
        if link.deaf or link.wire.gone:
            link.play.session.to_client.clear()
            return
        link.had = link.wire.written
        for answer in link.play.answers():
            self._answered(link, answer.responses[0].partition_responses[0])

    def _answered(self, link: Link, row: ProduceResponsePartitionProduceResponse) -> None:
        sent, at = link.flight.popleft()
        if sent.over is not link or sent.at != at or sent.amiss:
            return  # it was given up: the response is discarded
        if row.error_code:
            assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
            sent.amiss = True
            return
        sent.offset = row.base_offset
        sent.amiss = self.now >= at + DUE

    # -- the end

    def finish(self) -> None:
        """All is well from now on, until all records are acknowledged."""
        if self.link.deaf:
            self._close()
        while self._is_busy():
            self.now += 0.01
            behind = next((link for link in self.links if link.upstream), None)
            if behind is not None:
                self._write(behind)
            elif not any(link.waiting for link in self.links):
                self._send(self.todo()[0])
            self._pump()

    def _is_busy(self) -> bool:
        assert self.now < 1_300, "it does not come to an end"
        return bool(self.todo()) or any(link.upstream or link.waiting or not self._is_read(link) for link in self.links)

    def _is_read(self, link: Link) -> bool:
        return link is not self.link or not link.flight

    def flaw(self) -> str | None:
        """What is wrong with the log."""
        sent, written = Counter(one.letter for one in self.sent), Counter(one.letter for one in self.log)
        for letter, count in sent.items():
            mine = [one for one in self.sent if one.letter == letter]
            if written[letter] > count:
                return f"{letter} is written {written[letter]} times, and was sent {count} times"
            merged = written[letter] < count or len({one.offset for one in mine}) < count
            if merged and not any(one.excused for one in mine):
                return f"of {count} {letter} {written[letter]} were written, answered {[one.offset for one in mine]}"
        return None


def _account(link: Link) -> None:
    """What kproxy's kernel says of the responses."""
    link.wire.written = link.play.link.position
    if link.deaf or link.wire.gone:
        link.wire.missing = link.wire.written - link.had


def replayed(run: str, depth: int, *, timed: bool) -> Run:
    """The state after some steps."""
    state = Run(depth, timed=timed)
    for step in run:
        state.step(step)
    return state


def runs(length: int, depth: int, *, timed: bool, begin: str = "") -> Iterator[str]:
    """All runs of so many steps."""
    if len(begin) == length:
        yield begin
        return
    for step in list(replayed(begin, depth, timed=timed).steps()):
        yield from runs(length, depth, timed=timed, begin=begin + step)


def flaw(run: str, depth: int, *, timed: bool) -> str | None:
    """What a run breaks."""
    state = replayed(run, depth, timed=timed)
    state.finish()
    return state.flaw()
