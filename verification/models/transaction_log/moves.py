"""Everything that can happen next."""

from collections.abc import Iterator

from verification.models.transaction_log.answers import Answers
from verification.models.transaction_log.continuing import Continuing
from verification.models.transaction_log.events import Events
from verification.models.transaction_log.rules import Run
from verification.models.transaction_log.state import Actor, Asking, Move, State, Told, who


class Moves:
    """The moves of one run."""

    def __init__(self, run: Run) -> None:
        """By the run's rules."""
        self.run = run
        self._protocol = Answers(run)
        self._events = Events(run, self._protocol)
        self._continuing = Continuing(run, self._protocol)

    def __call__(self, s: State) -> Iterator[Move]:
        """Each next state, with what happened."""
        for i in range(len(s.actors)):
            if self._protocol.is_member(i):
                yield from self._member(s, i)
            else:
                yield from self._claiming(s, i)
                yield from self._owner(s, i)
                if self.run.moves:
                    yield from self._continuing(s, i)
            yield from self._again(s, i)
        yield from self._events(s)

    # -- instances

    def _claiming(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        if a.phase == "idle" and s.budget("claims"):
            for position in range(a.read, s.log.end + 1):  # however far its view lags
                t = self._protocol.claim(s, i, position)
                yield f"{who(i)} claims {_first(t.actors[i])}, having read to {position}", t

    def _owner(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        if a.phase == "own" and s.budget("txns") and self._may_begin(s, i):
            yield f"{who(i)} begins at epoch {a.epoch}", self._protocol.begin(s, i)
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
            for known in self._continuing.known(s, i):
                name = f"{who(i)} crashes, starts again and reads the log to its end"
                yield name, t._replace(asking=asking, open=known)

    def _may_begin(self, s: State, i: int) -> bool:
        if self.run.moves:
            client, others = s.actors[i].client, s.actors[self.run.members + 1 :] + s.actors[:1]
            is_busy = any(a.client == client and not a.left and a.name for a in others)
            return not is_busy and (s.open is None or s.open.client != client)
        if self.run.repeat and (s.asking is not None or any(a.name for n, a in enumerate(s.actors) if n != i)):
            return False  # the one client is busy
        if not self.run.group:
            return True
        stable = self.run.rules["fetch"] == "any" or not any(view.pending for view in s.log.views)
        return bool(s.actors[i].generation) and stable and not any(view.committed for view in s.log.views)

    def _ending(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        assert a.own is not None
        own = self._protocol
        members = [m for m in s.actors if m.phase == "mdone" and m.name[0] == (a.own.number, a.epoch)]
        done = not (a.must_abort or a.left) and len(a.acked) == len(a.todo)
        if self.run.prepare == 1:
            if done:
                yield f"{who(i)} prepares its part", own.prepare(s, i)
        elif done and (not self.run.members or members) and not self._lacks_prepared(s, members):
            if not a.gates:
                yield f"{who(i)} sends COMMIT", own.decide(s, i, True, members)
            elif a.gates[0] == "announce":
                yield f"{who(i)} announces its group offsets", own.announce_offsets(s, i)
            else:
                yield from self._check(s, i)
        if a.must_abort or s.budget("abort"):
            yield f"{who(i)} sends ABORT", own.decide(s, i, False, [])

    def _lacks_prepared(self, s: State, members: list[Actor]) -> bool:
        return self.run.prepare == 2 and not {m.part for m in members} <= {one.part for one in s.reported}

    def _check(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        assert s.group is not None
        is_same = s.group[0] == (a.began if self.run.is_kproxys("generation") else a.generation)
        t = s.put(i, gates=a.gates[1:]) if is_same else s.put(i, must_abort=True)
        yield f"{who(i)} checks the group's generation: {is_same}", t

    def _decide_prepared(self, s: State, i: int) -> Iterator[Move]:
        parts = {one.part for one in s.reported}
        if not parts or parts & {told.part for told in s.told}:
            return
        if self.run.prepare == 1 and len(parts) == 1 + self.run.members:
            yield f"{who(i)} sends COMMIT of what is prepared", self._protocol.decide_prepared(s, i, True)
        if s.budget("abort"):
            yield (
                f"{who(i)} sends ABORT of what is prepared",
                self._protocol.decide_prepared(s.spend("abort"), i, False),
            )

    def _answer_again(self, s: State, i: int) -> Iterator[Move]:
        """The client repeats its EndTxn, to an instance that knows nothing but the log."""
        view = s.views(s.log.end)[0]
        assert s.asking is not None
        if view.ongoing is not None:
            return  # it is claimed first
        committed = not (view.is_doomed and self.run.is_kproxys("adopt"))
        told = Told(s.asking.name, s.asking.part, committed, again=True)
        t = s._replace(told=s.told | {told}, asking=None).put(i, read=s.log.end)
        yield f"{who(i)} answers the repeated EndTxn: {'committed' if committed else 'aborted'}", t

    # -- members

    def _member(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        if a.phase == "idle" and s.budget("claims") and s.log.views[0].next_epoch() is not None:
            yield f"{who(i)} joins as a member", self._protocol.join(s, i)
        if a.phase == "mtx" and len(a.acked) == len(a.todo):
            if self.run.prepare:
                yield f"{who(i)} prepares its part", self._protocol.prepare(s, i)
            else:
                yield f"{who(i)} reports its batch", s.put(i, phase="mdone")

    def _again(self, s: State, i: int) -> Iterator[Move]:
        if not s.budget("resend"):
            return
        a = s.actors[i]
        if a.phase == "tx":
            for q in self._protocol.batches(a, i):
                again = a.again | {(q.to, q.body[1])}
                yield f"{who(i)} sends its batch to {q.to} again", s.spend("resend").put(i, again=again).send(q)
        if a.waits is not None:
            yield f"{who(i)} sends its {a.waits.body.what} again", s.spend("resend").send(a.waits)


def _first(a: Actor) -> str:
    assert a.own is not None
    return f"epoch {a.own.first.epoch} of generation {a.own.generation}"
