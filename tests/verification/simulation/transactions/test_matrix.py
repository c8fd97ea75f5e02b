"""Seeds spread over homes and kinds of faults."""

from kproxy.proxy.coordinator_rules import Home
from verification.simulation.transactions.homes import FAULTS, HOMES, faults_of, lone_faults_of
from verification.simulation.transactions.matrix import Matrix, each_fault, repetition
from verification.simulation.transactions.plan import ROAMING, Taste


def test_each_home_has_each_of_its_faults_alone_and_all_together() -> None:
    tastes = each_fault(Taste()).tastes
    for home in HOMES:
        mine = [taste.faults for taste in tastes if taste.homes == (home,)]
        alone = [faults for faults in mine if len(faults) == 1]
        assert sorted(alone) == sorted((kind,) for kind in {*faults_of(home, FAULTS), *lone_faults_of(home)})
        assert mine.count(FAULTS) == len(mine) - len(alone) > 0


def test_500_seeds_run_every_combination() -> None:
    matrix = each_fault(Taste())
    assert {id(matrix.of(seed)) for seed in range(500)} == {id(taste) for taste in matrix.tastes}


def test_only_what_is_asked_for_is_run() -> None:
    matrix = each_fault(Taste(homes=(Home.BROKER,), faults=("late", "cut")))
    assert [taste.faults for taste in matrix.tastes] == [("late",), ("cut",), ("late", "cut")]
    assert each_fault(Taste(faults=())).tastes == (Taste(faults=()),)


def test_a_seed_is_the_run_that_its_repetition_asks_for() -> None:
    matrix = each_fault(Taste(homes=(Home.KPROXY,), faults=("late", "cut")))
    assert repetition(matrix.of(1), 1, FAULTS) == "--first-seed 1 --seeds 1 --home kproxy --faults cut"
    alone = Matrix((Taste(homes=(Home.KPROXY,), faults=("cut",)),))
    assert matrix.run(1).digest == alone.run(1).digest
    assert repetition(Taste(), 7, FAULTS) == "--first-seed 7 --seeds 1 --home kproxy --home broker --home broker-fenced"
    assert repetition(ROAMING, 7, FAULTS) == "--first-seed 7 --seeds 1 --home kproxy --roam"
