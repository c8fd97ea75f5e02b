"""``python -m verification.models.identities [part of a name] [--trace]``: exit status is the number of surprises."""

import sys
from collections.abc import Iterator
from functools import partial

from verification.models.identities.log import NONE, Claim, Expiry, Record
from verification.models.identities.rules import Rules
from verification.models.identities.scenarios import RULES, SCENARIOS, Scenario
from verification.models.identities.state import Ask, Kproxy, Producer, State

Move = tuple[str, State]
_BATCHES = 2
#: A run with more states is cut off: it says what holds up to that depth.
MOST = 100_000


def begin(sizes: dict[str, int]) -> State:
    """Two kproxies; nobody has the id."""
    budget = tuple((name, n) for name, n in sizes.items() if name != "producers")
    return State((), (Kproxy(), Kproxy()), (Producer(),) * sizes["producers"], budget)


def moves(kproxy: Rules, s: State) -> Iterator[Move]:
    """Each next state, with what happens."""
    for i in range(len(s.producers)):
        if s.kproxies[i].phase == "idle":
            yield from _producer(kproxy, s, i)
    for k in range(len(s.kproxies)):
        yield from _kproxy(kproxy, s, k)
        if s.kproxies[k].phase == "idle":
            for ask in s.copies:
                serve = kproxy.initialize if ask.kind == "init" else kproxy.end
                for t in serve(s._replace(copies=s.copies - {ask}), k, ask):
                    yield f"kproxy {k} serves a late copy of {ask}", t
    for record in s.late:
        yield f"late in the log: {record}", s.append(record)._replace(late=s.late - {record})
    view = kproxy.view(s)
    if s.left("expiries") and view.nonce > NONE and not view.expired:
        yield "the id expires", s.spend("expiries").append(Expiry(view.nonce))


def _producer(kproxy: Rules, s: State, i: int) -> Iterator[Move]:
    p = s.producers[i]
    if p.phase == "new" and s.left("inits"):
        yield from _ask(kproxy, s.spend("inits"), i, Ask("init", i, NONE))
    if p.phase == "unheard" and p.ask is not None:
        yield from _ask(kproxy, s, i, p.ask)
    if p.phase == "must abort":
        yield from _ask(kproxy, s, i, Ask("end", i, p.client))
    if p.phase != "ready":
        return
    if p.written == 0 and s.left("bumps"):
        yield from _ask(kproxy, s.spend("bumps"), i, Ask("init", i, p.client))
    if p.written < _BATCHES and (p.written or s.left("txns")):
        t = s if p.written else s.spend("txns")
        yield f"producer {i} writes batch {p.written} as {p.client}", kproxy.write(t, i, i)
    if p.written:
        yield from _ask(kproxy, s, i, Ask("end", i, p.client, committed=True))
        if s.left("aborts"):
            yield from _ask(kproxy, s.spend("aborts"), i, Ask("end", i, p.client))


def _ask(kproxy: Rules, s: State, i: int, ask: Ask) -> Iterator[Move]:
    s = s.of(i, phase="asking", ask=ask)
    serve = kproxy.initialize if ask.kind == "init" else kproxy.end
    for t in serve(s, i, ask):
        yield f"producer {i} asks {ask}", t
        if s.left("copies") and ask.client > NONE:
            copies = t.copies | {ask._replace(copy=True)}
            yield f"producer {i} asks {ask}, and a copy is in flight", t.spend("copies")._replace(copies=copies)


def _kproxy(kproxy: Rules, s: State, k: int) -> Iterator[Move]:
    own = s.kproxies[k]
    if own.phase == "idle":
        return
    if own.pending is not None and not own.is_sent:
        for what, t in _appended(s, own.pending):
            yield what, t.at(k, is_sent=True)
    else:  # what it reads may be more: it comes to that at any time
        for t in _reads(kproxy, s.at(k, is_sent=False), k):
            yield f"kproxy {k} reads the log", t


def _appended(s: State, record: Record) -> Iterator[Move]:
    yield f"in the log: {record}", s.append(record)
    if s.left("lost"):
        yield f"not heard of: {record}", s.spend("lost")._replace(late=s.late | {record})


def _reads(kproxy: Rules, s: State, k: int) -> Iterator[State]:
    record = s.kproxies[k].pending
    s = s.at(k, pending=None)
    if isinstance(record, Claim):
        yield from kproxy.claimed(s, k, record)
    else:
        yield from kproxy.decided(s, k)


def broken(kproxy: Rules, s: State) -> set[str]:
    """What must never be."""
    found, view = set(s.flaws), kproxy.view(s)
    if len({client for _, client in s.given}) < len(s.given):
        found.add("two producers with one identity")
    for batch in s.batches:
        if (batch.producer, batch.transaction) not in s.committed:
            continue
        if batch.part is None:
            found.add("acknowledged and committed, but not written")
        elif view.verdict(batch.part) is not True:
            found.add("torn")
    return found


def explore(scenario: Scenario, *, changed: bool, most: int = MOST) -> tuple[int, dict[str, list[str]]]:
    """How many states there are, and what is broken, each with a shortest trace.

    Ends at the flaw that is searched for, or at ``most`` states.
    """
    rules = {rule: choices[0] for rule, choices in RULES.items()} | (dict([scenario.change]) if changed else {})
    kproxy, first = Rules(rules), begin(scenario.sizes)
    came: dict[State, Move | None] = {first: None}
    queue = [first]
    found: dict[str, list[str]] = {}
    for s in queue:
        for what, t in moves(kproxy, s):
            if t in came:
                continue
            came[t] = (what, s)
            flaws = broken(kproxy, t)
            found |= {flaw: _trace(came, t) for flaw in flaws if flaw not in found}
            if not flaws:
                queue.append(t)
        if (scenario.flaw in found if changed else found) or len(came) > most:
            break
    return len(came), found


def _trace(came: dict[State, Move | None], s: State) -> list[str]:
    steps, move = [], came[s]
    while move is not None:
        steps.append(move[0])
        move = came[move[1]]
    return steps[::-1]


def main(arguments: list[str]) -> int:
    """The number of scenarios in which the rules do not hold, or a replaced one is not missed."""
    say, surprises = partial(print, flush=True), 0
    names = [word for word in arguments if not word.startswith("-")]
    for scenario in SCENARIOS:
        if names and not any(name in scenario.name for name in names):
            continue
        for changed in (True, False):
            states, found = explore(scenario, changed=changed)
            rule = "=".join(scenario.change) if changed else "kproxy's rules"
            cut = ", cut off" if states > MOST else ""
            say(f"{scenario.name}: {rule}: {states} states{cut}: {'; '.join(found) or 'all holds'}")
            surprises += scenario.flaw not in found if changed else bool(found)
            if "--trace" in arguments or (found and not changed):
                for flaw, steps in found.items():
                    say("\n".join([f"  {flaw}", *(f"    {step}" for step in steps)]))
    return surprises


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
