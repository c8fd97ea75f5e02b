"""The coordinator's own code in every order of what may happen, as far as there is time for it here."""

import pytest
from click.testing import CliRunner

from verification.explorer.__main__ import main
from verification.explorer.jobs import RULES, WORLDS, Job, Small, jobs
from verification.explorer.scenarios import bounded
from verification.explorer.search import search
from verification.explorer.variant import Variant
from verification.explorer.variants import VARIANTS
from verification.explorer.world import NAME, World

#: A minute for all of them; ``make explore`` goes to the end.
_MOST_STATES = 150
_MOST_TO_FIND = 8_000


@pytest.mark.parametrize("scenario", WORLDS, ids=lambda one: one.name)
def test_the_rules_hold(scenario: Small) -> None:
    with bounded():
        found = search(scenario.make, _MOST_STATES)
    assert found.traces == {}
    assert found.is_cut or found.runs


@pytest.mark.parametrize("variant", RULES, ids=lambda one: f"{one.scenario}: {one.name}")
def test_a_rule_that_is_left_out_is_missed(variant: Variant) -> None:
    scenario = next(one for one in WORLDS if one.name == variant.scenario)
    job = Job(scenario, variant, _MOST_TO_FIND)
    assert not job.is_surprise(job.run())


def test_no_world_is_left_to_the_garbage_collector() -> None:
    """Tasks resume others at their ends, also tasks that the collector has already ended."""
    made = []

    def make() -> World:
        made.append(WORLDS[0].make())
        return made[-1]

    search(make, 30)
    assert all(world.engine.is_over for world in made)


def test_the_last_epochs_of_a_client_and_of_its_id_are_used_up() -> None:
    scenario = next(one for one in WORLDS if one.name == "last epochs, TV2")
    world = scenario.make()
    while moves := [move for move in world.moves() if not move.is_fault]:
        moves[0].do()
    (client,) = world.clients
    assert client.ended == "done"
    assert client.identity.producer_id != world.given[0][0].producer_id
    view = world.reader.of(NAME)
    assert view is not None
    assert len(view.generations) > 1
    world.close()


def test_names_choose_the_searches() -> None:
    assert [job.scenario.name for job in jobs(["killed twice, TV1"], 10, own=True, broken=True)] == [
        "killed twice, TV1"
    ]
    assert len(jobs([], 10, own=True, broken=False)) == len(WORLDS)
    assert len(jobs([], 10, own=False, broken=True)) == len(RULES)


def test_the_command_prints_a_table_and_what_was_found() -> None:
    result = CliRunner().invoke(main, ["for longer", "--processes", "1", "--traces"])
    assert result.exit_code == 0, result.output
    assert "every invariant holds" in result.output
    assert "what was acknowledged in a committed transaction is seen: not so" in result.output
    assert "client 1 asks a: Produce" in result.output
    assert "0 surprises" in result.output


def test_a_search_that_finds_nothing_where_it_must_is_a_surprise() -> None:
    scenario = next(one for one in WORLDS if one.name == "killed, TV1")
    job = Job(scenario, VARIANTS[0], 5)
    assert job.is_surprise(job.run())
