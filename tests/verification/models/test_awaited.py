"""The model of awaited records: the rules hold, each replaced rule breaks a promise, exceptions are found as named."""

import pytest
from click.testing import CliRunner

from verification.models.awaited import FLAWS, HOLDS, NETWORK, UNREAD, Scenario, explore, main

#: These take longer than a test may; ``python -m verification.models.awaited`` runs them.
LONG = {
    "two requests are refused, one record is given up",
    "the leader moves, and a request is refused",
    "the leader moves, a request is refused, the connection is new",
    "the leader moves, a request is refused, a record is given up",
    "a request is refused, and one answered late",
    "the leader moves, and a request is answered late",
    "two records, the leader moves and moves back, a request is refused",
}


@pytest.mark.parametrize("scenario", [one for one in HOLDS if one.name not in LONG], ids=lambda one: one.name)
def test_the_rules_hold(scenario: Scenario) -> None:
    found = explore(scenario)
    assert found.trace is None
    assert not found.is_cut
    assert found.states > 100
    assert set(found.excuses) == scenario.excuses


@pytest.mark.parametrize(("moves", "refusals", "gives"), [(1, 1, 1), (2, 1, 0)])
def test_two_records_keep_their_order_where_longer_queues_take_too_long(moves: int, refusals: int, gives: int) -> None:
    excuses = frozenset((UNREAD,)) if moves > 1 else frozenset[str]()
    found = explore(Scenario("two records", records=2, moves=moves, refusals=refusals, gives=gives, excuses=excuses))
    assert (found.trace, found.is_cut) == (None, False)


@pytest.mark.parametrize("scenario", FLAWS, ids=lambda one: one.name)
def test_each_replaced_rule_breaks_a_promise(scenario: Scenario) -> None:
    found = explore(scenario)
    assert found.trace is not None
    assert scenario.flaw is not None
    assert found.trace.invariant.startswith(scenario.flaw)


def test_an_exception_that_is_not_expected_breaks_the_order_and_one_that_is_not_found_is_named() -> None:
    [scenario] = [one for one in HOLDS if one.name == "the leader of a partition that was not used moves"]
    found = explore(Scenario("", moves=1, is_used=False))
    assert found.trace is not None
    assert found.trace.invariant.startswith("order")
    both = explore(Scenario("", moves=1, is_used=False, excuses=scenario.excuses | {NETWORK}))
    assert both.trace is not None
    assert both.trace.invariant.startswith("without")


def test_the_command_runs_what_is_named_and_says_how_often_an_exception_was_found() -> None:
    result = CliRunner().invoke(main, ["the leader of a partition that was not used"])
    assert result.exit_code == 0
    assert f"{UNREAD}: " in result.output
