"""Which part of the attacks is run."""

from verification.hostile.__main__ import _only
from verification.hostile.setups import SETUPS


def test_one_setup_or_one_attack_may_be_chosen() -> None:
    names = [setup.name for setup in SETUPS]
    assert len(set(names)) == len(names)
    assert [setup for setup in SETUPS if _only(setup, None) is setup] == list(SETUPS)
    assert [setup.name for setup in SETUPS if _only(setup, "webhook") is not None] == ["webhook"]
    found = [kept for setup in SETUPS if (kept := _only(setup, "half_heads")) is not None]
    assert [(setup.name, len(setup.attacks), setup.floods) for setup in found] == [("pages", 1, False)]


def test_every_attack_says_what_it_does() -> None:
    attacks = [attack for setup in SETUPS for attack in setup.attacks]
    assert all((attack.__doc__ or "").endswith(".") for attack in attacks)
