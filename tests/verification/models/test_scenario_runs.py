"""What counts as a surprise in the scenarios of a model."""

from typing import NamedTuple

import pytest

from verification.models.scenario_runs import run_scenarios
from verification.models.search import Trace


class Scenario(NamedTuple):
    """What is found, and what must be."""

    name: str
    found: str | None
    flaw: str | None


def explore(scenario: Scenario) -> tuple[int, bool, Trace | None]:
    trace = None if scenario.found is None else Trace(scenario.found, ["a step"])
    return 7, scenario.name == "cut", trace


@pytest.mark.parametrize(
    ("found", "flaw", "surprises"),
    [
        (None, None, 0),
        ("C1: lost", "C1", 0),
        ("C1: lost", "C", 0),
        (None, "C1", 1),
        ("C1: lost", None, 1),
        ("D", "C", 1),
    ],
)
def test_a_flaw_must_be_found_and_no_other(
    found: str | None, flaw: str | None, surprises: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_scenarios([Scenario("cut", found, flaw)], explore) == surprises
    printed = capsys.readouterr().out
    assert printed.startswith("SURPRISE cut: 7+ states" if surprises else "cut: 7+ states")
    assert ("a step" in printed) == (surprises == 1 and found is not None)
