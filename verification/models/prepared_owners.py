"""Explicit-state model: which prepared parts of an owner's own a commit covers, where two drivers take an id in turn.

A driver owns the transactional id until another one takes it. It prepares the parts of its batch: members, which its
commit names, and perhaps a part of its own, which has no name. A driver that restarts takes the id as a new owner, and
commits what it had prepared. The log says of each part which owner prepared it, and nothing of batches. A commit covers

- what the owner that commits has prepared itself;
- the own part of each former owner that has prepared a member which the commit names;
- where no member is named, and this owner has begun nothing itself: the own part of a former owner of which no member
  waits.

It is refused if these are own parts of several owners: a batch has one.

``python -m verification.models.prepared_owners`` explores every interleaving: with the rules, without each of them, and
where the rules can't tell, which docs/transactions-advanced.md says. The exit status is the number of surprises.
"""

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from verification.models.scenario_runs import run_scenarios
from verification.models.search import Search, Trace

_OWNERS: Final = 5


class Rules(NamedTuple):
    """What a commit covers, and what the drivers do."""

    #: ``owners``: as above. Flaws: ``all`` that is prepared without a name; what the owner prepared ``itself``; what
    #: named members ``brought``; what has the ``epoch`` of a named member; ``no former`` owner's where none is named;
    #: own parts of ``several`` owners.
    covers: str = "owners"
    #: By driver: whether its batch has a part of the owner's own, and a member.
    batches: tuple[tuple[bool, bool], ...] = ((True, True), (True, True))
    #: Whether a driver may begin its own part after its member has prepared: it takes the id again with that.
    own_last: bool = False
    #: Whether a driver that has the id may abort everything.
    aborts: bool = True


class Part(NamedTuple):
    """What is prepared: of which driver's batch, with or without a name, by which owner, in which epoch."""

    driver: int
    is_own: bool
    owner: int
    epoch: int


class Driver(NamedTuple):
    """What a driver knows of its batch."""

    own: bool = False
    member: bool = False
    #: Whether it has begun its own part as the owner that it is.
    begun: bool = False
    is_done: bool = False


class World(NamedTuple):
    """All that there is."""

    drivers: tuple[Driver, ...] = (Driver(), Driver())
    prepared: frozenset[Part] = frozenset()
    #: The newest owner, which driver it is, and the epoch that the next part takes.
    owner: int = 0
    holder: int = -1
    epoch: int = 0
    #: A commit covered a part of another batch, or left out one of its own.
    alien: bool = False
    torn: bool = False


def step(w: World, rules: Rules) -> Iterator[tuple[str, World]]:
    """Each next state with its name."""
    for at, (has_own, has_member) in enumerate(rules.batches):
        now = w.drivers[at]
        if now.is_done:
            continue
        is_ready = now.own >= has_own and now.member >= has_member
        if w.owner < _OWNERS:
            yield from _takes(w, at, rules, is_ready=is_ready)
        if w.holder != at:
            continue
        if has_member and not now.member:
            yield f"{at} has its member prepared", _prepares(w, at, is_own=False)
        if now.begun and not now.own:
            yield f"{at} prepares its own part", _prepares(w, at, is_own=True)
        if rules.aborts:
            yield f"{at} aborts everything", _knows(w._replace(prepared=frozenset()), at, Driver())
        if is_ready:
            yield from _commits(w, at, rules)


def _takes(w: World, at: int, rules: Rules, *, is_ready: bool) -> Iterator[tuple[str, World]]:
    now, taken = w.drivers[at], w._replace(owner=w.owner + 1, holder=at, epoch=w.epoch + 1)
    if is_ready:
        yield f"{at} restarts, to commit its batch", _knows(taken, at, now._replace(begun=False))
        return
    mine = frozenset(part for part in w.prepared if part.driver == at)
    fresh = taken._replace(prepared=w.prepared - mine)
    if rules.batches[at][0]:
        yield f"{at} begins its own part", _knows(fresh, at, Driver(begun=True))
        if rules.own_last and now.member and w.holder == at:
            yield f"{at} begins its own part after its member", _knows(taken, at, now._replace(begun=True))
    if rules.own_last or not rules.batches[at][0]:
        yield f"{at} takes the id", _knows(fresh, at, Driver())


def _knows(w: World, at: int, driver: Driver) -> World:
    return w._replace(drivers=(*w.drivers[:at], driver, *w.drivers[at + 1 :]))


def _prepares(w: World, at: int, *, is_own: bool) -> World:
    part, now = Part(at, is_own, w.owner, w.epoch), w.drivers[at]
    after = now._replace(own=True) if is_own else now._replace(member=True)
    return _knows(w, at, after)._replace(prepared=w.prepared | {part}, epoch=w.epoch + is_own)


def _commits(w: World, at: int, rules: Rules) -> Iterator[tuple[str, World]]:
    members = {part for part in w.prepared if not part.is_own}
    named = {part for part in members if part.driver == at} if rules.batches[at][1] else set[Part]()
    if rules.batches[at][1] and not named:
        return  # it is refused: the member that it names is aborted
    own = _own_parts(w, named, members, rules.covers)
    if own is None:
        return
    covered = own | named
    is_torn = rules.batches[at][0] and not any(part.is_own and part.driver == at for part in covered)
    is_alien = any(part.driver != at for part in covered)
    after = w._replace(prepared=w.prepared - covered, alien=w.alien or is_alien, torn=w.torn or is_torn)
    yield f"{at} commits its batch", _knows(after, at, w.drivers[at]._replace(is_done=True))


def _own_parts(w: World, named: set[Part], members: set[Part], covers: str) -> set[Part] | None:
    """None: the commit is refused."""
    own = {part for part in w.prepared if part.is_own}
    if covers == "all":
        return own
    if covers == "epoch":
        return {part for part in own if part.epoch in {one.epoch for one in named}}
    itself = {part for part in own if part.owner == w.owner}
    brought = {part for part in own if part.owner in {one.owner for one in named}}
    if covers == "itself":
        return itself
    if covers == "brought":
        return brought
    found, has_begun = itself | brought, w.drivers[w.holder].begun
    if not (named or found or has_begun or covers == "no former"):
        found = {part for part in own if part.owner not in {one.owner for one in members}}
    owners = {part.owner for part in found} | ({w.owner} if has_begun else set())
    return None if len(owners) > 1 and covers != "several" else found


def broken(w: World) -> Iterator[str]:
    """The invariants that do not hold."""
    if w.alien:
        yield "B1: a commit shows a part of another batch"
    if w.torn:
        yield "B2: a batch is committed without its owner's own part"


class Scenario(NamedTuple):
    """What is explored, and what must be found: the beginning of an invariant's name, or nothing."""

    name: str
    rules: Rules = Rules()
    flaw: str | None = None


_ALONE: Final = ((True, False),)
_OWN_PARTS: Final = ((True, False), (True, False))
_MIXED: Final = ((True, True), (False, True))

SCENARIOS: Final = (
    Scenario("the rules"),
    Scenario("the rules, where one batch has members alone", Rules(batches=_MIXED)),
    Scenario("the rules, one driver whose batch has no member", Rules(batches=_ALONE, aborts=False)),
    Scenario("the rules, two of these that abort nothing", Rules(batches=_OWN_PARTS, aborts=False)),
    Scenario("all own parts are covered", Rules(covers="all"), "B1"),
    Scenario("all own parts, by a batch of members alone", Rules(covers="all", batches=_MIXED), "B1"),
    Scenario("no former owner's part is covered", Rules(covers="itself"), "B2"),
    Scenario("a part is covered by its members alone", Rules(covers="brought", batches=_ALONE, aborts=False), "B2"),
    Scenario("a part is covered with members of its epoch", Rules(covers="epoch"), "B2"),
    Scenario("no part is covered without a member", Rules(covers="no former", batches=_ALONE, aborts=False), "B2"),
    Scenario(
        "own parts of several owners are covered", Rules(covers="several", batches=_OWN_PARTS, aborts=False), "B1"
    ),
    Scenario("limit: two drivers whose batches have no members", Rules(batches=_OWN_PARTS), "B"),
    Scenario("limit: a part is begun after its members, and its driver restarts", Rules(own_last=True), "B2"),
)


def explore(scenario: Scenario, most_states: int = 200_000) -> tuple[int, bool, Trace | None]:
    """States, whether the limit was met, and the first flaw."""
    world = World(drivers=(Driver(),) * len(scenario.rules.batches))
    found = Search(lambda w: step(w, scenario.rules), broken, most_states).run(world, scenario.flaw or "B")
    return found.states, found.is_cut, found.trace


if __name__ == "__main__":
    sys.exit(run_scenarios(SCENARIOS, explore))
