"""Checks the first word of docstrings: a noun phrase or a verb names the thing, "What ..." and "Of ..." do not.

    python -m tools.check_docstrings [FILE ...]    # exit status 1 if a docstring should begin with another word

Docstrings are those of modules, classes, functions and attributes. "Whether ..." is right: it says what true means.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
#: Folders and files in which all docstrings are checked.
FOLDERS: Final = (
    "kproxy/dedup",
    "kproxy/net/broker_log.py",
    "kproxy/net/broker_log_batches.py",
    "kproxy/net/broker_log_questions.py",
    "kproxy/net/broker_log_reads.py",
    "kproxy/net/broker_log_tail.py",
    "kproxy/net/brokers",
    "kproxy/net/budget.py",
    "kproxy/net/connection.py",
    "kproxy/net/intake.py",
    "kproxy/net/kept_repairs.py",
    "kproxy/net/read_backs.py",
    "kproxy/net/retry_ledger_keeper.py",
    "kproxy/net/server.py",
    "kproxy/net/shared.py",
    "kproxy/net/single_batch.py",
    "kproxy/net/txn",
    "kproxy/proxy/kept_calls.py",
    "kproxy/proxy/kept_gate.py",
    "kproxy/proxy/kept_stats.py",
    "kproxy/txn",
    "verification/explorer",
    "verification/idempotence",
    "verification/simulation",
)
#: First words that leave unsaid which thing is described: of questions, of clauses, pronouns, prepositions.
_WORDS: Final = (
    "how what whatever when whenever where wherever which whichever who whom whose why "
    "as because if since so unless until while "
    "it that there "
    "about after at before between by during for from in of on over through to under with within without"
)
NOT_FIRST: Final = frozenset(_WORDS.split())
_WORD: Final = re.compile(r"[A-Za-z]+")


class Finding(NamedTuple):
    """A docstring that begins with a word of ``NOT_FIRST``: file, line (from 1), and its first line."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text!r}: begin with a noun phrase or a verb"


def check(name: str, source: str) -> Iterator[Finding]:
    """Yield each docstring of a Python file that begins with a word of ``NOT_FIRST``, by line."""
    for line, text in sorted(_docstrings(ast.parse(source))):
        word = _WORD.match(text)
        if word is not None and word[0].lower() in NOT_FIRST:
            yield Finding(name, line, text.partition("\n")[0])


def _docstrings(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def files(folders: Sequence[str] = FOLDERS) -> list[Path]:
    """Return the Python files that are checked in these folders. FileNotFoundError for a folder that is not there."""
    found: set[Path] = set()
    for path in (ROOT / folder for folder in folders):
        if not path.exists():
            raise FileNotFoundError(path)
        found.update(path.rglob("*.py") if path.is_dir() else [path])
    return sorted(found)


def main(arguments: Sequence[str]) -> int:
    """Print the docstrings of these files, or of all in ``FOLDERS``, that should begin with another word."""
    findings = [
        finding
        for path in [Path(name).resolve() for name in arguments] or files()
        for finding in check(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    ]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
