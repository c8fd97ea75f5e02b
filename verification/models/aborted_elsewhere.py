"""Explicit-state model: an instance has not read the claim that aborted its transaction (first protocol, KIP-98).

The client's identity is the same in all its transactions, and its connections are spread over two instances. Instance A
has an open transaction that a claim of B has aborted, and the client has aborted it at B, too. A has not read this yet:
it treats the client's next data as those of the dead transaction, where no commit of B knows them. So B fences the
former epochs in each partition that joins its transactions, and A reads the log where a partition joins for a second
time.

``python -m verification.models.aborted_elsewhere`` explores every interleaving: once with the rules, and once without
each. The exit status is the number of surprises. One partition, which the dead transaction has announced: any other A
would have to announce, and the log refuses that.
"""

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from verification.models.scenario_runs import run_scenarios
from verification.models.search import Search, Trace

_TRANSACTIONS: Final = 3


class Rules(NamedTuple):
    """What the instances do; each other value is a flaw that the search has to find."""

    #: B fences the partition ``before`` the client hears that it has joined, ``after``, or ``never``.
    fence: str = "before"
    #: An instance where a partition joins again ``reads`` the log first, or ``trusts`` what it knows.
    again: str = "reads"


class World(NamedTuple):
    """All that there is."""

    #: A still believes in its transaction; it is fenced in the partition; what it has in flight: transactions.
    lags: bool = True
    fenced: bool = False
    flying: frozenset[int] = frozenset()
    #: The client's transaction, and where its partition has joined.
    number: int = 0
    joined: str = ""
    #: The record: "", "sent", "refused", or the instance that acknowledged it.
    record: str = ""
    #: B will fence; how B's last transaction ended.
    owes: bool = False
    last_committed: bool = False
    #: A commit was answered with success, and lacks an acknowledged record.
    lost: bool = False


def step(w: World, rules: Rules) -> Iterator[tuple[str, World]]:
    """Each next state with its name."""
    if w.lags:
        yield "A reads the log", w._replace(lags=False)
    if w.owes:
        yield "B fences the partition", w._replace(fenced=True, owes=False)
    for number in w.flying:
        after = w._replace(flying=w.flying - {number})
        if number == w.number and w.record == "sent":
            after = after._replace(record="refused" if w.fenced else "A")
        yield f"what A has sent of {number} arrives", after
    if not w.joined:
        yield from _joins(w, rules)
        return
    if not w.record:
        if w.lags:
            yield "the client writes through A", w._replace(record="sent", flying=w.flying | {w.number})
        if w.joined == "B":
            yield "the client writes through B", w._replace(record="B")
    yield "the client aborts at B", _next(w, committed=w.last_committed and w.joined == "A")
    is_success = w.joined == "B" or w.last_committed
    if w.record in ("A", "B") and is_success:
        yield "the client commits at B", _next(w, committed=True)._replace(lost=w.record == "A")


def _joins(w: World, rules: Rules) -> Iterator[tuple[str, World]]:
    if w.number == _TRANSACTIONS:
        return
    yield "the client commits a transaction of another partition at B", _next(w, committed=True)
    fenced, owes = w.fenced or rules.fence == "before", rules.fence == "after" and not w.fenced
    yield "the partition joins at B", w._replace(joined="B", fenced=fenced, owes=owes)
    if w.lags and rules.again == "reads":
        yield "A reads the log, for the partition joins again", w._replace(lags=False)
    elif w.lags:
        yield "the partition joins at A", w._replace(joined="A")


def _next(w: World, *, committed: bool) -> World:
    return w._replace(number=w.number + 1, joined="", record="", last_committed=committed)


def broken(w: World) -> Iterator[str]:
    """The invariants that do not hold."""
    if w.lost:
        yield "E1: an acknowledged record is not committed"


class Scenario(NamedTuple):
    """What is explored, and what must be found: the beginning of an invariant's name, or nothing."""

    name: str
    rules: Rules = Rules()
    flaw: str | None = None


SCENARIOS: Final = (
    Scenario("the rules"),
    Scenario("nothing is fenced", Rules(fence="never"), "E1"),
    Scenario("the fence comes after the response", Rules(fence="after"), "E1"),
    Scenario("an instance trusts what it knows", Rules(again="trusts"), "E1"),
)


def explore(scenario: Scenario, most_states: int = 100_000) -> tuple[int, bool, Trace | None]:
    """States, whether the limit was met, and the first flaw."""
    found = Search(lambda w: step(w, scenario.rules), broken, most_states).run(World(), scenario.flaw or "E")
    return found.states, found.is_cut, found.trace


if __name__ == "__main__":
    sys.exit(run_scenarios(SCENARIOS, explore))
