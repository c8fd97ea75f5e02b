"""Links of the repository's pages: each leads to a file that exists and, with an anchor, to a heading in it."""

import os
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for pattern in ("*.md", "docs/*.md", "deploy/**/*.md", "verification/**/*.md", "tools/**/*.md", "bench/*.md")
    for page in sorted(ROOT.glob(pattern))
]
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)


def _slug(heading: str) -> str:
    """The anchor that GitHub gives a heading; mkdocs gives the same for those without underlined letters."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = unicodedata.normalize("NFC", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.M):
        slug, number = _slug(heading), 0
        while (slug if not number else f"{slug}-{number}") in found:
            number += 1
        found.add(slug if not number else f"{slug}-{number}")
    return found


def broken(page: Path) -> Iterator[str]:
    for found in _LINK.finditer(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        path, anchor = found.groups()
        target = Path(os.path.normpath(page.parent / path)) if path else page
        if not target.exists():
            yield f"{found[0]}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{found[0]}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b.c`, d\n\n[good](#a-bc-d) [bad](#a) [gone](other.md)\n", encoding="utf-8")
    assert list(broken(page)) == ["](#a): no such heading", "](other.md): no such file"]
