"""What kproxy does: InitProducerId, EndTxn, and batches."""

from collections.abc import Iterator

from verification.models.identities.log import NONE, Begun, Claim, Decision, Last, Part, Record, View, read
from verification.models.identities.scenarios import RULES
from verification.models.identities.state import Ask, Batch, State

FENCED, ABORTABLE, AGAIN, GIVE_UP = -2, -3, -4, -5
#: Claims for one request.
MOST_TRIES = 2


class Rules:
    """kproxy, with one rule replaced or none."""

    def __init__(self, rules: dict[str, str]) -> None:
        """One choice for each rule."""
        self.rules = rules
        self._views: dict[tuple[Record, ...], View] = {}

    def view(self, s: State) -> View:
        """What the log says at its end."""
        if s.log not in self._views:
            self._views[s.log] = read(s.log, self.rules)
        return self._views[s.log]

    def _is(self, rule: str) -> bool:
        return self.rules[rule] == RULES[rule][0]

    # -- answers

    def answer(self, s: State, k: int, answer: int) -> Iterator[State]:
        """The request is served; its response may be lost."""
        ask = s.kproxies[k].ask
        assert ask is not None
        s = s.at(k, phase="idle", ask=None, ending=None, pending=None, tries=0)
        if ask.copy:
            yield s
            return
        if s.left("unheard") or answer == AGAIN:
            t = s if answer == AGAIN else s.spend("unheard")
            yield t.of(ask.by, phase="unheard")
        if answer != AGAIN:
            yield self._heard(s, ask, answer)

    def _heard(self, s: State, ask: Ask, answer: int) -> State:
        i = ask.by
        if answer == GIVE_UP:
            return s.of(i, phase="dead", ask=None)
        if answer == FENCED:
            return self.fence(s, i)
        if answer == ABORTABLE:
            blameless = len(s.producers) == 1 and not s.late
            flaws = s.flaws | {"aborted for a request that was refused"} if blameless else s.flaws
            return s.of(i, phase="must abort", ask=None)._replace(flaws=flaws)
        done = {(i, s.producers[i].transaction)} if ask.committed else set()
        s = s._replace(given=s.given | {(i, answer)}, committed=s.committed | done)
        transaction = s.producers[i].transaction + 1
        return s.of(i, phase="ready", client=answer, transaction=transaction, written=0, ask=None)

    def fence(self, s: State, i: int) -> State:
        """The producer gives up."""
        asked = [*s.log, *s.late, *(each.pending for each in s.kproxies)]
        replaced = any(isinstance(record, Claim) and record.by not in (i, NONE) for record in asked)
        flaws = s.flaws if replaced else s.flaws | {"fenced, though nobody has replaced it"}
        return s.of(i, phase="dead", ask=None)._replace(flaws=flaws)

    # -- claims

    def hold(self, s: State, k: int) -> State | None:
        """The claim, taken again for the same client where it must be; None if another producer has the id."""
        view, own = self.view(s), s.kproxies[k]
        if own.nonce == view.nonce and not view.expired:
            return s
        if view.client != own.client:
            return None
        claim = Claim(s.nonces, view.block + 1, NONE, NONE, NONE)
        s = s.append(claim)._replace(nonces=s.nonces + 1)
        return s.at(k, nonce=claim.nonce, block=claim.block, number=0)

    def take(self, s: State, k: int) -> tuple[State, Part] | None:
        """The next part."""
        held = self.hold(s, k)
        if held is None:
            return None
        own = held.kproxies[k]
        return held.at(k, number=own.number + 1), Part(own.block, own.number)

    # -- InitProducerId

    def initialize(self, s: State, k: int, ask: Ask) -> Iterator[State]:
        """Reads the log, and claims."""
        s, view = s.at(k, ask=ask), self.view(s)
        retry = ask.client > NONE and ask.client == view.resumed and view.given == view.client
        if retry and self._is("retry"):
            yield from self._answered_before(s, k, view)
            return
        if not retry and not _may_resume(view, ask.client):
            yield from self.answer(s if self._is("refused") else s.at(k, nonce=NONE), k, FENCED)
            return
        identity = view.client if retry else view.client + 1
        claim = Claim(s.nonces, view.block + 1, identity, ask.client, ask.by)
        change = {"phase": "claiming", "nonce": NONE, "pending": claim, "tries": s.kproxies[k].tries + 1}
        yield s.at(k, ending=None, **change)._replace(nonces=s.nonces + 1)

    def _answered_before(self, s: State, k: int, view: View) -> Iterator[State]:
        if s.kproxies[k].client == view.client:
            yield from self.answer(s, k, view.client)
        elif view.ongoing is not None:
            yield from self.answer(s, k, AGAIN)
        else:
            yield from self.answer(s.at(k, client=view.client, part=None, doomed=False), k, view.client)

    def claimed(self, s: State, k: int, claim: Claim) -> Iterator[State]:
        """Reads the log after its claim."""
        view, ask = self.view(s), s.kproxies[k].ask
        assert ask is not None
        if view.nonce == claim.nonce and (view.named or not self._is("retry")):
            change = {"nonce": claim.nonce, "block": claim.block, "number": 0, "client": view.client}
            yield from self.answer(s.at(k, part=None, doomed=False, **change), k, view.client)
        elif s.kproxies[k].tries >= MOST_TRIES:
            yield from self.answer(s, k, GIVE_UP)
        else:
            yield from self.initialize(s, k, ask)

    # -- batches

    def write(self, s: State, i: int, k: int) -> State:
        """The producer's next batch."""
        p, own, view = s.producers[i], s.kproxies[k], self.view(s)
        if p.client < max(own.client, view.client):
            return self.fence(s, i)
        if own.doomed:
            return s.of(i, phase="must abort")
        key, part = (p.client, p.written), own.part
        if key in own.known:
            part = None
        elif part is None:
            taken = self.take(s, k)
            if taken is None:
                return self.fence(s, i)
            s, part = taken
            s = s.append(Begun(s.kproxies[k].nonce, part)).at(k, part=part)
        s = s.at(k, known=own.known | {key}).of(i, written=p.written + 1)
        return s._replace(batches=s.batches | {Batch(i, p.transaction, p.written, part)})

    # -- EndTxn

    def end(self, s: State, k: int, ask: Ask) -> Iterator[State]:
        """Sends the decision, or answers what was decided before."""
        s, view, own = s.at(k, ask=ask), self.view(s), s.kproxies[k]
        last = view.last
        if last is not None and _answers(view, last, ask) and last.following == own.client:
            yield from self.answer(s, k, last.following)
        elif ask.client < max(own.client, view.client):
            yield from self.answer(s, k, FENCED)
        elif own.doomed and ask.committed:
            yield from self.answer(s, k, ABORTABLE)
        else:
            yield from self._decide(s.at(k, doomed=False), k, own.part)

    def _decide(self, s: State, k: int, part: Part | None) -> Iterator[State]:
        own = s.kproxies[k]
        assert own.ask is not None
        if part is None:
            taken = self.take(s, k)
            if taken is None:
                yield from self.answer(s, k, FENCED)
                return
            s, part = taken
            own = s.kproxies[k]
        s = s.at(k, phase="deciding", ending=part)
        if own.nonce == NONE:
            yield s
            return
        committed = own.ask is not None and own.ask.committed
        yield s.at(k, pending=Decision(own.nonce, part, own.client + 1, committed))

    def decided(self, s: State, k: int) -> Iterator[State]:
        """Reads the log after its decision; claims where it is not there."""
        own, view = s.kproxies[k], self.view(s)
        assert own.ending is not None
        assert own.ask is not None
        if view.verdict(own.ending) is None:
            settled = self.hold(s.at(k, nonce=NONE), k)
            if settled is None:
                yield from self.answer(s.at(k, part=None, doomed=True), k, FENCED)
                return
            s, view = settled, self.view(settled)
        verdict, client = view.verdict(own.ending), self._client(s, k, view)
        s = s.at(k, part=None, client=client, doomed=own.ask.committed and not verdict)
        if own.ask.committed and not verdict:
            yield from self.answer(s, k, ABORTABLE)
        elif client == own.ask.client and self._is("settle"):
            yield from self._decide(s, k, None)
        else:
            yield from self.answer(s, k, client)

    def _client(self, s: State, k: int, view: View) -> int:
        own, last = s.kproxies[k], view.last
        counted = last is not None and last.part == own.ending and not last.by_claim
        if counted and not self._is("answer"):
            return view.client
        return own.client + 1 if counted or view.verdict(own.ending or Part(0, 0)) else own.client


def _answers(view: View, last: Last, ask: Ask) -> bool:
    is_last = not last.by_claim and last.following == view.client
    return is_last and (last.client, last.committed) == (ask.client, ask.committed)


def _may_resume(view: View, client: int) -> bool:
    if client in (NONE, view.client):
        return True
    last = view.last
    ended = last is not None and not last.by_claim and (client, view.client) == (last.client, last.following)
    return ended and view.ongoing is None
