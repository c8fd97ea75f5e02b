"""What the network, the brokers and readers do, at anybody's request."""

from collections.abc import Iterator

from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.snapshot import snapshot_records
from kproxy.txn.snapshot_views import encode_views
from verification.models.transaction_log import bodies
from verification.models.transaction_log.answers import Answers
from verification.models.transaction_log.broken_views import stated
from verification.models.transaction_log.broker import Answer, arrive
from verification.models.transaction_log.log import Item, Known, body_of, entry_of, is_known, step
from verification.models.transaction_log.protocol import CLAIMED
from verification.models.transaction_log.rules import Run
from verification.models.transaction_log.state import (
    DELETE,
    EXPIRE,
    LOG,
    NOBODY,
    REJECT,
    SNAPSHOT,
    Move,
    Request,
    State,
    Tail,
    request,
    who,
)

_NO_PRODUCER = Producer(-1, -1)
_STRAY = bodies.producer(900, 0)


class Events:
    """The events of one run."""

    def __init__(self, run: Run, answers: Answers) -> None:
        """By the run's rules."""
        self.run = run
        self._answers = answers

    def __call__(self, s: State) -> Iterator[Move]:
        """Each next state, with what happened."""
        yield from self._network(s)
        yield from self._trouble(s)
        yield from self._expiry(s)
        yield from self._snapshots(s)
        yield from self._reader(s)
        yield from self._unknown(s)

    def _network(self, s: State) -> Iterator[Move]:
        for at, q in enumerate(s.flying):
            if at and s.flying[at - 1] == q:
                continue
            rest = s.flying if q.to == DELETE else (*s.flying[:at], *s.flying[at + 1 :])  # late, and again
            t, answer = self._deliver(s._replace(flying=rest), q)
            name = f"{_sent(q)} arrives: {answer.error or _where(answer)}"
            yield name, self._answers.answered(t, q, answer)
            if s.budget("lost") and (q.to == SNAPSHOT or (q.to == LOG and s.actors[q.source].waits is not None)):
                t = t.send(q) if q.to == SNAPSHOT else t
                yield f"{name}; the answer is lost", t.spend("lost")
            if s.budget("refuse") and isinstance(q.to, int):
                yield from self._refuse(s._replace(flying=rest), q)

    def _deliver(self, s: State, q: Request) -> tuple[State, Answer]:
        nothing = Answer("", -1, ())
        if q.to == DELETE:
            return s._replace(start=max(s.start, q.body)), nothing
        if q.to == REJECT:
            return s._replace(rejected=s.rejected | {q.body}), nothing
        if q.to == SNAPSHOT:  # not fenced: each copy is appended
            return self._appended_snapshot(s._replace(log=s.log.add(q.body)), q.body), nothing
        if q.to == EXPIRE:
            return s._replace(log=s.log.add(q.body)), nothing
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
        if self._answers.answered(s, q, Answer("", 0, ())) == s:
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
            yield f"the group's input goes to {who(member)}", t

    def _expiry(self, s: State) -> Iterator[Move]:
        claim = s.log.views[0].claim
        if s.budget("expire") and claim is not None:
            number = int.from_bytes(claim.nonce, "big")
            item = Item(encode(Entry("0", bodies.expiry(number))), f"EXPIRY of claim {number}")
            yield f"somebody sends {item.what}", s.spend("expire").send(request(NOBODY, EXPIRE, _NO_PRODUCER, 0, item))

    def _snapshots(self, s: State) -> Iterator[Move]:
        if not s.budget("snaps") or not s.log.end:
            return
        writer, up_to = s.budget("snaps"), s.log.end
        states = [s.views(up_to)]
        if not self.run.is_kproxys("state"):
            waiting = [a.waits.body.raw for a in s.actors if a.phase == "ending" and a.waits is not None]
            states = [step(states[0], entry_of(raw), up_to) for raw in waiting]
        for views in states:
            views = stated(self.run, views)
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

    def _unknown(self, s: State) -> Iterator[Move]:
        if s.budget("stray"):
            batches, table = s.data[0]
            data = (((*batches, (_STRAY, 0, ("stray", 0))), table), *s.data[1:])
            yield "a batch of a lost log's transaction is met", s.spend("stray")._replace(data=data)
        if not s.budget("rejects") or self.run.rules["reject"] == "never":
            return
        met = {part.producer_id for batches, _ in s.data for part, _, _ in batches}
        if self.run.rules["reject"] == "guessed":
            met.add(bodies.producer(CLAIMED + s.number, 0).producer_id)
        for position in range(s.log.end + 1) if self.run.rules["reject"] == "anywhere" else [s.log.end]:
            for producer_id in sorted(met):
                if not is_known(s.views(position), producer_id):
                    t = s.spend("rejects").send(request(NOBODY, REJECT, _NO_PRODUCER, 0, producer_id))
                    yield f"somebody who has read to {position} rejects producer id {producer_id:#x}", t


def _where(answer: Answer) -> str:
    if answer.offset < 0:
        return "done"
    return f"at offset {answer.offset}" if answer.is_new else f"a duplicate of offset {answer.offset}"


def _sent(q: Request) -> str:
    if q.to == DELETE:
        return f"DeleteRecords before {q.body}"
    if q.to == REJECT:
        return f"REJECT {q.body:#x}"
    if q.to in (SNAPSHOT, EXPIRE):
        return str(q.body.what)
    what = q.body.what if q.to == LOG else f"a batch to {q.to}"
    return f"{who(q.source)}'s {what} (epoch {q.producer.epoch}, sequence {q.sequence})"
