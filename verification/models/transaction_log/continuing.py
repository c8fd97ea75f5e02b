"""The client of an open transaction goes to another instance, which continues it; or a new producer takes the id."""

from collections.abc import Iterator
from typing import Final

from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.view import IdView
from verification.models.transaction_log import bodies
from verification.models.transaction_log.broker import fence
from verification.models.transaction_log.protocol import Protocol
from verification.models.transaction_log.rules import Run
from verification.models.transaction_log.state import Actor, Move, Open, State, Told, who

#: Of an instance that takes a transaction over.
PHASES: Final = ("continuing", "fencing", "reading")


class Continuing:
    """The moves of one run."""

    def __init__(self, run: Run, protocol: Protocol) -> None:
        """By the run's rules."""
        self.run = run
        self._protocol = protocol

    def __call__(self, s: State, i: int) -> Iterator[Move]:
        """Each next state of instance i, with what happened."""
        yield from self._leaves(s, i)
        yield from self._comes(s, i)
        yield from self._fences(s, i)
        yield from self._reads(s, i)
        yield from self._initializes(s, i)

    def known(self, s: State, i: int) -> list[Open | None]:
        """What the client of instance i may know of its transaction: it has received all responses, or none."""
        a = s.actors[i]
        serves = a.phase in ("beginning", "tx", "ending") and not (a.left or a.must_abort)
        if not self.run.moves or not serves:
            return [s.open]
        acked = frozenset(batch for batch, _ in a.acked)
        heard = Open(a.client, a.name, a.part, a.todo, acked, a.gates, asks=a.phase == "ending")
        deaf = heard._replace(acked=frozenset(), gates=("announce",) * self.run.consumes)
        return [heard] if heard.asks or heard == deaf else [heard, deaf]

    def _leaves(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        if not s.budget("moves") or a.left:
            return
        for known in self.known(s, i):
            if known != s.open:
                t = s.spend("moves").put(i, left=True)._replace(open=known)
                yield f"the client leaves {who(i)} with {_heard(known)}", t
        if a.phase in PHASES:
            yield f"the client leaves {who(i)}, which continues", s.spend("moves").put(i, left=True)

    def _comes(self, s: State, i: int) -> Iterator[Move]:
        """The client asks an instance that reads the log to its end."""
        a, known, end = s.actors[i], s.open, s.log.end
        if known is None or a.phase not in ("idle", "own") or any(b.phase in PHASES and not b.left for b in s.actors):
            return
        view = s.views(end)[0]
        last = view.last
        if view.ongoing is not None:
            if a.phase == "idle" and s.budget("claims") and view.client == known.client and view.awaits_client():
                t = self._protocol.claim(s, i, end, NOBODY, view.ongoing.producer)
                yield f"the client asks {who(i)}, which claims to continue", t.put(i, phase="continuing", left=False)
        elif known.asks and last is not None and last.committed and last.client == known.client:
            told = Told(known.name, last.producer, committed=True)
            given = s.given | {(last.next_client, last.producer)} if self.run.bumps else s.given
            t = s._replace(told=s.told | {told}, open=None, given=given)
            yield f"{who(i)} answers the repeated EndTxn: committed", t
        elif view.client != known.client:
            yield f"{who(i)} answers the client that it is fenced", s._replace(open=None)
        elif (known.asks and view.is_doomed) or self._may_say_so(s, a, view):
            told = Told(known.name, known.part, committed=False)
            yield f"{who(i)} answers the client: aborted", s._replace(told=s.told | {told}, open=None)

    def _may_say_so(self, s: State, a: Actor, view: IdView) -> bool:
        """Whether it may answer that nothing is open: what the former instance announces may still arrive."""
        if not self.run.is_kproxys("nothing"):
            return True
        return a.phase == "own" and a.own is not None and view.is_ours(bodies.nonce(a.own.number)) and not view.expired

    def _fences(self, s: State, i: int) -> Iterator[Move]:
        a = s.actors[i]
        if a.phase != "fencing":
            return
        view = s.views(a.read)[0]
        parts = view.continued(a.part)
        fences = {part.producer_id: Producer(part.producer_id, part.epoch + 1) for part in sorted(parts)}
        data, places = list(s.data), {place[1] for part in parts for place in view.bounds[part]}
        for p in places:
            batches, table = data[p]
            for marker in fences.values():
                if any(row[0] == marker.producer_id and row[1] > marker.epoch for row in table):
                    yield f"{who(i)} is fenced itself", self._protocol.give_up(s, i, a.read)
                    return
                table = fence(table, marker)
            data[p] = batches, table
        yield f"{who(i)} fences {len(parts)} former epochs", s.put(i, phase="reading")._replace(data=tuple(data))

    def _reads(self, s: State, i: int) -> Iterator[Move]:
        a, known = s.actors[i], s.open
        if a.phase != "reading":
            return
        parts = s.views(a.read)[0].continued(a.part)
        found = [
            (part, p, offset)
            for p, (batches, _) in enumerate(s.data)
            for offset, (part, _, _) in enumerate(batches)
            if part in parts
        ]
        if a.left or known is None or len({p for _, p, _ in found}) < len(found):
            yield f"{who(i)} can't continue, or need not", self._protocol.give_up(s, i, a.read)
            return
        former = {part: tuple((p, offset + 1) for other, p, offset in found if other == part) for part, _, _ in found}
        acked = {(p, 0): -1 for p, _ in known.acked} | {(p, 0): offset for _, p, offset in found}
        t = s._replace(open=None).put(
            i,
            phase="tx",
            name=known.name,
            todo=known.todo,
            gates=known.gates,
            client=known.client,
            acked=frozenset(acked.items()),
            former=tuple(sorted(former.items())),
        )
        name = f"{who(i)} continues with {len(found)} batches of former epochs"
        if known.todo <= acked.keys():
            yield name, t
        else:
            body = self._protocol.announcement(t.actors[i])
            yield name, self._protocol.append(t.put(i, phase="beginning"), i, body, "PARTITIONS")

    def _initializes(self, s: State, i: int) -> Iterator[Move]:
        a, end = s.actors[i], s.log.end
        view = s.views(end)[0]
        if a.phase != "idle" or view.claim is None or not s.budget("inits") or not s.budget("claims"):
            return
        client = Producer(view.client.producer_id, view.client.epoch + 1)
        is_welcome = view.ongoing is not None and not self.run.is_kproxys("continues")
        continued = view.ongoing.producer if view.ongoing is not None and is_welcome else NOBODY
        t = self._protocol.claim(s.spend("inits"), i, end, client, continued)
        yield f"a new producer initializes at {who(i)}", t.put(i, phase="initializing", client=client)


def _heard(known: Open | None) -> str:
    return f"{len(known.acked) if known is not None else 0} batches acknowledged"
