"""Runs are what their words say."""

import pytest

from verification.models.transaction_log.rules import BUDGETS, RULES, make_run
from verification.models.transaction_log.scenarios import SCENARIOS


def test_a_run_has_kproxys_rules_where_nothing_else_is_said() -> None:
    run = make_run("instances=2 claims=3", "tell=ack block=4")
    assert (run.instances, run.claims, run.block, run.txns) == (2, 3, 4, 0)
    assert not run.is_kproxys("tell")
    assert all(run.is_kproxys(rule) for rule in RULES if rule != "tell")


@pytest.mark.parametrize("word", ["tell=nobody", "nonsense=1", "nonsense"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(KeyError):
        make_run("", word)


def test_every_rule_is_missed_somewhere() -> None:
    replaced = {word for one in SCENARIOS for changes, _ in one.broken for word in changes.split()}
    for rule, choices in RULES.items():
        for other in choices[1:]:
            assert f"{rule}={other}" in replaced
    assert all(hasattr(make_run(""), budget) for budget in BUDGETS)
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)
