"""kproxy without one rule of its transactions is found out in a run that holds with it."""

import pytest

from verification.simulation.transactions.variants import VARIANTS, Variant
from verification.simulation.transactions.world import run

pytestmark = pytest.mark.long


def is_shown(variant: Variant, seed: int) -> bool:
    with variant.applied():
        broken = run(variant.plan(seed)).broken
    return broken is not None and broken[0] in variant.breaks and run(variant.plan(seed)).broken is None


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_rule_less_breaks_an_invariant(variant: Variant) -> None:
    assert any(is_shown(variant, seed) for seed in variant.tried)
