"""Plans are cut as far as the same invariant breaks, and no further."""

from dataclasses import replace

from verification.simulation.plan import FaultPlan, Plan
from verification.simulation.shrinking import Shrinker
from verification.simulation.world import Outcome

WHOLE = tuple(FaultPlan(float(time), "cut", 0.0, 0.0) for time in range(16))


def outcome(plan: Plan, broken: str | None) -> Outcome:
    return Outcome(plan, None if broken is None else (broken, "so"), (), 0, {})


def cut(shrinker: Shrinker[Plan]) -> None:
    shrinker.drop(lambda plan: plan.faults, lambda plan, kept: replace(plan, faults=kept))


def least(*times: float, attempts: int = 400) -> tuple[Outcome, int]:
    """What is left of sixteen faults, and how many plans were run."""
    asked: list[Plan] = []

    def run(plan: Plan) -> Outcome:
        asked.append(plan)
        left = {fault.time for fault in plan.faults}
        return outcome(plan, "bad" if left.issuperset(times) else "other" if not left else None)

    found = Shrinker[Plan](outcome(Plan(1, (), WHOLE), "bad"), run, attempts).shrink(cut)
    return found, len(asked)


def test_only_what_breaks_the_invariant_is_left() -> None:
    found, _ = least(3.0, 11.0)
    assert [fault.time for fault in found.plan.faults] == [3.0, 11.0]


def test_a_plan_that_breaks_another_invariant_is_not_taken() -> None:
    found, _ = least(5.0)
    assert [fault.time for fault in found.plan.faults] == [5.0]
    assert found.broken == ("bad", "so")


def test_no_more_plans_are_run_than_allowed() -> None:
    found, runs = least(3.0, 11.0, attempts=4)
    assert runs == 4
    assert {3.0, 11.0} <= {fault.time for fault in found.plan.faults}


def test_a_plan_of_which_nothing_can_be_left_out_stays() -> None:
    found, _ = least(*(fault.time for fault in WHOLE))
    assert found.plan.faults == WHOLE
