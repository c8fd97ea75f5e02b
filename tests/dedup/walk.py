"""Random walks through what clients, networks, kproxy and a broker may do to one partition, in memory.

Legacy clients know nothing of sequences: they lose responses, close, reconnect, regroup, give up. The ledger, its rules
and the matching are the real ones; the rest of kproxy is as small as possible. What must hold at each step:

D1 what was acknowledged is in the log; D2 nothing is in the log more often than it was sent; D3 no record is matched
with another equal one; D4 a client with one request in flight has its records in order; D5 returned offsets are true.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kproxy.codec.batch import Record, build_batch, iter_records, read_header
from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup.digest import Digests
from kproxy.dedup.identity import Identity
from kproxy.dedup.lanes import Lane, Send
from kproxy.dedup.matching import offset_of
from kproxy.dedup.producer_connection import ProducerConnection, Suspect
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.dedup.retry_ledger import FoundBatch, ReadBack, Recover, SeeEnd, Settle
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import PendingProduce, UnconfirmedBatch
from kproxy.proxy.produce_calls import PartitionCall
from kproxy.proxy.retries import Retries, digests_at
from kproxy.proxy.retry_stats import RetryStats
from tests.dedup.broker_model import Partition
from tests.dedup.readings import Batches
from tests.dedup.wires import FakeWire, Ledgers

KEY = (b"t", 0)
ARRIVAL_MS = 7
IN_FLIGHT = 5
LIMIT = 1 << 20
ANSWER_BYTES = 10
PATIENCE = 10.0
#: After so long a client leaves a connection over which nothing comes.
TIME_OUT = 3.0

Sends = tuple[int, ...]
Move = Callable[[], None]


@dataclass
class Scenario:
    """Each client's program (batches of one letter for each record), its identity, and how often what may go wrong.

    ``timed``: each record has a timestamp of its own. Nothing else shows a retry on a connection that lives on after
    the client's own time-out.
    """

    programs: list[list[str]]
    identities: list[int]
    depth: int = 1
    regroup: bool = False
    timed: bool = False
    faults: dict[str, int] = field(default_factory=dict)


@dataclass
class Request:
    """A request that kproxy has not read yet."""

    number: int
    records: str
    times: list[int]
    due: float


@dataclass
class Owed:
    """A response that kproxy has not told yet."""

    number: int
    answer: PendingProduce
    part: PartitionCall


class Conn:
    """One connection, both ends."""

    def __init__(self, identity: int, opened_at: float) -> None:
        self.identity = identity
        self.opened_at = opened_at
        self.wire = FakeWire(written=0)
        self.up = True
        #: The client has left it, and the network keeps that from kproxy.
        self.hidden = False
        self.requests: list[Request] = []
        self.owed: list[Owed] = []
        #: What the client has not read: the request's number, and the base offset (None: an error).
        self.answers: list[tuple[int, int | None]] = []
        self.member: ProducerConnection | None = None
        self.lane: Lane | None = None
        self.position = 0


@dataclass
class Client:
    """What one client knows; records go by their place in its program."""

    program: list[str]
    conn: Conn
    tries: int
    following: int = 0
    number: int = 0
    flight: dict[int, Sends] = field(default_factory=dict)
    todo: list[Sends] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)

    @property
    def records(self) -> str:
        """All that it may send."""
        return "".join(self.program)

    def places(self, batch: int) -> Sends:
        """Of one batch of its program."""
        first = sum(map(len, self.program[:batch]))
        return tuple(range(first, first + len(self.program[batch])))


class Walk:
    """One walk; ``trace`` tells what happened."""

    def __init__(self, scenario: Scenario, rules: Rules, seed: int, *, always_rest: bool = False) -> None:
        """``always_rest``: as ``Ledgers`` has it."""
        self._always_rest = always_rest
        self.scenario = scenario
        self.rules = rules
        self.random = random.Random(seed)
        self.budget = Counter(scenario.faults)
        self.now = 1000.0
        self.trace: list[str] = []
        self.broker = Partition()
        self.log: list[tuple[int, bytes]] = []
        self.net: list[tuple[Send | None, bytes]] = []
        #: Whose outcome closes which answer.
        self.closing: dict[Send, tuple[ProducerConnection, PendingProduce]] = {}
        self.suspects: dict[int, list[Suspect]] = {}
        self.lanes: dict[int, list[Lane]] = {}
        self.producer_id = KPROXY_BIT
        self.conns: list[Conn] = []
        self._start()
        faults = ("re", "cut", "hide", "slow", "err", "crash")
        tries = sum(scenario.faults.get(fault, 0) for fault in faults) + 2 * scenario.regroup + scenario.depth - 1
        self.clients = [
            Client(program, self._connect(identity), tries)
            for program, identity in zip(scenario.programs, scenario.identities, strict=True)
        ]

    def _start(self) -> None:
        suspects = {str(identity): list(lanes) for identity, lanes in self.suspects.items()}
        self.ledgers = Ledgers(self.rules, lambda identity: suspects.get(identity.client_id, []))
        self.ledgers.always_rest = self._always_rest

    def _connect(self, identity: int) -> Conn:
        self.conns.append(Conn(identity, self.now + len(self.conns) / 1e6))
        return self.conns[-1]

    def run(self, steps: int) -> None:
        """Walks on until nothing can be done."""
        for _ in range(steps):
            moves = list(self._moves())
            if not moves:
                return
            name, move = self.random.choice(moves)
            self.trace.append(name)
            self.now += 0.01
            move()
            self._tell()
            self._check()

    # -- what may happen

    def _moves(self) -> Iterator[tuple[str, Move]]:
        for client in self.clients:
            yield from self._client_moves(client)
        for conn in self.conns:
            if conn.requests and self._may_accept(conn):
                yield f"kproxy reads {conn.requests[0].records}", lambda conn=conn: self._accept(conn)
            if conn.hidden:
                yield "its end is seen", lambda conn=conn: self._show(conn)
            if conn.up and conn.owed and not conn.owed[0].answer.closed and self.budget["err"]:
                yield "kproxy answers REQUEST_TIMED_OUT", lambda conn=conn: self._time_out(conn)
        for at, (send, _) in enumerate(self.net):
            yield "broker takes", lambda at=at: self._broker(at, lost=False)
            if self.budget["lost"] and send is not None:
                yield "broker takes, answer lost", lambda at=at: self._broker(at, lost=True)
            if self.budget["resend"] and send is not None:
                yield "kproxy sends again", lambda at=at: self._resend(at)
        if self.budget["crash"]:
            yield "kproxy crashes", self._crash

    def _client_moves(self, client: Client) -> Iterator[tuple[str, Move]]:
        conn = client.conn
        if conn.up and len(client.flight) < self.scenario.depth:
            yield from self._sends(client)
        if client.todo and self.budget["give"]:
            yield "gives up", lambda: self._give_up(client)
        if conn.answers:
            yield "reads", lambda: self._read(client)
        if conn.up and client.flight and self.budget["slow"] and self._untold(client):
            yield "times out", lambda: self._slow(client)
        if self.budget["re"] or not conn.up:
            yield "closes, reconnects", lambda: self._reconnect(client, cut=False)
        if self.budget["hide"] and conn.up and not conn.answers:  # else it is reset, and that seen, for granted
            yield "leaves unseen, reconnects", lambda: self._reconnect(client, cut=False, hidden=True)
        if self.budget["cut"] or not conn.up:
            yield "is cut, reconnects", lambda: self._reconnect(client, cut=True)

    def _sends(self, client: Client) -> Iterator[tuple[str, Move]]:
        depth = self.scenario.depth
        if client.following < len(client.program) and (not client.todo or depth > 1):
            yield f"sends {client.program[client.following]}", lambda: self._send_next(client, ())
        if client.todo and client.tries:
            for at in range(len(client.todo) if depth > 1 else 1):
                yield "sends again", lambda at=at: self._send_again(client, at, None)
            if self.scenario.regroup and len(client.todo[0]) > 1:
                yield "sends the first again", lambda: self._send_again(client, 0, 1)
            if self.scenario.regroup and client.following < len(client.program):
                yield "sends again with the next", lambda: self._send_joined(client)

    # -- clients

    def _send(self, client: Client, places: Sends) -> None:
        client.flight[client.number] = places
        text = "".join(client.records[at] for at in places)
        times = [ARRIVAL_MS + (at + 1 if self.scenario.timed else 0) for at in places]
        client.conn.requests.append(Request(client.number, text, times, self.now + PATIENCE))
        client.number += 1

    def _send_next(self, client: Client, before: Sends) -> None:
        client.following += 1
        self._send(client, before + client.places(client.following - 1))

    def _send_again(self, client: Client, at: int, count: int | None) -> None:
        client.tries -= 1
        places = client.todo.pop(at)
        if count is not None:
            places, rest = places[:count], places[count:]
            client.todo.insert(0, rest)
        self._send(client, places)

    def _send_joined(self, client: Client) -> None:
        client.tries -= 1
        before = tuple(at for places in client.todo for at in places)
        client.todo.clear()
        self._send_next(client, before)

    def _give_up(self, client: Client) -> None:
        self.budget["give"] -= 1
        client.todo.pop(0)

    def _read(self, client: Client) -> None:
        number, base = client.conn.answers.pop(0)
        places = client.flight.pop(number, None)
        if places is None:
            return
        if base is None:
            client.todo.insert(0, places)
            return
        for at, place in enumerate(places):
            client.acked[place] = -1 if base < 0 else base + at

    def _untold(self, client: Client) -> bool:
        first = next(iter(client.flight))
        return first not in {number for number, _ in client.conn.answers}

    def _slow(self, client: Client) -> None:
        self.budget["slow"] -= 1
        self.now += PATIENCE + 1
        client.todo.insert(0, client.flight.pop(next(iter(client.flight))))

    def _reconnect(self, client: Client, *, cut: bool, hidden: bool = False) -> None:
        conn = client.conn
        if conn.up:
            self.budget["hide" if hidden else "cut" if cut else "re"] -= 1
            self._end(conn, cut=cut, hidden=hidden)
        client.todo = [*client.flight.values(), *client.todo]
        client.flight.clear()
        client.conn = self._connect(conn.identity)

    def _end(self, conn: Conn, *, cut: bool, hidden: bool) -> None:
        """``hidden``: nothing of it is seen until ``_show``, and what is answered from now on is not acknowledged."""
        conn.up, conn.hidden = False, hidden
        conn.wire.gone = not hidden
        if hidden:
            self.now += TIME_OUT
        conn.wire.reset = cut or bool(conn.answers)
        if cut:
            conn.wire.missing = ANSWER_BYTES * self.random.randint(0, len(conn.answers))
            conn.requests.clear()
        conn.answers.clear()

    def _show(self, conn: Conn) -> None:
        conn.hidden, conn.wire.gone = False, True

    # -- kproxy

    def _member(self, conn: Conn) -> ProducerConnection:
        if conn.member is None or conn.lane is None:
            conn.member = self.ledgers.enter(Identity("", str(conn.identity), "h"), conn.wire, conn.opened_at)
            self.producer_id += 1
            conn.lane = Lane(self.producer_id)
            self.lanes.setdefault(conn.identity, []).append(conn.lane)
        return conn.member

    def _may_accept(self, conn: Conn) -> bool:
        """Whether the next request need not wait; does the searches that are due."""
        member, answer = self._member(conn), PendingProduce([PartitionData(KEY, 0, 0)], conn.requests[0].due)
        assert conn.lane is not None
        if not conn.lane.track(KEY).has_room(IN_FLIGHT):
            return False
        member.review(self.now)
        while not member.ledger.is_calm(member, answer):
            prerequisite = member.ledger.prerequisite(member, answer, self.now)
            if isinstance(prerequisite, Settle):
                return False
            if prerequisite is None:
                break
            if isinstance(prerequisite, SeeEnd):
                self.now = prerequisite.until
                if conn.hidden:
                    self._show(conn)  # for granted is taken that it comes so soon after what was sent before
                return False
            self._clear(member, prerequisite)
        return True

    def _clear(self, member: ProducerConnection, prerequisite: ReadBack | Recover) -> None:
        if isinstance(prerequisite, ReadBack):
            for entry in prerequisite.entries:
                self._recall(entry)
            return
        for lane in prerequisite.lanes:
            self.broker.mark(lane.producer_id, lane.fence_epoch)
        found = [FoundBatch(KEY, read_header(batch), *self._digests(at, batch), is_last=True) for at, batch in self.log]
        member.ledger.recovered(prerequisite, found, self.now)

    def _recall(self, entry: UnconfirmedBatch) -> None:
        for at, batch in self.log:
            header = read_header(batch)
            if (header.producer_id, header.producer_epoch, header.base_sequence) == (
                entry.stamp.producer_id,
                entry.stamp.epoch,
                entry.stamp.sequence,
            ):
                entry.recall(*self._digests(at, batch))

    @staticmethod
    def _digests(offset: int, batch: bytes) -> tuple[Digests, list[int]]:
        digests, deltas = digests_at(batch, LIMIT)
        return digests, [offset + delta for delta in range(len(deltas))]

    def _accept(self, conn: Conn) -> None:
        request, member, lane = conn.requests.pop(0), self._member(conn), conn.lane
        assert lane is not None
        answer, part = PendingProduce([PartitionData(KEY, 0, 0)], request.due), PartitionCall(*KEY)
        calm = member.ledger.is_calm(member, answer)
        pairs = zip(request.records, request.times, strict=True)
        records = [Record(at, time, None, text.encode(), ()) for at, (text, time) in enumerate(pairs)]
        batches = [(part, memoryview(build_batch(records)), len(records))]
        new = {KEY}
        if not calm and member.ledger.concern(member, answer, bytearray(), self.now):
            reading = Batches(LIMIT)
            retries = Retries(member, answer, self.now, reading, RetryStats())
            batches = reading.strip(retries, batches[0], ARRIVAL_MS)
            new = retries.new
        for _, data, count in batches:
            send = lane.track(KEY).accept(data, count, self.now)
            self.closing[send] = (member, answer)
            part.sends.append(send)
            self.net.append((send, bytes(data)))
        answer.sends = part.sends
        member.arrived(answer, self.now)
        if not calm:
            member.ledger.claim(member, answer, new, self.now)
        if part.error_code:
            return  # left to a newer connection
        conn.owed.append(Owed(request.number, answer, part))
        if not part.sends:
            member.closed(answer, self.now)

    def _time_out(self, conn: Conn) -> None:
        self.budget["err"] -= 1
        assert conn.member is not None
        if not conn.member.ended:
            conn.member.timed_out(conn.owed[0].answer)

    def _tell(self) -> None:
        """The responses whose turn it is; ends of connections are seen when all is read."""
        for conn in self.conns:
            for owed in conn.owed:
                late = self.now >= owed.answer.due and not (owed.answer.closed or owed.answer.timed_out)
                if late and conn.member is not None and not conn.member.ended:
                    conn.member.timed_out(owed.answer)
            while conn.owed and (conn.owed[0].answer.closed or conn.owed[0].answer.timed_out):
                owed = conn.owed.pop(0)
                if conn.hidden:
                    conn.wire.missing += ANSWER_BYTES
                elif not conn.up:
                    continue
                conn.position += ANSWER_BYTES
                conn.wire.written = owed.answer.position = conn.position
                owed.answer.at = self.now
                base = None if owed.answer.timed_out else self._base(owed.part)
                conn.answers.append((owed.number, base))
            read = not (conn.up or conn.requests or conn.hidden)
            if read and conn.member is not None and not conn.member.ended and self.random.random() < 0.5:
                conn.member.end(self.now)  # else the next connection may see it before
                conn.member.drained()

    @staticmethod
    def _base(part: PartitionCall) -> int:
        if part.matched:
            return offset_of(part.matched, whole=not part.sends)
        return part.sends[0].base_offset

    def _crash(self) -> None:
        self.budget["crash"] -= 1
        for identity, lanes in self.lanes.items():
            former = [Suspect(lane.producer_id, lane.epoch, lane.last_epoch) for lane in lanes]
            self.suspects.setdefault(identity, []).extend(former)
        self.lanes.clear()
        for conn in self.conns:
            conn.up = conn.hidden = False
            conn.requests.clear()
            conn.owed.clear()
            conn.answers.clear()
            conn.member = conn.lane = None
        self.net = [(None, batch) for _, batch in self.net]
        self._start()

    # -- the broker

    def _broker(self, at: int, *, lost: bool) -> None:
        send, batch = self.net[at]
        error, offset = self.broker.append(batch)
        if error:
            if send is None or send.settled:
                del self.net[at]
            return  # else it is sent again: as if it had not arrived
        if self.broker.end > self._end_of_log():
            self.log.append((offset, batch))
        if lost:
            self.budget["lost"] -= 1
            return  # it is sent again, and known then
        del self.net[at]
        if send is not None and not send.settled:
            send.track.answered(send, 0, offset, -1)
            member, answer = self.closing.pop(send)
            member.closed(answer, self.now)

    def _end_of_log(self) -> int:
        return self.log[-1][0] + read_header(self.log[-1][1]).record_count if self.log else 0

    def _resend(self, at: int) -> None:
        self.budget["resend"] -= 1
        self.net.append(self.net[at])

    # -- what must hold

    def _held(self) -> dict[int, str]:
        held: dict[int, str] = {}
        for offset, batch in self.log:
            for at, record in enumerate(iter_records(batch, max_decompressed_bytes=LIMIT)):
                held[offset + at] = (record.value or b"").decode()
        return held

    def _check(self) -> None:
        held = self._held()
        count, sent, acks, places = Counter(held.values()), Counter[str](), Counter[str](), Counter[int]()
        for client in self.clients:
            sent.update(client.records[at] for batch in range(client.following) for at in client.places(batch))
            acks.update(client.records[at] for at in client.acked)
            told = {at: offset for at, offset in sorted(client.acked.items()) if offset >= 0}
            places.update(told.values())
            for at in client.acked:
                assert count[client.records[at]], ("D1", self.trace)
            for at, offset in told.items():
                assert held.get(offset) == client.records[at], ("D5", self.trace)
            if self.scenario.depth == 1:
                assert sorted(told.values()) == list(told.values()), ("D4", self.trace)
        assert all(number <= sent[record] for record, number in count.items()), ("D2", self.trace)
        assert all(number <= count[record] for record, number in acks.items()), ("D3", self.trace)
        assert all(number == 1 for number in places.values()), ("D3", self.trace)
