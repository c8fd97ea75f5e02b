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


_SOURCE = '''
"""Of a module: behind it."""

def test_what_is_behind_it() -> None:
    """Runs ``behind it``.

    The log goes
    on.
    """
    #: So it is told that
    #: it is content.
    raise ValueError(f"{plain()} is behind "  # and stands in the log
        "it")
'''


@pytest.mark.parametrize(("name", "strings"), [("kproxy/plain.py", [(12, "behind")]), ("tests/test_plain.py", [])])
def test_of_python_docstrings_comments_and_names_of_tests_are_prose(name: str, strings: list[tuple[int, str]]) -> None:
    findings = check(name, _SOURCE, read_rules())
    expected = [(2, "behind"), (4, "behind"), (7, "goes on"), (10, "is told"), (11, "is content"), *strings]
    assert sorted((finding.line, finding.words) for finding in findings) == sorted([*expected, (12, "stands in")])


def test_to_tell_two_things_apart_is_right() -> None:
    assert found("They are told apart, one is told from the other, and it is told to stop.\n") == []


def test_lines_are_counted_over_code() -> None:
    assert found("```\n1\n2\n```\n\nIt stands in the log.\n") == [(6, "stands in")]


def test_the_exit_status_says_whether_something_was_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(ROOT / "README.md")]) == 0
    assert capsys.readouterr().out == ""
