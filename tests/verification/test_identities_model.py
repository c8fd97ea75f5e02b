"""The model of identities: kproxy's rules hold, and each rule is missed when it is replaced."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

_MODEL = Path(__file__).parents[2] / "verification" / "models" / "identities"
#: The last scenario takes longer: ``python verification/models/identities/identity_model.py``.
_SCENARIOS = 6


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The model is a program of its own."""
    monkeypatch.syspath_prepend(str(_MODEL))
    return importlib.import_module("identity_model")


@pytest.mark.parametrize("number", range(_SCENARIOS))
def test_a_rule_holds_and_is_missed(model: ModuleType, number: int) -> None:
    scenario = model.SCENARIOS[number]
    assert scenario.flaw in model.explore(scenario, changed=True)[1]
    states, found = model.explore(scenario, changed=False)
    assert found == {}
    assert states < model.MOST
