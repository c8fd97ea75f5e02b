"""The command."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from verification.simulation import __main__ as command
from verification.simulation import invariants


def invoke(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(command.main, args)
    return result.exit_code, result.output


def test_seeds_that_hold_are_summed_up() -> None:
    code, output = invoke("--seeds", "3", "--jobs", "1", "--faults", "")
    assert code == 0
    assert "3 runs" in output


def test_a_seed_that_fails_is_named_with_its_invariant_and_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "read_logs", lambda _: [{}] * 6)
    code, output = invoke("--seeds", "2", "--jobs", "1", "--first-seed", "7", "--faults", "")
    assert code == 1
    assert f"seed 7: {invariants.LOST}" in output
    assert "client" in output
    assert "broken: " in output


def test_the_trace_of_a_seed_can_be_asked_for() -> None:
    code, output = invoke("--first-seed", "3", "--trace", "--faults", "")
    assert code == 0
    assert " sends 1: " in output


def test_a_fault_that_does_not_exist_is_refused() -> None:
    code, output = invoke("--faults", "cut,earthquake")
    assert code == 2
    assert "earthquake" in output


@pytest.mark.parametrize("module", ["verification.simulation", "verification.simulation.transactions"])
def test_seeds_run_in_processes_of_their_own(module: str) -> None:
    line = [sys.executable, "-m", module, "--seeds", "2", "--first-seed", "4", "--jobs", "2"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs: " in done.stdout
