"""Everything that can happen next."""

from collections.abc import Iterator
from typing import TypeAlias

from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.testing.txn_model import bodies
from kproxy.testing.txn_model.broker import Answer, arrive
from kproxy.testing.txn_model.log import Item, Known, body_of, entry_of, step
from kproxy.testing.txn_model.protocol import Protocol
from kproxy.testing.txn_model.rules import Run
from kproxy.testing.txn_model.state import (
    DELETE,
    LOG,
    NOBODY,
    SNAPSHOT,
    Actor,
    Asking,
    Request,
    State,
    Tail,
    Told,
    request,
)
from kproxy.txn.ids import Producer
from kproxy.txn.snapshot import snapshot_records
from kproxy.txn.snapshot_views import encode_views

Move: TypeAlias = tuple[str, State]

_NO_PRODUCER = Producer(-1, -1)


class Moves:
    """The moves of one run."""

    def __init__(self, run: Run) -> None:
        """By the run's rules."""
        self.run = run
        self._protocol = Protocol(run)

    def __call__(self, s: State) -> Iterator[Move]:
        """Each next state, with what happened."""
        for i in range(len(s.actors)):
            if self._protocol.is_member(i):
                yield from self._member(s, i)
            else:
                yield from self._claiming(s, i)
                yield from self._owner(s, i)
            yield from self._again(s, i)
        yield from self._network(s)
        yield from self._trouble(s)
        yield from self._snapshots(s)
        yield from self._reader(s)

    # -- instances

    def _claiming(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        if a.phase == "idle" and s.budget("claims"):
            for position in range(a.read, s.log.end + 1):  # however far its view lags
                t = self._protocol.claim(s, i, position)
                yield f"{_who(i)} claims {_first(t.actors[i])}, having read to {position}", t

    def _owner(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        if a.phase == "own" and s.budget("txns") and self._may_begin(s, i):
            yield f"{_who(i)} begins at epoch {a.epoch}", self._protocol.begin(s, i)
        if a.phase == "own" and self.run.prepare:
            yield from self._decide_prepared(s, i)
        if a.phase == "tx" and a.waits is None:
            yield from self._ending(s, i)
        if s.asking is not None and a.phase in ("idle", "own"):
            yield from self._answer_again(s, i)
        if s.budget("crash") and a.phase != "idle":
            asking = s.asking
            if self.run.repeat and a.phase in ("tx", "ending") and len(a.acked) == len(a.todo):
                asking = Asking(a.name, a.part)
            t = self._protocol.give_up(s.spend("crash"), i, s.log.end)
            yield f"{_who(i)} crashes, starts again and reads the log to its end", t._replace(asking=asking)

    def _may_begin(self, s: State, i: int) -> bool:
        if self.run.repeat and (s.asking is not None or any(a.name for n, a in enumerate(s.actors) if n != i)):
            return False  # the one client is busy
        if not self.run.group:
            return True
        stable = self.run.rules["fetch"] == "any" or not any(view.pending for view in s.log.views)
        return bool(s.actors[i].generation) and stable and not any(view.committed for view in s.log.views)

    def _ending(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        own = self._protocol
        members = [m for m in s.actors if m.phase == "mdone" and m.name[0] == a.name]
        done = not a.must_abort and len(a.acked) == len(a.todo)
        if self.run.prepare == 1:
            if done:
                yield f"{_who(i)} prepares its part", own.prepare(s, i)
        elif done and (not self.run.members or members) and not self._lacks_prepared(s, members):
            if not a.gates:
                yield f"{_who(i)} sends COMMIT", own.decide(s, i, True, members)
            elif a.gates[0] == "announce":
                yield f"{_who(i)} announces its group offsets", own.announce_offsets(s, i)
            else:
                yield from self._check(s, i)
        if a.must_abort or s.budget("abort"):
            yield f"{_who(i)} sends ABORT", own.decide(s, i, False, [])

    def _lacks_prepared(self, s: State, members: list[Actor]) -> bool:
        return self.run.prepare == 2 and not {m.part for m in members} <= {one.part for one in s.reported}

    def _check(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        assert s.group is not None
        is_same = s.group[0] == (a.began if self.run.is_kproxys("generation") else a.generation)
        t = s.put(i, gates=a.gates[1:]) if is_same else s.put(i, must_abort=True)
        yield f"{_who(i)} checks the group's generation: {is_same}", t

    def _decide_prepared(self, s: State, i: int) -> Iterator[Move]:
        parts = {one.part for one in s.reported}
        if not parts or parts & {told.part for told in s.told}:
            return
        if self.run.prepare == 1 and len(parts) == 1 + self.run.members:
            yield f"{_who(i)} sends COMMIT of what is prepared", self._protocol.decide_prepared(s, i, True)
        if s.budget("abort"):
            yield (
                f"{_who(i)} sends ABORT of what is prepared",
                self._protocol.decide_prepared(s.spend("abort"), i, False),
            )

    def _answer_again(self, s: State, i: int) -> Iterator[Move]:
        """The client's EndTxn comes again, to an instance that knows nothing but the log."""
        view = s.views(s.log.end)[0]
        assert s.asking is not None
        if view.ongoing is not None:
            return  # it is claimed first
        committed = not (view.is_doomed and self.run.is_kproxys("adopt"))
        told = Told(s.asking.name, s.asking.part, committed, again=True)
        t = s._replace(told=s.told | {told}, asking=None).put(i, read=s.log.end)
        yield f"{_who(i)} answers the repeated EndTxn: {'committed' if committed else 'aborted'}", t

    # -- members

    def _member(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        if a.phase == "idle" and s.budget("claims") and s.log.views[0].claim is not None:
            yield f"{_who(i)} joins as a member", self._protocol.join(s, i)
        if a.phase == "mtx" and len(a.acked) == len(a.todo):
            if self.run.prepare:
                yield f"{_who(i)} prepares its part", self._protocol.prepare(s, i)
            else:
                yield f"{_who(i)} reports its batch", s.put(i, phase="mdone")

    # -- the network

    def _again(self, s: State, i: int) -> Iterator[Move]:
        if not s.budget("resend"):
            return
        a = s.actors[i]
        if a.phase == "tx":
            for q in self._protocol.batches(a, i):
                again = a.again | {(q.to, q.body[1])}
                yield f"{_who(i)} sends its batch to {q.to} again", s.spend("resend").put(i, again=again).send(q)
        if a.waits is not None:
            yield f"{_who(i)} sends its {a.waits.body.what} again", s.spend("resend").send(a.waits)

    def _network(self, s: State) -> Iterator[Move]:
        for at, q in enumerate(s.flying):
            if at and s.flying[at - 1] == q:
                continue
            rest = s.flying if q.to == DELETE else (*s.flying[:at], *s.flying[at + 1 :])  # late, and again
            t, answer = self._deliver(s._replace(flying=rest), q)
            name = f"{_sent(q)} arrives: {answer.error or _where(answer)}"
            yield name, self._protocol.answered(t, q, answer)
            if s.budget("lost") and (q.to == SNAPSHOT or (q.to == LOG and s.actors[q.source].waits is not None)):
                t = t.send(q) if q.to == SNAPSHOT else t
                yield f"{name}; the answer is lost", t.spend("lost")
            if s.budget("refuse") and isinstance(q.to, int):
                yield from self._refuse(s._replace(flying=rest), q)

    def _deliver(self, s: State, q: Request) -> tuple[State, Answer]:
        nothing = Answer("", -1, ())
        if q.to == DELETE:
            return s._replace(start=max(s.start, q.body)), nothing
        if q.to == SNAPSHOT:  # not fenced: each copy is appended
            return self._appended_snapshot(s._replace(log=s.log.add(q.body)), q.body), nothing
        if q.to == LOG:
            answer = arrive(s.table, s.log.end, q.producer, q.sequence)
            log = s.log.add(q.body) if answer.is_new else s.log
            return s._replace(log=log, table=answer.table), answer
        assert isinstance(q.to, int)
        batches, table = s.data[q.to]
        answer = arrive(table, len(batches), q.producer, q.sequence)
        if answer.is_new:
            batches = (*batches, (q.producer, q.sequence, q.body))
        return s._replace(data=(*s.data[: q.to], (batches, answer.table), *s.data[q.to + 1 :])), answer

    def _appended_snapshot(self, s: State, item: Item) -> State:
        chunk = body_of(item)
        assert isinstance(chunk, TransactionSnapshot)
        come = {
            body.chunk
            for body in map(body_of, s.log.records)
            if isinstance(body, TransactionSnapshot) and (body.up_to, body.writer) == (chunk.up_to, chunk.writer)
        }
        delete = request(NOBODY, DELETE, _NO_PRODUCER, 0, chunk.up_to)
        return s.send(delete) if len(come) == chunk.chunks and delete not in s.flying else s

    def _refuse(self, s: State, q: Request) -> Iterator[Move]:
        i, a = q.source, s.actors[q.source]
        if self._protocol.answered(s, q, Answer("", 0, ())) == s:
            return
        s = s.spend("refuse")
        if self.run.is_kproxys("refused"):
            t = s.put(i, must_abort=True)
        else:  # the client hears an error for this one alone; the next takes its place
            old, new = (q.to, q.body[1]), (q.to, 9)
            t = s.put(i, todo=a.todo - {old} | {new}).send(request(i, q.to, q.producer, q.sequence, (a.name, 9)))
        yield f"{_sent(q)} is refused for good", t

    # -- what goes wrong, or on

    def _trouble(self, s: State) -> Iterator[Move]:
        if s.budget("forget_log"):
            for row in s.table:
                table = tuple(other for other in s.table if other != row)
                yield f"the log forgets producer id {row[0]}", s.spend("forget_log")._replace(table=table)
        if s.budget("forget_data"):
            for p, (batches, _) in enumerate(s.data):
                data = (*s.data[:p], (batches, ()), *s.data[p + 1 :])
                yield f"partition {p} forgets its producer ids", s.spend("forget_data")._replace(data=data)
        if s.budget("back") and s.start:
            yield "the log moves to a replica where nothing was deleted yet", s.spend("back")._replace(start=0)
        if s.budget("rebalance") and s.group is not None:
            generation, member = s.group[0] + 1, 1 - s.group[1]
            t = s.spend("rebalance")._replace(group=(generation, member)).put(member, generation=generation)
            yield f"the group's input goes to {_who(member)}", t

    def _snapshots(self, s: State) -> Iterator[Move]:
        if not s.budget("snaps") or not s.log.end:
            return
        writer, up_to = s.budget("snaps"), s.log.end
        states = [s.views(up_to)]
        if not self.run.is_kproxys("state"):
            waiting = [a.waits.body.raw for a in s.actors if a.phase == "ending" and a.waits is not None]
            states = [step(states[0], entry_of(raw), up_to) for raw in waiting]
        for views in states:
            size = -(-len(encode_views(views)) // self.run.chunks)
            raws = snapshot_records(views, up_to, bodies.nonce(writer), size)
            chunks = [Item(raw, f"SNAPSHOT({up_to}, {n + 1} of {len(raws)})") for n, raw in enumerate(raws)]
            sent = [request(NOBODY, SNAPSHOT, _NO_PRODUCER, 0, item) for item in chunks]
            if not self.run.is_kproxys("delete"):
                sent.append(request(NOBODY, DELETE, _NO_PRODUCER, 0, up_to))
            yield f"somebody who has read it writes a snapshot of [0, {up_to})", s.spend("snaps").send(*sent)

    def _reader(self, s: State) -> Iterator[Move]:
        if s.tail is None:
            return
        start, position, known = s.tail
        if position < s.start:
            kept = known if self.run.rules["below"] == "skip" else None
            yield "the reader is below the log start", s._replace(tail=Tail(s.start, s.start, kept))
        elif position < s.log.end:
            if known is None:
                views = s.log.load(start, position + 1)
            else:
                views = step(known.views, entry_of(s.log.records[position].raw), position)
            following = Known(views) if views is not None else None
            yield f"the reader reads offset {position}", s._replace(tail=Tail(start, position + 1, following))


def _who(i: int) -> str:
    return "ABC"[i]


def _first(a: Actor) -> str:
    assert a.own is not None
    return f"epoch {a.own.first.epoch} of generation {a.own.generation}"


def _where(answer: Answer) -> str:
    if answer.offset < 0:
        return "done"
    return f"at offset {answer.offset}" if answer.is_new else f"a duplicate of offset {answer.offset}"


def _sent(q: Request) -> str:
    if q.to == DELETE:
        return f"DeleteRecords before {q.body}"
    if q.to == SNAPSHOT:
        return str(q.body.what)
    what = q.body.what if q.to == LOG else f"a batch to {q.to}"
    return f"{_who(q.source)}'s {what} (epoch {q.producer.epoch}, sequence {q.sequence})"
