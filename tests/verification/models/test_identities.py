"""The model of identities: kproxy's rules hold, and each rule is missed when it is replaced."""

import pytest

from verification.models.identities.__main__ import MOST, SCENARIOS, explore

#: The last scenario takes longer: ``python -m verification.models.identities``.
_SCENARIOS = 6


@pytest.mark.parametrize("number", range(_SCENARIOS))
def test_a_rule_holds_and_is_missed(number: int) -> None:
    scenario = SCENARIOS[number]
    assert scenario.flaw in explore(scenario, changed=True)[1]
    states, found = explore(scenario, changed=False)
    assert found == {}
    assert states < MOST
