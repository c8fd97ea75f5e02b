"""Plans of drivers and their workers."""

from random import Random

from verification.simulation.transactions.member_plans import MemberGroupPlan, MemberGroupTaste, make_member_groups
from verification.simulation.transactions.plan import PLACES

_EACH = MemberGroupTaste(runs=1.0, member_groups=(2, 2), lives=(2,))


def member_groups(taste: MemberGroupTaste, count: int = 40) -> list[tuple[MemberGroupPlan, ...]]:
    return [make_member_groups(Random(seed), taste, 3, PLACES) for seed in range(count)]


def test_a_seed_is_a_plan() -> None:
    assert member_groups(_EACH) == member_groups(_EACH)


def test_plans_are_what_a_world_can_run() -> None:
    for member_group in (one for some in member_groups(_EACH) for one in some):
        assert all(life.instance < 3 for life in member_group.lives)
        for batch in member_group.batches:
            attempts = [one for task in batch.tasks for one in task.attempts]
            assert all(one.instance < 3 for one in attempts)
            assert all(0 <= place < PLACES for one in attempts for writes in one.writes for place, _ in writes)
            assert all(place < 3 for place in batch.repeats)


def test_a_taste_says_what_happens() -> None:
    assert not any(member_groups(MemberGroupTaste(runs=0.0)))
    assert 0 < sum(bool(some) for some in member_groups(MemberGroupTaste())) < 40
    twins = [some for some in member_groups(_EACH) if some[0].transactional_id == some[1].transactional_id]
    assert twins
    assert all(one.batches == other.batches for one, other in twins)
    assert all(
        member_group.lives[-1].dies_after is None
        for some in member_groups(MemberGroupTaste(runs=1.0, leaves=0.0))
        for member_group in some
    )
