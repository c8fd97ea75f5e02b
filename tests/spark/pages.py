"""Pages of cells: the Python blocks of a Markdown file, run one after another as in a notebook."""

import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Cell(NamedTuple):
    """A block of code, the line where it begins, and what it is said to print (``...`` stands for anything)."""

    line: int
    code: str
    prints: str


def cells(page: Path, section: str | None = None) -> list[Cell]:
    """The cells of a page, or of one of its sections; a text block belongs to the code before it."""
    text = page.read_text(encoding="utf-8")
    start, end = 0, len(text)
    if section is not None:
        start = text.index(f"\n## {section}\n")
        end = text.index("\n## ", start + 1)
    found: list[Cell] = []
    for block in _BLOCK.finditer(text, start, end):
        if block[1] == "python":
            found.append(Cell(text.count("\n", 0, block.start(2)) + 1, block[2], ""))
        elif block[1] == "text":
            found[-1] = found[-1]._replace(prints=block[2])
    return found


def run(page: Path, what: list[Cell]) -> None:
    """Runs the cells in one namespace; an AssertionError says which one printed something else."""
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for cell in what:
            _run(page, cell, names)
    finally:
        if "kproxy" in names:
            names["kproxy"].kill()  # harmless where the page came to its end
            names["kproxy"].wait()


def _run(page: Path, cell: Cell, names: dict[str, Any]) -> None:
    printed = io.StringIO()
    # Lines before it, so that a traceback tells the line of the page.
    code = compile("\n" * (cell.line - 1) + cell.code, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    if cell.prints:
        got = printed.getvalue().rstrip() + "\n"
        matches = doctest.OutputChecker().check_output(cell.prints, got, doctest.ELLIPSIS)
        assert matches, f"{page.name}, line {cell.line}: prints\n{got}instead of\n{cell.prints}"
