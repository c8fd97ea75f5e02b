"""What kproxy's instances, and members of their transactions, send."""

from typing import Final

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import Message
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.view import IdView
from verification.models.transaction_log import bodies
from verification.models.transaction_log.log import Item, Written
from verification.models.transaction_log.rules import Run
from verification.models.transaction_log.state import LOG, Actor, Own, Reported, Request, State, request

#: Producer ids of claims and of members.
CLAIMED, JOINED = 100, 200
TOPIC: Final = "t"
#: In place of a partition: what is wanted there are a group's offsets.
OFFSETS: Final = -1
#: More than there are.
_EPOCHS: Final = 100


class Protocol:
    """The protocol of one run: each function gives the state after a step."""

    def __init__(self, run: Run) -> None:
        """By the run's rules."""
        self.run = run

    # -- the log

    def append(
        self, s: State, i: int, body: Message, what: str, *, want: Written = frozenset(), header: Producer | None = None
    ) -> State:
        """Instance i appends a record under its claim, and waits for the response."""
        a = s.actors[i]
        assert a.own is not None
        item = Item(encode(Entry(str(self.id_of(i)), body)), what, a.name, want)
        sent = request(i, LOG, header or a.own.first, a.sequence, item)
        return s.put(i, waits=sent, sequence=a.sequence + 1).send(sent)

    def id_of(self, i: int) -> int:
        """Members write of the owner's id."""
        return 0 if self.is_member(i) else i % self.run.ids

    def is_member(self, i: int) -> bool:
        """Whether an actor is a member of others' transactions."""
        return 0 < i <= self.run.members

    def give_up(self, s: State, i: int, read: int) -> State:
        """The instance continues without a claim; a member is done."""
        a = s.actors[i]
        phase = "done" if self.is_member(i) else "idle"
        left = Actor(phase=phase, read=read, generation=a.generation)
        return s._replace(actors=(*s.actors[:i], left, *s.actors[i + 1 :]))

    # -- claims

    def behind(self, view: IdView, number: int) -> Own:
        """The next claim: the next block of epochs, or the next generation."""
        claim = view.claim
        if claim is None:
            return Own(1, bodies.producer(CLAIMED + number, 0), number)
        if claim.end_epoch + self.run.block - 1 <= self.run.last_epoch:
            return Own(claim.generation, Producer(claim.producer_id, claim.end_epoch), number)
        return Own(claim.generation + 1, bodies.producer(CLAIMED + number, 0), number)

    def claim_record(self, own: Own, client: Producer = bodies.CLIENT, continued: Producer = NOBODY) -> Message:
        """What it appends for that."""
        block = self.run.block
        return bodies.claim(
            own.number, own.first, epochs=block, generation=own.generation, client=client, continued=continued
        )

    def claim(
        self, s: State, i: int, position: int, client: Producer = bodies.CLIENT, continued: Producer = NOBODY
    ) -> State:
        """Claims on top of the view of an instance that has read so far."""
        own = self.behind(s.views(position)[self.id_of(i)], s.number)
        s = s.spend("claims")._replace(number=s.number + 1)
        s = s.put(i, phase="claiming", read=position, own=own, sequence=0, epoch=own.first.epoch)
        return self.append(s, i, self.claim_record(own, client, continued), "CLAIM")

    # -- a transaction

    def begin(self, s: State, i: int) -> State:
        """Begins under the next epoch of the block."""
        a = s.actors[i]
        assert a.own is not None
        part = Producer(a.own.first.producer_id, a.epoch)
        todo = frozenset((p, 0) for p in range(self.run.partitions if self.run.batches else 0))
        gates = tuple(self.run.rules["offsets"].split("-")) if self.run.group else ("announce",) * self.run.consumes
        name = (a.own.number, a.epoch)
        s = s.put(i, phase="tx", name=name, part=part, todo=todo, must_abort=False, gates=gates, began=a.generation)
        if not todo:
            return s
        body = self.announcement(s.actors[i])
        if not self.run.is_kproxys("next"):
            if a.sequence == 0:  # announced, and nobody waits for it
                s = self.append(s, i, body, "PARTITIONS").put(i, waits=None)
        elif self.run.rules["begin"] == "reused":
            s = self.append(s, i, body, "PARTITIONS").put(i, waits=None, sequence=a.sequence)
        elif self.run.rules["begin"] == "awaited":
            return self.append(s.put(i, phase="beginning"), i, body, "PARTITIONS")
        return self.write(s, i)

    def announcement(self, a: Actor) -> Message:
        """The partitions of its transaction; no client has written there before."""
        assert a.own is not None
        return bodies.partitions(
            a.own.number, a.part, {(TOPIC, p): 0 for p, _ in a.todo - set(dict(a.acked))}, first_sequence=0
        )

    def write(self, s: State, i: int) -> State:
        """Sends the batches."""
        return s.send(*self.batches(s.actors[i], i))

    def batches(self, a: Actor, i: int) -> list[Request]:
        """Those that are not acknowledged."""
        return [request(i, p, a.part, 0, (a.name, n)) for p, n in sorted(a.todo - set(dict(a.acked)))]

    def wanted(self, a: Actor) -> Written:
        """What it has acknowledged; a group's offsets as if they were in a partition -1."""
        moved = {(OFFSETS, a.name)} if self.run.consumes and len(a.name) == 2 and not a.gates else set()
        return frozenset({*((p, (a.name, n)) for (p, n), _ in a.acked), *moved})

    def copies(self, a: Actor) -> bodies.Copies:
        """The copies that count, of the batches that were sent more than once."""
        if not self.run.is_kproxys("copies"):
            return {}
        return {(TOPIC, p): {0: offset} for (p, n), offset in sorted(a.acked) if (p, n) in a.again}

    def decide(self, s: State, i: int, committed: bool, members: list[Actor]) -> State:
        """The owner's decision of its transaction, with the members that are done."""
        a = s.actors[i]
        assert a.own is not None
        parts = [one.part for one in (a, *members)]
        copies = {one.part: self.copies(one) for one in (a, *members)}
        want = frozenset[tuple[int, object]]().union(*(self.wanted(one) for one in (a, *members)))
        ends = {part: {(TOPIC, p): end for p, end in places} for part, places in a.former}
        if committed and self.run.is_kproxys("former"):
            parts += ends
        body = bodies.decision(
            a.own.number, a.part, committed, parts, copies=copies, next_client=self.following(a), ends=ends
        )
        what = "COMMIT" if committed else "ABORT"
        return self.append(s.put(i, phase="ending", must_abort=not committed), i, body, what, want=want)

    def following(self, a: Actor) -> Producer:
        """The client's identity after its decision: the next one if ends raise it, as KIP-890's do."""
        return Producer(a.client.producer_id, a.client.epoch + self.run.bumps)

    def decide_prepared(self, s: State, i: int, committed: bool) -> State:
        """The then owner's decision of all that was reported, under an epoch of its own."""
        a = s.actors[i]
        assert a.own is not None
        main = Producer(a.own.first.producer_id, a.epoch)
        parts = sorted(one.part for one in s.reported)
        want = frozenset[tuple[int, object]]().union(*(one.want for one in s.reported))
        body = bodies.decision(a.own.number, main, committed, parts)
        s = s.put(i, phase="ending", name=("prepared", *main), part=main)
        return self.append(s, i, body, "COMMIT" if committed else "ABORT", want=want)

    def prepare(self, s: State, i: int) -> State:
        """Has the log keep the part until it is decided."""
        a = s.actors[i]
        assert a.own is not None
        s = self.append(s.put(i, phase="preparing"), i, bodies.prepare(a.own.number, a.part), "PREPARE")
        return s if self.run.is_kproxys("report") else self.report(s, a)

    def report(self, s: State, a: Actor) -> State:
        """Somebody hears that a part is prepared."""
        return s._replace(reported=s.reported | {Reported(a.part, self.wanted(a))})

    def announce_offsets(self, s: State, i: int) -> State:
        """The group's offsets, in the log."""
        a = s.actors[i]
        assert a.own is not None
        offset = a.name[0] * _EPOCHS + a.name[1] if self.run.consumes else 1
        place = ("in", offset)  # others' do not supersede them
        return self.append(s, i, bodies.offsets(a.own.number, a.part, "g", {place: offset}), "OFFSETS")

    def offsets_of(self, record: TransactionOffsets) -> tuple[int, int]:
        """The name of the transaction that announced them."""
        return divmod(record.topics[0].partitions[0].offset, _EPOCHS)

    def finish(self, s: State, i: int) -> State:
        """A transaction has ended: the next epoch of the block, or none."""
        a = s.actors[i]
        assert a.own is not None
        s = s.spend("txns")
        read = a.read
        following = a.epoch + 1
        if self.run.is_kproxys("next") and following < a.own.first.epoch + self.run.block:
            kept = Actor("own", read, a.own, a.sequence, following, generation=a.generation, client=a.client)
        elif not self.run.is_kproxys("next") and following <= self.run.last_epoch:
            own = a.own._replace(first=Producer(a.own.first.producer_id, following))
            kept = Actor("own", read, own, 0, following, generation=a.generation)
        else:
            return self.give_up(s, i, read)
        return s._replace(actors=(*s.actors[:i], kept, *s.actors[i + 1 :]))

    # -- members

    def join(self, s: State, i: int) -> State:
        """A member joins the transaction that the log names as the open or the next one, under its own producer id."""
        claim, owner = s.log.views[0].claim, s.log.views[0].next_epoch()
        assert claim is not None
        assert owner is not None
        number = int.from_bytes(claim.nonce, "big")
        part = bodies.producer(JOINED + i, 0)
        own = Own(0, part, JOINED + i)
        name = ((number, owner.epoch), "member", i)
        s = s.spend("claims").put(i, own=own, part=part, name=name, todo=frozenset({(0, 0)}))
        how = self.run.rules["announce"]
        if how == "none":
            return self.write(s.put(i, phase="mtx"), i)
        s = s.put(i, phase="joining", sequence=int(how == "owner-sequence"))
        header = owner if how == "owner-sequence" else part
        return self.append(s, i, bodies.member(number, owner, part, own.number), "MEMBER", header=header)
