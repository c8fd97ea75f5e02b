"""The command blocks of the documentation: every kproxy command in them is one, and what else they call is known."""

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from kproxy.cli.main_command import cli
from kproxy.config import Config, options

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "deploy/pipeline/README.md",
    ROOT / "deploy/upsert/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
#: Run by test_quick_start.py, or parsed here.
RUN = {"kproxy", "python", "python3", ".", "mkdir"}
#: The table in verification/README.md: programs, why no test runs them, and what is tested instead.
NOT_RUN = {
    name: why
    for names, why in re.findall(
        r"^\| (`[^|]+`) \| ([^|]+) \| [^|]+ \|$",
        (ROOT / "verification/README.md")
        .read_text(encoding="utf-8")
        .partition("## Commands in these pages")[2]
        .partition("\n## ")[0],
        re.M,
    )
    for name in re.findall("`([^`]+)`", names)
}
PROGRAMS = RUN | NOT_RUN.keys()


class Block(NamedTuple):
    """A block of code: page, line and text."""

    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


_FENCED = re.compile(r"^```(\w*)\n((?s:.*?))^```$", re.M)


def blocks(page: Path) -> Iterator[Block]:
    """Blocks that are fenced for a shell, or indented."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCED.finditer(text):
        if found[1] == "sh":
            yield Block(page, text.count("\n", 0, found.start()) + 1, found[2])
    text = _FENCED.sub(lambda found: "-" + "\n" * found[0].count("\n"), text)
    for found in re.finditer(r"(?<=\n\n)((?: {4}.*\n|\n)+)", text):
        inner = re.sub(r"^ {4}", "", found[1], flags=re.M)
        yield Block(page, text.count("\n", 0, found.start()) + 1, inner.rstrip() + "\n")


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command, without here-documents, comments and variables."""
    text = re.sub(r"<<'(\w+)'\n.*?^\1$", "", block.text, flags=re.M | re.S).replace("\\\n", " ")
    lexer = shlex.shlex(re.sub(r"(^|\s)#.*$", "", text, flags=re.M), posix=True, punctuation_chars="|&;()\n")
    lexer.whitespace_split, lexer.whitespace, lexer.commenters = True, " \t", ""
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= set("|&;()\n"):
            words.append(word)
            continue
        while words and re.fullmatch(r"[\w.]+=.*|[{}]", words[0]):
            del words[0]
        if words:
            yield words
        words = []


def is_shell(block: Block) -> bool:
    first = re.sub(r"^(\w+=\S+ )+", "", block.text).split()[:1]
    return bool(first) and first[0].removesuffix("()") in PROGRAMS


SHELL = [block for page in PAGES for block in blocks(page) if is_shell(block)]
CALLS = [(block, words) for block in SHELL for words in commands(block)]


def test_a_program_that_is_not_run_has_a_reason_and_is_in_some_page() -> None:
    assert NOT_RUN
    assert NOT_RUN.keys() <= {words[0].removesuffix("()") for _, words in CALLS}


def test_there_are_blocks() -> None:
    assert len(SHELL) > 30
    assert len(CALLS) > 90


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_each_program_is_known(block: Block) -> None:
    assert {words[0].removesuffix("()") for words in commands(block)} <= PROGRAMS


def kproxy_calls() -> Iterator[tuple[str, list[str]]]:
    for block, words in CALLS:
        inner = words[words.index("--") + 1 :] if words[0] == "kubectl" and "--" in words else words
        if inner[0] in ("kproxy", "uvx"):
            inner = inner[inner.index("kproxy") + 1 :]
            yield f"{block} {shlex.join(inner)}", inner


@pytest.mark.parametrize("words", [words for _, words in kproxy_calls()], ids=[name for name, _ in kproxy_calls()])
def test_each_kproxy_command_is_one(words: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(click.Context(command), words)
        assert found is not None
        command = found
    try:
        command.make_context("kproxy", list(words))
    except click.BadParameter as error:
        # a name that stands for one of the reader's, or a file that is not here
        assert re.search(r"does not exist|No such file|[A-Z_]{2,}", str(error)), error


def test_each_make_target_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert {words[1] for _, words in CALLS if words[0] == "make"} <= targets


def fenced(language: str) -> list[Block]:
    texts = [(page, page.read_text(encoding="utf-8")) for page in PAGES]
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[2])
        for page, text in texts
        for found in _FENCED.finditer(text)
        if found[1] == language
    ]


@pytest.mark.parametrize("block", fenced("python"), ids=str)
def test_what_python_imports_of_kproxy_is_there(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kproxy"):
            module = importlib.import_module(node.module)
            assert [row.name for row in node.names if not hasattr(module, row.name)] == []


OPTIONS = [
    (block, names)
    for page in PAGES
    for block in [*blocks(page), *(found for found in fenced("yaml") if found.page == page)]
    if (names := re.findall(r"^([a-z]+(?:\.[a-z]+)+):", block.text, re.M))
]


@pytest.mark.parametrize(("block", "names"), OPTIONS, ids=[str(block) for block, _ in OPTIONS])
def test_each_option_of_a_block_is_one(block: Block, names: list[str]) -> None:
    assert set(names) <= options(Config).keys()
