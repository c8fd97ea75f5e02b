"""kproxy without one of its rules about epochs that clients raise is found out."""

import pytest

from tests.verification.simulation.test_variants import is_shown
from verification.simulation.kept_variants import KEPT_VARIANTS
from verification.simulation.variants import Variant

pytestmark = pytest.mark.long


@pytest.mark.parametrize("variant", KEPT_VARIANTS, ids=lambda variant: variant.name)
def test_a_rule_less_breaks_an_invariant(variant: Variant) -> None:
    assert any(is_shown(variant, seed) for seed in variant.tried)
