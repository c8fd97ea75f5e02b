"""The command."""

import pytest
from click.testing import CliRunner

from verification.simulation.transactions import __main__ as command
from verification.simulation.transactions import invariants


def invoke(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(command.main, args)
    return result.exit_code, result.output


def test_seeds_that_hold_are_summed_up() -> None:
    code, output = invoke("--seeds", "1", "--jobs", "1", "--faults", "")
    assert code == 0
    assert "1 runs: " in output
    assert " transactions, 0 faults, " in output


def test_a_seed_that_fails_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "broken", lambda *_: iter([(invariants.LOST, "one")]))
    code, output = invoke("--first-seed", "3", "--trace", "--faults", "")
    assert code == 1
    assert f"broken: {invariants.LOST}: one" in output
    assert "ProducerPlan(" in output


def test_a_fault_that_does_not_exist_is_refused() -> None:
    code, output = invoke("--faults", "crash,earthquake")
    assert code == 2
    assert "earthquake" in output


def test_one_home_may_be_asked_for() -> None:
    code, output = invoke("--first-seed", "4", "--trace", "--faults", "", "--home", "broker")
    assert code == 0
    assert "HomePlan(home=<Home.BROKER: 'broker'>" in output
    assert invoke("--home", "elsewhere")[0] == 2


def test_clients_may_go_elsewhere_where_kproxy_decides() -> None:
    code, output = invoke("--seeds", "1", "--jobs", "1", "--faults", "", "--roam")
    assert code == 0
    assert "transactions that the next kproxy continued: " in output
    assert invoke("--roam", "--home", "broker")[0] == 2
