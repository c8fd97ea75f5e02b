"""Explicit-state model: an open transaction of kproxy's own coordinator is continued by another instance.

The claim of the next instance says that it continues what is open, which fences the log;
then the instance fences the data epochs of those before it in each partition that they announced, reads what is there,
answers what the client repeats from that, and decides all parts together. Of former epochs only what was read counts: a
partition may forget whom it has fenced, long after the decision, while something of the former instance is in flight.

``python -m verification.models.continued`` explores every interleaving: once with the rules, and once with each rule
replaced by one that must fail. The exit status is the number of surprises.

One client with three records in two partitions, which repeats what it has no response to, here or at the next instance,
and commits when all are acknowledged. Its coordinator may be the next instance while it still writes through the one
before, which is alive, slow, or killed; what that has sent may arrive at any time. Sequences of the client are counted
from the announcement of a partition. Not modelled: aborts, time-outs, brokers that forget producers before the
decision, group offsets, members, snapshots, several clients: where these matter kproxy aborts, as any claim does.
"""

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from verification.models.scenario_runs import run_scenarios
from verification.models.search import Search, Trace

SCRIPT: Final = ((0, "a"), (0, "b"), (1, "c"))
PLACES: Final = (0, 1)


class Rules(NamedTuple):
    """What an instance does; each other value is a flaw that the search has to find."""

    #: The claim comes ``first``, or ``last``: after the fences.
    claim: str = "first"
    #: Former data epochs are fenced ``before`` they are read, ``after``, or ``never``.
    fence: str = "before"
    #: What the client repeats is compared with what was ``read``, or with ``nothing``.
    match: str = "read"
    #: A partition is announced ``before`` its first data are sent, or ``after`` they are acknowledged.
    announce: str = "before"
    #: The decision names ``all`` parts, or the instance's ``own``.
    decides: str = "all"
    #: Of former epochs what lies below the ``ends`` that were read counts, or ``everything``.
    counts: str = "ends"


class Owner(NamedTuple):
    """An instance that has, or had, the id; its epoch is its place among them."""

    stage: str = "ready"
    """``new``, ``fences``, ``reads``, ``claims``, ``ready`` or ``lost``; of one that was killed ``dead``."""
    places: tuple[int, ...] = ()
    """That it has announced."""
    known: tuple[int, ...] = (0, 0)
    """How many of the client's records it knows to be in each partition."""
    ends: tuple[int, int] = (0, 0)
    """Of each partition when it read it."""


class World(NamedTuple):
    """All that there is."""

    #: Claims (epoch), announcements (epoch, place), the decision (epoch).
    log: tuple[tuple[str, int, int], ...] = (("claim", 0, -1),)
    data: tuple[tuple[tuple[int, str], ...], ...] = ((), ())
    #: By partition, the lowest epoch that it takes.
    fences: tuple[int, int] = (0, 0)
    #: In flight: what, epoch, place, value.
    network: tuple[tuple[str, int, int, str], ...] = ()
    owners: tuple[Owner, ...] = (Owner(),)
    #: The client: its next record, the instance that it writes through, whether it waits, and whether it was answered.
    at: int = 0
    through: int = 0
    waits: bool = False
    told: bool = False
    kills: int = 0
    forgot: bool = False


class Sizes(NamedTuple):
    """Of a scenario."""

    owners: int = 2
    kills: int = 1
    forgets: bool = False


class Model:
    """What can happen next, by the rules."""

    def __init__(self, rules: Rules, sizes: Sizes) -> None:
        self._rules = rules
        self._sizes = sizes

    def step(self, w: World) -> Iterator[tuple[str, World]]:
        """Each next state with its name."""
        newest = len(w.owners) - 1
        if w.kills < self._sizes.kills and w.owners[newest].stage != "dead" and not w.told:
            yield f"instance {newest} is killed", _owner(w, newest, stage="dead")._replace(kills=w.kills + 1)
        if len(w.owners) < self._sizes.owners and not w.told:
            stage = "new" if self._rules.claim == "first" else _first(self._rules)
            yield f"the client asks instance {newest + 1}", w._replace(owners=(*w.owners, Owner(stage)))
        if self._sizes.forgets and w.told and not w.forgot:
            yield "the partitions forget whom they have fenced", w._replace(fences=(0, 0), forgot=True)
        for message in w.network:
            yield from self._arrives(w, message)
        for number, owner in enumerate(w.owners):
            yield from self._takes_over(w, number, owner)
        yield from self._client(w)

    def _takes_over(self, w: World, number: int, owner: Owner) -> Iterator[tuple[str, World]]:
        """The next step of an instance that continues."""
        name = f"instance {number} {owner.stage}"
        if owner.stage in ("new", "claims"):
            if _is_claimed(w, number):
                yield f"{name}: another has it", _owner(w, number, stage="lost")
                return
            stage = _first(self._rules) if owner.stage == "new" else "ready"
            yield f"{name}: claims", _owner(w, number, stage=stage)._replace(log=(*w.log, ("claim", number, -1)))
        elif owner.stage == "fences":
            fences = tuple(
                max(fence, number) if place in _announced(w) else fence for place, fence in enumerate(w.fences)
            )
            stage = "reads" if self._rules.fence == "before" else self._done
            yield name, _owner(w, number, stage=stage)._replace(fences=(fences[0], fences[1]))
        elif owner.stage == "reads":
            known = tuple(len(w.data[place]) if place in _announced(w) else 0 for place in PLACES)
            stage = "fences" if self._rules.fence == "after" else self._done
            ends = (len(w.data[0]), len(w.data[1]))
            yield f"{name}: {known}", _owner(w, number, stage=stage, known=known, ends=ends)

    @property
    def _done(self) -> str:
        return "ready" if self._rules.claim == "first" else "claims"

    def _client(self, w: World) -> Iterator[tuple[str, World]]:
        if w.told:
            return
        if w.through + 1 < len(w.owners):
            moved = w._replace(through=w.through + 1, waits=False)
            yield f"the client writes through instance {w.through + 1} from now on", moved
        newest = len(w.owners) - 1
        if w.at == len(SCRIPT):
            decision = ("commit", newest, -1, "")
            if w.owners[newest].stage == "ready" and decision not in w.network:
                yield f"the client commits at instance {newest}", _sent(w, decision)
            if any(kind == "commit" for kind, _, _ in w.log) and w.owners[newest].stage == "ready":
                yield "the client repeats its commit", w._replace(told=True)
        elif not w.waits and w.owners[w.through].stage == "ready":
            yield from self._write(w)

    def _write(self, w: World) -> Iterator[tuple[str, World]]:
        """The client's next record, at an instance that serves it."""
        (place, value), number = SCRIPT[w.at], w.through
        owner = w.owners[number]
        nth = sum(other == place for other, _ in SCRIPT[: w.at])
        name = f"the client writes {value} through instance {number}"
        if self._rules.match == "read" and nth < owner.known[place]:
            yield f"{name}: it is there", w._replace(at=w.at + 1)
            return
        if self._rules.announce == "before":
            announced = _announce(w, number, place)
            if announced is None:
                yield f"{name}: the log is fenced", _owner(w, number, stage="lost")
                return
            w = announced
        yield name, _sent(w._replace(waits=True), ("write", number, place, value))

    def _arrives(self, w: World, message: tuple[str, int, int, str]) -> Iterator[tuple[str, World]]:
        kind, number, place, value = message
        after = w._replace(network=tuple(one for one in w.network if one != message))
        name = f"{kind} {value} of instance {number} arrives"
        serves = w.owners[number].stage == "ready"
        if kind == "commit":
            if _is_claimed(w, number) or any(one == "commit" for one, _, _ in w.log):
                yield f"{name}: fenced", after
            else:
                yield name, after._replace(log=(*w.log, ("commit", number, -1)), told=w.told or serves)
            return
        if number < w.fences[place]:
            yield f"{name}: fenced", _owner(after, number, stage="lost") if serves else after
            return
        if (number, value) not in w.data[place]:
            data = list(w.data)
            data[place] = (*data[place], (number, value))
            after = after._replace(data=tuple(data))
        if serves:
            after = self._written(after, number, place, value)
        yield name, after

    def _written(self, w: World, number: int, place: int, value: str) -> World:
        """An instance has the acknowledgement, and gives it to the client, if that waits for it."""
        if self._rules.announce == "after":
            announced = _announce(w, number, place)
            if announced is None:
                return _owner(w, number, stage="lost")
            w = announced
        known = list(w.owners[number].known)
        known[place] += 1
        w = _owner(w, number, known=tuple(known))
        if w.waits and w.through == number and SCRIPT[w.at] == (place, value):
            return w._replace(at=w.at + 1, waits=False)
        return w


def _first(rules: Rules) -> str:
    """The step after the claim."""
    return "fences" if rules.fence == "before" else "reads"


def _owner(w: World, number: int, **changes: object) -> World:
    owners = list(w.owners)
    owners[number] = owners[number]._replace(**changes)  # type: ignore[arg-type]
    return w._replace(owners=tuple(owners))


def _sent(w: World, message: tuple[str, int, int, str]) -> World:
    return w._replace(network=tuple(sorted({*w.network, message})))


def _is_claimed(w: World, number: int) -> bool:
    """Whether a later instance has claimed: the broker refuses what this one appends to the log."""
    return any(kind == "claim" and epoch > number for kind, epoch, _ in w.log)


def _announced(w: World) -> set[int]:
    return {place for kind, _, place in w.log if kind == "place"}


def _announce(w: World, number: int, place: int) -> World | None:
    """The partition is in the log; None if that is fenced."""
    if place in w.owners[number].places:
        return w
    if _is_claimed(w, number):
        return None
    places = tuple(sorted((*w.owners[number].places, place)))
    return _owner(w, number, places=places)._replace(log=(*w.log, ("place", number, place)))


def broken(w: World, rules: Rules) -> Iterator[str]:
    """The invariants that do not hold."""
    decided = next((epoch for kind, epoch, _ in w.log if kind == "commit"), None)
    if decided is None:
        if w.told:
            yield "C1: the client was answered a commit that is not in the log"
        return
    for place in PLACES:
        end = w.owners[decided].ends[place] if rules.counts == "ends" else len(w.data[place])
        shown = [
            value
            for at, (epoch, value) in enumerate(w.data[place])
            if epoch == decided or (rules.decides == "all" and epoch < decided and place in _announced(w) and at < end)
        ]
        wanted = [value for other, value in SCRIPT if other == place]
        if any(shown.count(value) > 1 for value in wanted):
            yield "C2: a record is committed twice"
        elif set(shown) != set(wanted):
            yield "C3: an acknowledged record is not committed"
        elif shown != wanted:
            yield "C4: records are committed in another order"


class Scenario(NamedTuple):
    """What is explored, and what must be found: the beginning of an invariant's name, or nothing."""

    name: str
    sizes: Sizes = Sizes()
    rules: Rules = Rules()
    flaw: str | None = None


SCENARIOS: Final = (
    Scenario("one after the other"),
    Scenario("three instances, two of them killed", Sizes(owners=3, kills=2)),
    Scenario("partitions forget", Sizes(owners=3, forgets=True)),
    Scenario("the claim comes last", rules=Rules(claim="last"), flaw="C"),
    Scenario("what is read is fenced after that", rules=Rules(fence="after"), flaw="C"),
    Scenario("nothing is fenced", rules=Rules(fence="never"), flaw="C"),
    Scenario("what is repeated is not compared", rules=Rules(match="nothing"), flaw="C2"),
    Scenario("partitions are announced after their data", rules=Rules(announce="after"), flaw="C"),
    Scenario("the decision names the instance's own part", rules=Rules(decides="own"), flaw="C3"),
    Scenario("all of former epochs counts", Sizes(forgets=True), Rules(counts="everything"), flaw="C2"),
)


def explore(scenario: Scenario, most_states: int = 300_000) -> tuple[int, bool, Trace | None]:
    """States, whether the limit was met, and the first flaw."""
    model = Model(scenario.rules, scenario.sizes)
    found = Search(model.step, lambda w: broken(w, scenario.rules), most_states).run(World(), scenario.flaw or "C")
    return found.states, found.is_cut, found.trace


if __name__ == "__main__":
    sys.exit(run_scenarios(SCENARIOS, explore))
