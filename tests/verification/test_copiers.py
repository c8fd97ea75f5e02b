"""Kafka's own transactional copiers through kproxy on three real brokers: a small run of what can be a long one."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from verification.copiers.__main__ import main
from verification.copiers.processes import ToolFailed
from verification.copiers.run import Job, Outcome, run


@pytest.mark.kafka
@pytest.mark.java
def test_each_number_is_copied_once_whatever_is_killed(tmp_path: Path) -> None:
    told: dict[str, int] = {}
    outcome = run(Job(records=1500, kills=4, pause=3.0, seconds=240, seed=3), tmp_path, told.__setitem__)
    assert outcome.holds, outcome
    assert outcome.written > outcome.committed == 1500
    assert told["written"] == 1500


@pytest.mark.parametrize(
    "wrong",
    [
        {"committed": 9, "unique": 9},
        {"committed": 11, "unique": 10},
        {"disordered": 1},
        {"bugs": ["Traceback"]},
    ],
)
def test_any_flaw_shows(wrong: dict[str, object]) -> None:
    right = {"records": 10, "committed": 10, "unique": 10}
    assert Outcome(**right).holds  # type: ignore[arg-type]
    assert not Outcome(**{**right, **wrong}).holds  # type: ignore[arg-type]


def test_the_exit_code_says_whether_it_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(outcome: Outcome | None) -> int:
        def instead(*_: object) -> Outcome:
            if outcome is None:
                raise ToolFailed("a tool ended")
            return outcome

        monkeypatch.setattr("verification.copiers.__main__.run", instead)
        return CliRunner().invoke(main, ["--records", "10"]).exit_code

    assert runs(Outcome(10, 10, 10)) == 0
    assert runs(Outcome(10, 9, 9)) == 1
    assert runs(None) == 1
