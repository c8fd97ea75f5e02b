"""The rules of retries on many random walks, scenario by scenario."""

import pytest

from kproxy.dedup.retry_ledger import RetryLedger
from kproxy.dedup.retry_rules import Rules
from tests.dedup.walk import Scenario, Walk

WALKS = 600
WALKS_AT_REST = 100
STEPS = 80

SCENARIOS = {
    "closed while the first is open": Scenario([["a"]], [0], faults={"re": 1, "lost": 1, "resend": 2}),
    "the answer to the retry is lost, too": Scenario([["a"]], [0], faults={"re": 2, "cut": 1}),
    "the answer was written, never read": Scenario([["a"]], [0], faults={"re": 1, "cut": 1, "resend": 1}),
    "equal batches, on a new connection": Scenario([["a", "a"]], [0], faults={"re": 2, "resend": 1}),
    "the retry overtakes the first send": Scenario([["a"]], [0], faults={"re": 1}),
    "given up, then anew": Scenario([["a", "b", "a"]], [0], faults={"re": 1, "give": 1}),
    "told of a time-out": Scenario([["a"]], [0], faults={"err": 1, "re": 1}),
    "the client's own time-out": Scenario([["a"]], [0], timed=True, faults={"slow": 1}),
    "the late answer is thrown away": Scenario([["a", "b"]], [0], timed=True, faults={"slow": 1, "re": 1}),
    "split, and joined": Scenario([["ab", "c"]], [0], regroup=True, faults={"re": 1, "cut": 1}),
    "the same with another client": Scenario([["a", "b"], ["c"]], [0, 1], regroup=True, faults={"cut": 1}),
    "two processes of one name": Scenario([["a", "b"], ["c"]], [0, 0], faults={"re": 1, "cut": 1}),
    "the same, equal records": Scenario([["a"], ["a"]], [0, 0], faults={"re": 1}),
    "retries in another order": Scenario([["a", "b"]], [0], depth=2, faults={"re": 1, "cut": 1}),
    "equal records in flight": Scenario([["a", "a"]], [0], depth=2, faults={"re": 1}),
    "crash": Scenario([["a", "b"]], [0], faults={"crash": 1, "resend": 1, "re": 1}),
    "crash, regrouped": Scenario([["ab", "c"]], [0], regroup=True, faults={"crash": 1, "re": 1}),
    "mix": Scenario([["a", "b", "a"]], [0], faults={"re": 1, "give": 1, "lost": 1, "resend": 1}),
    "mix with time-outs": Scenario(
        [["a", "b", "a"]], [0], timed=True, faults={"re": 1, "give": 1, "lost": 1, "resend": 1, "slow": 1}
    ),
    "mix of one that pipelines": Scenario([["a", "b", "c"]], [0], depth=2, faults={"re": 1, "lost": 1, "resend": 1}),
    "mix of two": Scenario([["a", "b"], ["a"]], [0, 0], faults={"re": 1, "lost": 1, "resend": 1, "err": 1}),
    "left unseen": Scenario([["a", "b"]], [0], timed=True, faults={"hide": 1}),
    "left unseen, and the retry is left, too": Scenario([["a", "b"]], [0], timed=True, faults={"hide": 2, "lost": 1}),
    "left unseen by one that pipelines": Scenario([["a", "b", "c"]], [0], depth=2, timed=True, faults={"hide": 2}),
    "mix with what is left unseen": Scenario(
        [["a", "b", "a"]], [0], timed=True, faults={"hide": 1, "re": 1, "cut": 1, "lost": 1, "resend": 1}
    ),
    "mix of two producers": Scenario([["a", "b"], ["a"]], [0, 1], faults={"re": 1, "cut": 1, "crash": 1}),
}


def rules(depth: int) -> Rules:
    """A client's depth is known; a clean end proves that answers were had."""
    return Rules(window=120.0, in_flight=depth, client_timeout=60.0)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_no_walk_breaks_a_promise(scenario: Scenario) -> None:
    for seed in range(WALKS):
        Walk(scenario, rules(scenario.depth), seed).run(STEPS)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_nor_does_one_whose_ledgers_rest_between_connections(scenario: Scenario) -> None:
    for seed in range(WALKS_AT_REST):
        Walk(scenario, rules(scenario.depth), seed, always_rest=True).run(STEPS)


@pytest.mark.parametrize(("owner", "rule"), [(RetryLedger, "_see_older"), (Rules, "may_be_left")])
def test_without_the_rules_of_connections_that_were_left_a_walk_breaks_one(
    owner: type, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, rule, lambda *_: None)
    scenario = SCENARIOS["left unseen, and the retry is left, too"]
    with pytest.raises(AssertionError, match="D2"):
        for seed in range(WALKS):
            Walk(scenario, rules(scenario.depth), seed).run(STEPS)
