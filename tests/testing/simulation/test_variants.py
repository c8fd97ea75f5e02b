"""kproxy without one of its rules is found out; with it, the same run holds."""

import pytest

from kproxy.testing.simulation.runner import first_failure
from kproxy.testing.simulation.variants import VARIANTS, Variant
from kproxy.testing.simulation.world import run


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_rule_less_breaks_an_invariant(variant: Variant) -> None:
    with variant.applied():
        outcome = first_failure(range(variant.seeds), variant.taste)
    assert outcome is not None
    assert outcome.broken is not None
    assert outcome.broken[0] in variant.breaks
    assert run(outcome.plan).broken is None
