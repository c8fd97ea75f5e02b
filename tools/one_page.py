"""A page that a tool makes of something else: written, or compared with what is there."""

import sys
from collections.abc import Sequence
from pathlib import Path


def with_part(page: str, begin: str, end: str, part: str) -> str:
    """A page with ``part`` between two lines of its own; ValueError if it does not have these."""
    before, found, rest = page.partition(begin)
    _, closed, behind = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no place for it: {begin} ... {end}")
    return f"{before}{begin}\n{part}\n{end}{behind}"


def write_or_check(page: Path, text: str, arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` only tells whether it says ``text``; 1 if it does not."""
    if "--check" not in arguments:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{page.name} is out of date: run make generate", file=sys.stderr)
    return 1
