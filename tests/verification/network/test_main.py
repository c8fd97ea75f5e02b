import pytest
from click.testing import CliRunner

from verification.network import __main__ as command


def test_help_has_examples_and_all_cases() -> None:
    result = CliRunner().invoke(command.main, ["--help"], terminal_width=200)
    assert result.exit_code == 0
    assert 'make network ARGS="--json"' in result.output
    assert all(name in result.output for name in command.CASES)


def test_each_case_says_what_it_takes_for_granted() -> None:
    assert all("Takes for granted" in (case.__doc__ or "") for case in command.CASES.values())


def test_where_it_cannot_run_it_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "why_not", lambda: "network namespaces need root")
    result = CliRunner().invoke(command.main, [])
    assert result.exit_code == 0
    assert result.output == "network: no case was run: network namespaces need root\n"
