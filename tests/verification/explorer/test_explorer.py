"""The coordinator's own code in every order of what may happen, as far as there is time for it here."""

import pytest
from click.testing import CliRunner

from verification.explorer.__main__ import main
from verification.explorer.jobs import Job, jobs
from verification.explorer.scenarios import SCENARIOS, Scenario, bounded
from verification.explorer.search import search
from verification.explorer.variants import VARIANTS, Variant

#: A minute for all of them; ``make explore`` goes to the end.
_MOST_STATES = 1_000
_MOST_TO_FIND = 8_000


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_rules_hold(scenario: Scenario) -> None:
    with bounded():
        found = search(scenario.make, _MOST_STATES)
    assert found.traces == {}
    assert found.is_cut or found.runs


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_a_rule_that_is_left_out_is_missed(variant: Variant) -> None:
    scenario = next(one for one in SCENARIOS if one.name == variant.scenario)
    job = Job(scenario, variant, _MOST_TO_FIND)
    assert not job.is_surprise(job.run())


def test_names_choose_the_searches() -> None:
    assert [job.scenario.name for job in jobs(["killed twice, TV1"], 10, own=True, broken=True)] == [
        "killed twice, TV1"
    ]
    assert len(jobs([], 10, own=True, broken=False)) == len(SCENARIOS)
    assert len(jobs([], 10, own=False, broken=True)) == len(VARIANTS)


def test_the_command_prints_a_table_and_what_was_found() -> None:
    result = CliRunner().invoke(main, ["for longer", "--processes", "1", "--traces"])
    assert result.exit_code == 0, result.output
    assert "every invariant holds" in result.output
    assert "what was acknowledged in a committed transaction is seen: not so" in result.output
    assert "client 1 asks a: Produce" in result.output
    assert "0 surprises" in result.output


def test_a_search_that_finds_nothing_where_it_must_is_a_surprise() -> None:
    scenario = next(one for one in SCENARIOS if one.name == "killed, TV1")
    job = Job(scenario, VARIANTS[0], 5)
    assert job.is_surprise(job.run())
