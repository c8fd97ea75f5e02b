"""A page that a tool makes of something else: written, or compared with what is there."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path


def with_part(page: str, begin: str, end: str, part: str) -> str:
    """A page with ``part`` between two lines of its own; ValueError if it does not have these."""
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no place for it: {begin} ... {end}")
    return f"{before}{begin}\n{part}\n{end}{after}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[str] = ()) -> str:
    """A table; columns whose heads are in ``numbers`` are aligned on the right."""
    rule = ["---:" if name in numbers else "---" for name in head]
    return "\n".join(re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(row)} |") for row in (head, rule, *rows))


def dated(
    head: Sequence[str], rows: Sequence[Sequence[str]], dates: Sequence[str], numbers: Collection[str] = ()
) -> str:
    """A table after a line with the date that most of its rows have; the rows of other dates have it in a column."""
    [(usual, count)] = Counter(dates).most_common(1)
    if count == len(rows):
        return f"\nTested: {usual}.\n\n{markdown_table(head, rows, numbers)}\n"
    cells = ["" if date == usual else date for date in dates]
    table = markdown_table((*head, "tested"), [(*row, cell) for row, cell in zip(rows, cells, strict=True)], numbers)
    return f"\nTested: {usual}, unless the row has another date.\n\n{table}\n"


def draw_or_check(page: Path, drawn: Callable[[str], str], arguments: Sequence[str]) -> int:
    """As ``write_or_check``, of what ``drawn`` makes of the page; 1 also if that raises ValueError, which is shown."""
    try:
        text = drawn(page.read_text(encoding="utf-8"))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return write_or_check(page, text, arguments)


def write_or_check(page: Path, text: str, arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` only tells whether it says ``text``; 1 if it does not."""
    if "--check" not in arguments:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{page.name} is out of date: run make generate", file=sys.stderr)
    return 1
