"""The wording of pages for people: phrases that readers stumble over are named by line, with what to write."""

from pathlib import Path

import pytest

from tools.check_words import ROOT, check, main, read_rules


def found(text: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.words) for finding in check("page.md", text, read_rules())]


def test_a_phrase_is_named_with_its_line() -> None:
    assert found("One.\n\nBehind the time-out it is aborted.\nkproxy goes\non to send.\n") == [
        (3, "Behind"),
        (4, "goes on"),
    ]


def test_behind_something_in_space_is_right() -> None:
    assert found("Run it behind a load balancer, behind the NAT, or behind one address.\n") == []


def test_code_and_addresses_are_not_prose() -> None:
    assert found("```\nbehind it\n```\n\n    behind it\n\nUse `behind it`, [here](behind-it.md).\n") == []


def test_of_python_the_strings_are_prose_and_the_help_of_commands() -> None:
    source = """
def plain() -> str:
    "What is behind it."
    raise ValueError(f"{plain()} is behind "  # behind that
        "it")


@click.command("plain")
def command() -> None:
    "Show what is behind it."
"""
    findings = check("kproxy/plain.py", source, read_rules())
    assert [(finding.line, finding.words) for finding in findings] == [(4, "behind"), (10, "behind")]


def test_lines_are_counted_over_code() -> None:
    assert found("```\n1\n2\n```\n\nIt stands in the log.\n") == [(6, "stands in")]


def test_the_exit_status_says_whether_something_was_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(ROOT / "README.md")]) == 0
    assert capsys.readouterr().out == ""
