"""The command blocks of the documentation: every kproxy command in them is one, and what else they call is known."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from kproxy.cli.main_command import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "deploy/pipeline/README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Programs that no test of this file calls, and why; where they are tested.
NOT_RUN = {
    "docker": "needs a daemon; tests/deploy/test_compose.py and test_dockerfile.py check the files",
    "kubectl": "needs a cluster; tests/deploy/test_kubernetes.py checks the manifests",
    "helm": "needs a cluster; tests/deploy/test_helm.py renders the chart",
    "promtool": "tests/deploy/test_prometheus.py runs it",
    "spark-submit": "needs a YARN cluster; tests/spark runs audits",
    "uvx": "fetches from a registry; tests/deploy/test_wheel.py installs the wheel",
    "pipx": "as uvx",
    "useradd": "changes the machine; tests/deploy/test_systemd.py checks the unit",
    "install": "as useradd",
    "systemctl": "as useradd",
    "pip": "fetches from a registry; tests/deploy/test_wheel.py installs the wheel",
    "python3": "test_quick_start.py runs what follows it",
    ".": "as python3",
    "python": "test_quick_start.py runs it",
    "curl": "test_quick_start.py reads the same pages; tests/control the API",
    "api": "a function of curl in docs/transactions.md; tests/control checks the API",
    "api()": "as api",
    "kafka-console-consumer.sh": "Kafka's own",
    "mkdir": "test_quick_start.py runs what follows it",
    "make": "test_each_make_target_is_there",
    "kproxy": "test_each_kproxy_command_is_one; test_quick_start.py runs the first hour",
}


class Block(NamedTuple):
    """A block of code: page, line and text."""

    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Blocks that are indented, or fenced for a shell."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^```(?!sh\n)\w*\n(?s:.*?)^```$", lambda found: "-" + "\n" * found[0].count("\n"), text, flags=re.M)
    for found in re.finditer(r"^```sh\n((?s:.*?))^```$|(?<=\n\n)((?: {4}.*\n|\n)+)", text, re.M):
        inner = found[1] or re.sub(r"^ {4}", "", found[2], flags=re.M)
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
        while words and re.fullmatch(r"[\w.]+=.*", words[0]):
            del words[0]
        if words:
            yield words
        words = []


def is_shell(block: Block) -> bool:
    first = re.sub(r"^(\w+=\S+ )+", "", block.text).split()[:1]
    return first[0] in NOT_RUN if first else False


SHELL = [block for page in PAGES for block in blocks(page) if is_shell(block)]
CALLS = [(block, words) for block in SHELL for words in commands(block)]


def test_there_are_blocks() -> None:
    assert len(SHELL) > 25
    assert len(CALLS) > 70


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_each_program_is_known(block: Block) -> None:
    assert {words[0] for words in commands(block)} <= NOT_RUN.keys()


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
