"""kproxy without one of its rules is found out in a run that holds with it."""

import pytest

from kproxy.testing.simulation.plan import Plan, make_plan
from kproxy.testing.simulation.variants import VARIANTS, Variant
from kproxy.testing.simulation.world import run


def breaks(variant: Variant, plan: Plan) -> bool:
    with variant.applied():
        broken = run(plan).broken
    return broken is not None and broken[0] in variant.breaks


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_rule_less_breaks_an_invariant(variant: Variant) -> None:
    plans = (make_plan(seed, variant.taste) for seed in range(variant.seeds))
    assert any(breaks(variant, plan) and run(plan).broken is None for plan in plans)
