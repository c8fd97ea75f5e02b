"""kproxy without one rule of members or prepared parts is found out in a run that holds with it."""

import pytest

from tests.verification.simulation.transactions.test_variants import is_shown
from verification.simulation.transactions.member_variants import MEMBER_VARIANTS
from verification.simulation.transactions.variants import Variant

pytestmark = pytest.mark.long


@pytest.mark.parametrize("variant", MEMBER_VARIANTS, ids=lambda variant: variant.name)
def test_a_rule_less_breaks_an_invariant(variant: Variant) -> None:
    assert any(is_shown(variant, seed) for seed in variant.tried)
