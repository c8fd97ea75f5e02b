"""Runs made by hand with members."""

import pytest

from verification.simulation.transactions.member_scripts import committed, killed_at_a_record
from verification.simulation.transactions.world import run


def test_members_at_two_kproxies_are_committed_once_by_a_third() -> None:
    outcome = run(committed(0))
    assert outcome.broken is None
    assert sum("crew/0 is committed" in line for line in outcome.trace) == 3


@pytest.mark.parametrize("seed", range(0, 24, 3))
def test_a_kproxy_may_die_over_any_record_of_the_log(seed: int) -> None:
    outcome = run(killed_at_a_record(seed))
    assert outcome.broken is None
    assert sum("is killed" in line for line in outcome.trace) == 3
