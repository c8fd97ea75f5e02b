"""Plans of drivers and their workers."""

from random import Random

from verification.simulation.transactions.crew_plans import CrewPlan, CrewTaste, make_crews
from verification.simulation.transactions.plan import PLACES

_EACH = CrewTaste(runs=1.0, crews=(2, 2), lives=(2,))


def crews(taste: CrewTaste, count: int = 40) -> list[tuple[CrewPlan, ...]]:
    return [make_crews(Random(seed), taste, 3, PLACES) for seed in range(count)]


def test_a_seed_is_a_plan() -> None:
    assert crews(_EACH) == crews(_EACH)


def test_plans_are_what_a_world_can_run() -> None:
    for crew in (one for some in crews(_EACH) for one in some):
        assert all(life.instance < 3 for life in crew.lives)
        for batch in crew.batches:
            attempts = [one for task in batch.tasks for one in task.attempts]
            assert all(one.instance < 3 for one in attempts)
            assert all(0 <= place < PLACES for one in attempts for writes in one.writes for place, _ in writes)
            assert all(place < 3 for place in batch.repeats)


def test_a_taste_says_what_happens() -> None:
    assert not any(crews(CrewTaste(runs=0.0)))
    assert 0 < sum(bool(some) for some in crews(CrewTaste())) < 40
    twins = [some for some in crews(_EACH) if some[0].transactional_id == some[1].transactional_id]
    assert twins
    assert all(one.batches == other.batches for one, other in twins)
    assert all(crew.lives[-1].dies_after is None for some in crews(CrewTaste(runs=1.0, leaves=0.0)) for crew in some)
