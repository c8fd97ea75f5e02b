"""kproxy without one of its rules is found out in a run that holds with it."""

import pytest

from verification.simulation.variants import VARIANTS, Variant
from verification.simulation.world import Outcome, run

pytestmark = pytest.mark.long

BY_HAND = [variant for variant in VARIANTS if callable(variant.runs)]


def outcome(variant: Variant, seed: int, *, changed: bool) -> Outcome:
    with variant.applied(changed=changed):
        return run(variant.plan(seed))


def is_shown(variant: Variant, seed: int) -> bool:
    broken = outcome(variant, seed, changed=True).broken
    return broken is not None and broken[0] in variant.breaks and outcome(variant, seed, changed=False).broken is None


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_rule_less_breaks_an_invariant(variant: Variant) -> None:
    assert any(is_shown(variant, seed) for seed in variant.tried)


@pytest.mark.parametrize("variant", BY_HAND, ids=lambda variant: variant.name)
def test_runs_made_by_hand_hold_with_the_rule(variant: Variant) -> None:
    for seed in range(5):
        assert outcome(variant, seed, changed=False).broken is None
