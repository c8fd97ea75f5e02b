"""Tables for people: light lines on a terminal, plain columns in a pipe or a file."""

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

#: Wide enough for every row in a pipe: nothing is folded, so tools find each row on one line.
_PIPE_WIDTH: Final = 1_000


def new_console() -> Console:
    """Return the console of stdout: as wide as the terminal, or without limit where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)


def new_table(*columns: str | Column, title: str | None = None) -> Table:
    """Return a table with a header; off a terminal its columns are separated by spaces alone."""
    return _lined(Table(*columns, title=title, title_justify="left"))


def new_facts(title: str | None = None) -> Table:
    """Return a table of names and values, without a header."""
    table = _lined(Table(show_header=False, title=title, title_justify="left"))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table


def _lined(table: Table) -> Table:
    on_terminal = Console().is_terminal
    table.box = SIMPLE_HEAD if on_terminal else None
    table.pad_edge = False
    if not on_terminal:
        table.padding = (0, 2, 0, 0)
    return table
