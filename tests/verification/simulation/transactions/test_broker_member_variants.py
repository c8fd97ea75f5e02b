"""kproxy without one rule for groups that the broker coordinates fails a run that succeeds with it."""

import pytest

from tests.verification.simulation.transactions.test_variants import is_shown
from verification.simulation.transactions.broker_member_variants import BROKER_MEMBER_VARIANTS
from verification.simulation.transactions.variants import Variant


@pytest.mark.parametrize("variant", BROKER_MEMBER_VARIANTS, ids=lambda variant: variant.name)
def test_a_rule_less_breaks_an_invariant(variant: Variant) -> None:
    assert any(is_shown(variant, seed) for seed in variant.tried)
