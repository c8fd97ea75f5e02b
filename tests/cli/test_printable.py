"""What clients chose cannot act on the terminal of the operator that reads it."""

import pytest

from kproxy.cli.printable import printable


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
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert printable(text).plain == shown
