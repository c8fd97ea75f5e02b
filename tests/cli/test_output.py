"""Tables in a pipe are plain columns, one line for each row, whatever its length."""

import pytest

from kproxy.cli.output import new_console, new_facts, new_table, printable


def test_rows_in_a_pipe_have_no_lines_around_them_and_are_not_folded(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_table("name", "value", title="things")
    table.add_row("one", "x" * 300)
    new_console().print(table)
    title, header, row = capsys.readouterr().out.splitlines()
    assert title.strip() == "things"
    assert header.split() == ["name", "value"]
    assert row.split() == ["one", "x" * 300]


def test_facts_have_no_header(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_facts()
    table.add_row("state", "ready")
    new_console().print(table)
    assert capsys.readouterr().out.split() == ["state", "ready"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("zwei\nlines", "zwei\nlines"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\rb\x9b1m", "a\\rb\\x9b1m"),
        ("[red]no markup[/]", "[red]no markup[/]"),
        ("left\u202eright", "left\\u202eright"),
    ],
)
def test_what_clients_chose_cannot_act_on_the_terminal(text: str, shown: str) -> None:
    assert printable(text).plain == shown
