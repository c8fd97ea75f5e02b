"""The model of continued transactions: its rules hold, each replaced rule fails, and something is continued at all."""

import pytest

from verification.models.continued import SCENARIOS, Model, Rules, Scenario, Sizes, World, explore
from verification.models.search import Search


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_rules_hold_and_each_replaced_rule_fails(scenario: Scenario) -> None:
    _, is_cut, trace = explore(scenario)
    assert not is_cut
    found = trace.invariant if trace is not None else None
    assert (found is None) if scenario.flaw is None else (found is not None and found.startswith(scenario.flaw))


def test_a_client_is_answered_a_commit_of_what_it_wrote_through_an_instance_that_was_killed() -> None:
    def continued(w: World) -> list[str]:
        is_whole = w.told and ("commit", 1, -1) in w.log and {epoch for epoch, _ in w.data[0]} == {0, 1}
        return ["continued"] if is_whole and w.owners[0].stage == "dead" else []

    found = Search(Model(Rules(), Sizes()).step, continued, 100_000).run(World(), "continued")
    assert found.trace is not None
