"""Kills are spread over the run; a planned one comes when its batch is being written, and its gate opens then."""

import random
from pathlib import Path

import pytest

from verification.spark_proof.kills import PlannedKills, RandomKills, kill_batches


def test_planned_kills_are_spread_over_the_batches() -> None:
    assert kill_batches(2, 4) == [1, 2]
    assert kill_batches(3, 3) == [0, 1, 2]
    assert kill_batches(2, 40) == [13, 26]
    with pytest.raises(ValueError, match="3 kills need 3 batches, and there are 2"):
        kill_batches(3, 2)


def test_a_planned_kill_comes_in_its_batch_which_waits_for_it(tmp_path: Path) -> None:
    gates, written = tmp_path / "gates", {0}
    kills = PlannedKills(["driver", "executor"], 4, gates, lambda batch: batch in written)
    assert {path.name for path in gates.iterdir()} == {"1", "2"}
    assert kills.due() is None
    written.add(1)
    assert [kills.due(), kills.due()] == ["driver", "driver"]
    kills.killed()
    assert [path.name for path in gates.iterdir()] == ["2"]
    assert kills.due() is None
    written.add(2)
    assert kills.due() == "executor"
    kills.killed()
    assert kills.due() is None
    assert not list(gates.iterdir())


def test_random_kills_come_in_order_and_end() -> None:
    kills = RandomKills(iter(["driver", "worker"]), 0, random.Random(1))
    found = []
    while len(found) < 2:
        victim = kills.due()
        if victim is not None:
            found.append(victim)
            kills.killed()
    assert found == ["driver", "worker"]
    assert kills.due() is None


def test_random_kills_wait_for_their_moment() -> None:
    assert RandomKills(iter(["driver"]), 1e9, random.Random(1)).due() is None
