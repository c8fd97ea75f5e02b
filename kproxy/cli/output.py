"""What commands print: tables for people, JSON for programs.

Tables have light lines on a terminal, and plain columns in a pipe or a file. rich is imported when a
table is printed: ``--json`` does not wait for it.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

import click

from kproxy.config import ExitCode
from kproxy.txn.described import Stale

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod
    from rich.table import Column, Table
    from rich.text import Text

_Found = TypeVar("_Found")
#: Wide enough for every row in a pipe: nothing is folded, so tools find each row on one line.
_PIPE_WIDTH: Final = 1_000
#: A command that answers sooner shows nothing but its answer.
_QUIET_SECONDS: Final = 1.0
_NARROW: Final = 130
_WIDE: Final = "kproxy.wide"


def _note_wide(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_WIDE] = value


wide_flag = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_note_wide,
    help="Print all columns, and each row on one line, however narrow the terminal is.",
)
json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def new_console() -> "Console":
    """Return the console of stdout: as wide as the terminal, or without limit where there is none or with --wide."""
    from rich.console import Console

    console = Console()
    context = click.get_current_context(silent=True)
    wide = context is not None and context.meta.get(_WIDE, False)
    return console if console.is_terminal and not wide else Console(width=_PIPE_WIDTH)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal's stderr, after a second, what takes so long and for how long, while the block lasts."""
    if not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show_waiting, args=(what, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show_waiting(what: str, ended: threading.Event) -> None:
    if ended.wait(_QUIET_SECONDS):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(f"{what} ...", total=None)
        ended.wait()


def is_narrow(console: "Console") -> bool:
    """Whether a table has to leave columns out to be readable."""
    return console.is_terminal and console.width < _NARROW


def new_table(*columns: "str | Column", title: str | None = None, overflow: "OverflowMethod" = "ellipsis") -> "Table":
    """Return a table with a header; off a terminal its columns are separated by spaces alone."""
    from rich.table import Column, Table

    made = (Column(column, overflow=overflow) if isinstance(column, str) else column for column in columns)
    return _lined(Table(*made, title=title, title_justify="left"))


def new_facts(title: str | None = None) -> "Table":
    """Return a table of names and values, without a header."""
    from rich.table import Table

    table = _lined(Table(show_header=False, title=title, title_justify="left"))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table


def _lined(table: "Table") -> "Table":
    from rich.box import SIMPLE_HEAD

    on_terminal = new_console().is_terminal
    table.box = SIMPLE_HEAD if on_terminal else None
    table.pad_edge = False
    if not on_terminal:
        table.padding = (0, 2, 0, 0)
    return table


def printable(text: str) -> "Text":
    """Text that a client may have chosen, with ``\\x1b`` and the like in place of what a terminal would act on."""
    from rich.text import Text

    return Text("".join(sign if sign.isprintable() or sign == "\n" else _escaped(sign) for sign in text))


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


def moment(ms: int | None) -> str:
    """A moment in ms since 1970, to the second, UTC; a dash for none."""
    return "-" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def stale_text(stale: Stale) -> str:
    """A sentence: how old a description of transactions is, and why."""
    if stale.as_of_ms is None:
        return f"Only what is open at this kproxy is known, for the transaction log was not read yet: {stale.reason}."
    return f"This is as of {moment(stale.as_of_ms)} UTC, for the transaction log cannot be read now: {stale.reason}."


def print_json(value: object) -> None:
    """Prints it indented, with a line break at its end."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def show(found: _Found, as_json: bool, report: Callable[[_Found], None]) -> int:
    """Prints what a command found, as JSON or as ``report`` prints it for people; exit code 0."""
    if as_json:
        print_json(found)
    else:
        report(found)
    return ExitCode.OK
