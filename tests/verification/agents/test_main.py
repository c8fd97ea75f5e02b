import json
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.testing.tools import Unavailable
from verification.agents import __main__ as command
from verification.agents.debian import Kcat
from verification.agents.packages import Unpacked
from verification.agents.programs import AGENTS
from verification.agents.trial import KINDS, Found, Trial


@pytest.fixture(autouse=True)
def _no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    for agent in AGENTS.values():
        monkeypatch.setattr(agent, "unpacked", classmethod(lambda _: Unpacked(None, "1.0")))  # type: ignore[arg-type]


def finds(monkeypatch: pytest.MonkeyPatch, **by_kind: Found) -> list[Trial]:
    trials: list[Trial] = []

    def run(trial: Trial, _: Any) -> Found:
        trials.append(trial)
        return by_kind.get(trial.kind, Found(trial.lines, 0, 0, 9, 1.0))

    monkeypatch.setattr(command, "run", run)
    return trials


def test_all_agents_are_tried_in_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = finds(monkeypatch, direct=Found(5_000, 0, 2_198, 5, 16.0))
    result = CliRunner().invoke(command.main, ["--short"])
    assert result.exit_code == 0  # copies at the broker are what is shown
    assert len(trials) == len(AGENTS) * len(KINDS)
    assert {trial.lines for trial in trials if trial.agent is Kcat} == {5_000}
    assert "2,198" in result.output


@pytest.mark.parametrize("bad", [Found(10, 1, 0, 5, 1.0), Found(10, 0, 1, 5, 1.0)], ids=["missing", "copies"])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_what_is_not_there_once_through_kproxy_fails(bad: Found, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, **{kind: bad})
    result = CliRunner().invoke(command.main, ["--only", "kcat", "--json", "--lines", "10", "--share", "0.5"])
    assert result.exit_code == 1
    rows = [json.loads(row) for row in result.output.splitlines() if row.startswith("{")]
    assert [(row["kind"], row["share"], row["missing"] + row["copies"]) for row in rows] == [
        (one, 0.5, int(one == kind)) for one in KINDS
    ]


def test_a_trial_that_can_not_be_run_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> Found:
        raise Unavailable("Debian has no package kcat here (apt-get update?)")

    monkeypatch.setattr(command, "run", run)
    result = CliRunner().invoke(command.main, ["--only", "kcat", "--kind", "through"])
    assert result.exit_code == 2
    assert "Debian has no package kcat here" in result.output
