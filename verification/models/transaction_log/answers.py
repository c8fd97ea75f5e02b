"""What kproxy's instances, and members of their transactions, make of the responses."""

from kproxy.txn.verdict import Verdict
from verification.models.transaction_log import bodies
from verification.models.transaction_log.broker import Answer
from verification.models.transaction_log.log import ViewsOfIds, body_of, verdict
from verification.models.transaction_log.protocol import Protocol
from verification.models.transaction_log.state import LOG, Request, State, Told


class Answers(Protocol):
    """The protocol of one run, with what follows a response."""

    def answered(self, s: State, q: Request, answer: Answer) -> State:
        """The instance that sent q hears of it, if it still waits."""
        if q.source < 0:
            return s
        i, a = q.source, s.actors[q.source]
        if q.to != LOG:
            return self._written(s, i, q, answer)
        if a.waits != q:
            return s
        s = s.put(i, waits=None)
        seen = max(a.read, s.log.end if answer.error else answer.offset + 1)
        if a.phase in ("claiming", "continuing", "initializing"):
            return self._claimed(s, i, q, answer)
        if a.phase == "ending":
            return self._decided(s, i, q, answer, s.log.end if a.read < s.start else seen)
        s = s.put(i, read=seen)
        views = s.views(seen)
        if a.phase == "beginning":
            ongoing = views[self.id_of(i)].ongoing
            begun = not answer.error and ongoing is not None and ongoing.producer == a.part
            return self.write(s.put(i, phase="tx"), i) if begun else self.give_up(s, i, s.log.end)
        if a.phase == "joining":
            joined = not answer.error and (self.run.rules["announce"] != "own-pid" or a.part in views[0].members)
            return self.write(s.put(i, phase="mtx"), i) if joined else self.give_up(s, i, seen)
        if a.phase == "preparing":
            return self._prepared(s, i, views)
        return s.put(i, gates=a.gates[1:]) if not answer.error else self.give_up(s, i, seen)

    def _written(self, s: State, i: int, q: Request, answer: Answer) -> State:
        a = s.actors[i]
        if a.phase not in ("tx", "mtx") or q.body[0] != a.name:
            return s
        assert isinstance(q.to, int)
        batch = (q.to, q.body[1])
        if batch not in a.todo or batch in dict(a.acked):
            return s
        if not answer.error:
            return s.put(i, acked=a.acked | {(batch, answer.offset)})
        return s.put(i, must_abort=True) if a.phase == "tx" else self.give_up(s, i, a.read)

    def _claimed(self, s: State, i: int, q: Request, answer: Answer) -> State:
        a, end = s.actors[i], s.log.end
        assert a.own is not None
        if self.run.is_kproxys("own"):
            mine = s.views(end)[self.id_of(i)].is_ours(bodies.nonce(a.own.number))
        else:
            mine = not answer.error and body_of(s.log.records[answer.offset]) == body_of(q.body)
        if answer.error or not mine:
            return self.give_up(s, i, end)
        view = s.views(end)[self.id_of(i)]
        if a.phase == "initializing":
            if view.claim is None or not view.claim.names_client:
                return self.give_up(s, i, end)
            s = s._replace(given=s.given | {(a.client, a.own.first)})
        if a.phase == "continuing" and view.ongoing is not None and view.ongoing.producer == a.own.first:
            return s.put(i, phase="fencing", read=end, part=a.own.first)
        return s.put(i, phase="own", read=end, client=view.client)

    def _decided(self, s: State, i: int, q: Request, answer: Answer, seen: int) -> State:
        a = s.actors[i]
        asked = q.body.what == "COMMIT"
        parts = sorted(one.part for one in s.reported) if a.name[0] == "prepared" else [a.part]
        views = s.views(seen)
        heard: set[Told] = set()
        for part in parts:
            given = verdict(views, part)
            if self.run.rules["tell"] == "ack" and not answer.error:
                given = Verdict.COMMITTED if asked else Verdict.ABORTED
            if given is not Verdict.UNDECIDED:  # else it stays open until a claim
                heard.add(Told(a.name, part, given is Verdict.COMMITTED))
        s = s.put(i, read=seen)
        if not a.left:
            identities = {(self.following(a), told.part) for told in heard if told.committed and self.run.bumps}
            s = s._replace(told=s.told | heard, given=s.given | identities)
        if any(told.committed for told in heard):
            s = s.put(i, client=self.following(a))
        well = not answer.error and len(heard) == len(parts) and all(told.committed == asked for told in heard)
        return self.finish(s, i) if well else self.give_up(s, i, seen)

    def _prepared(self, s: State, i: int, views: ViewsOfIds) -> State:
        a = s.actors[i]
        if a.part not in views[0].prepared:
            return self.give_up(s, i, a.read)
        s = self.report(s, a)
        return s.put(i, phase="mdone") if self.is_member(i) else self.finish(s, i)
