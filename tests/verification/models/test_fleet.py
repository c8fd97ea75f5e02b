"""The model of retries at another instance: its rules hold, and each replaced rule fails as it must."""

import pytest

from verification.models.fleet import FLAWS, SCENARIOS, Copy, Known, Rules, World, append, explore, main

#: These take as long as all others together.
LONG = {Rules(evidence="any"), Rules(lists="lane")}


@pytest.mark.parametrize(
    "name", ["fails over", "killed", "sent again", "stopped", "read late", "shared", "equal", "dead"]
)
def test_the_rules_hold(name: str) -> None:
    found = explore(Rules(), SCENARIOS[name])
    assert found.trace is None
    assert found.states > 3000


@pytest.mark.parametrize("rules", [rules for rules in FLAWS if rules not in LONG], ids=str)
def test_each_replaced_rule_fails(rules: Rules) -> None:
    name, flaw, _ = FLAWS[rules]
    found = explore(rules, SCENARIOS[name])
    assert found.trace is not None
    assert found.trace.invariant == flaw
    assert len(found.trace.steps) > 10


def test_the_command_counts_surprises(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("verification.models.fleet.SCENARIOS", {"sent again": SCENARIOS["sent again"]})
    expected, surprise = ("sent again", "twice", "as expected"), ("sent again", "lost", "another flaw")
    monkeypatch.setattr(
        "verification.models.fleet.FLAWS", {Rules(held="read"): expected, Rules(first="read"): surprise}
    )
    assert main() == 1
    said = capsys.readouterr().out
    assert "the rules, sent again" in said
    assert "as expected" in said


def test_the_broker_refuses_what_is_fenced_and_takes_a_copy_once() -> None:
    copy = Copy(0, 0, "a")
    taken, world = append(World(), copy)
    assert taken
    assert append(world, copy) == (True, world)
    assert append(world, Copy(0, 2, "c")) == (False, world)
    fenced = World(broker=((0, Known(fenced_for=1)),))
    assert append(fenced, copy) == (False, fenced)
