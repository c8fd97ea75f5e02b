"""The users' docs can be read to the end: all pages together have at most 35,000 words."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "deploy").glob("**/*.md")),
]
MOST_WORDS = 35_000
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
_ADDRESS = re.compile(r"\]\([^)]*\)")
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_WORD = re.compile(r"[^\s|]*\w[^\s|]*")


def words(text: str) -> int:
    """How many words a reader reads: without code blocks, addresses of links, comments and the bars of tables."""
    prose = _ADDRESS.sub("]", _INDENTED.sub("", _FENCED.sub("", text)))
    return len(_WORD.findall(_COMMENT.sub("", prose)))


def excess(pages: dict[str, int], most: int) -> str:
    """The message for pages that have more words than ``most``, the longest one first; else nothing."""
    total = sum(pages.values())
    if total <= most:
        return ""
    longest = sorted(pages.items(), key=lambda page: -page[1])
    each = "\n".join(f"{count:7,}  {page}" for page, count in longest)
    return (
        f"the users' docs have {total:,} words, at most {most:,} are allowed: say it shorter, or move proofs, figures "
        f"and corner cases to verification/, bench/ or DESIGN-NOTES.md and link them\n{each}"
    )


def test_the_users_docs_are_not_too_long() -> None:
    pages = {str(page.relative_to(ROOT)): words(page.read_text(encoding="utf-8")) for page in PAGES}
    assert not excess(pages, MOST_WORDS), excess(pages, MOST_WORDS)


def test_code_addresses_comments_and_bars_are_no_words() -> None:
    table = "| a | b |\n|---|---:|\n| one `two` | - |\n"
    code = "```sh\nls -l\n```\n\n    indented code\n\nafter\n"
    assert words(f"# Head\n\n{table}\n[see here](page.md#a-b) <!-- not\nthis -->\n{code}") == 1 + 2 + 2 + 2 + 1


def test_the_message_names_the_pages_and_their_words() -> None:
    assert excess({"a.md": 3, "b.md": 7}, 10) == ""
    message = excess({"a.md": 3, "b.md": 1_007}, 1_009)
    assert "have 1,010 words, at most 1,009" in message
    assert message.splitlines()[1:] == ["  1,007  b.md", "      3  a.md"]
