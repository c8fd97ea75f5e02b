from hypothesis import given
from hypothesis import strategies as st

from verification.chaos.schedule import FAMILIES, SECONDS, Step, gateway_schedule, make_schedule

_RUNS = st.tuples(st.integers(0, 1 << 32), st.floats(30, 300), st.integers(1, 3), st.integers(1, 5))


def schedule(run: tuple[int, float, int, int], families: tuple[str, ...] = FAMILIES) -> list[Step]:
    seed, seconds, kproxies, brokers = run
    return make_schedule(seed, seconds, kproxies=kproxies, brokers=brokers, families=families)


def overlapping(steps: list[Step], spared: float = 0.0) -> list[tuple[Step, Step]]:
    return [
        (one, other)
        for index, one in enumerate(steps)
        for other in steps[index + 1 :]
        if other.at < one.at + one.seconds + spared
    ]


@given(_RUNS)
def test_the_same_seed_gives_the_same_faults(run: tuple[int, float, int, int]) -> None:
    assert schedule(run) == schedule(run)


def test_another_seed_gives_other_faults() -> None:
    assert schedule((1, 60, 1, 3)) != schedule((2, 60, 1, 3))


@given(_RUNS)
def test_faults_come_in_order_end_before_the_run_does_and_last_as_long_as_they_may(
    run: tuple[int, float, int, int],
) -> None:
    _, seconds, kproxies, brokers = run
    steps = schedule(run)
    assert steps == sorted(steps, key=lambda step: step.at)
    for step in steps:
        assert step.at > 0
        assert step.at + step.seconds < seconds
        assert SECONDS[step.fault][0] <= step.seconds <= SECONDS[step.fault][1]
        assert 0 <= step.target < (kproxies if step.family in ("client", "kproxy") else brokers)


@given(_RUNS)
def test_two_brokers_are_never_down_or_frozen_at_once_and_one_has_time_to_come_back(
    run: tuple[int, float, int, int],
) -> None:
    assert overlapping([step for step in schedule(run) if step.family == "broker"], spared=4.0) == []


@given(_RUNS)
def test_a_kproxy_is_not_frozen_while_it_is_dead(run: tuple[int, float, int, int]) -> None:
    pairs = overlapping([step for step in schedule(run) if step.family == "kproxy"])
    assert all(one.target != other.target for one, other in pairs)


@given(_RUNS)
def test_at_most_three_faults_last_at_a_time(run: tuple[int, float, int, int]) -> None:
    steps = schedule(run)
    for step in steps:
        assert sum(other.at <= step.at < other.at + other.seconds for other in steps if other is not step) <= 2


def test_all_kinds_of_faults_come_and_only_those_that_were_asked_for() -> None:
    everything = {(step.family, step.fault) for seed in range(10) for step in schedule((seed, 300, 1, 3))}
    assert len(everything) == 13
    assert {step.family for step in schedule((1, 300, 1, 3), ("upstream", "broker"))} == {"upstream", "broker"}


def test_gateways_are_killed_frozen_or_cut_off_one_after_the_other() -> None:
    steps = gateway_schedule(1, 300, 3)
    assert [step.at for step in steps] == [5.0 * nth for nth in range(1, 59)]
    assert {(step.fault, step.target) for step in steps} == {
        (fault, target) for fault in ("kill", "pause", "cut off") for target in range(3)
    }
    assert overlapping(steps, spared=1.0) == []
