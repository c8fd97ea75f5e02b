"""Checks the wording of what people read: plain English, the field's words.

    python -m tools.check_words [FILE ...]    # exit status 1 if a phrase should be replaced

``tools/words.yaml`` has the rules: a regular expression, and what to write instead. Code blocks, inline code and
addresses of links are not checked. In Python files it checks docstrings, comments, names of tests and, except in
tests, strings: help, log lines, errors.
"""

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
RULES: Final = Path(__file__).with_name("words.yaml")
PAGES: Final = (
    "*.md",
    "docs/*.md",
    "changes/*.md",
    "deploy/**/*.md",
    "verification/**/*.md",
    "tools/**/*.md",
    "bench/*.md",
    "docs/kproxy.1",
    "deploy/**/*.y*ml",
    "deploy/**/*.txt",
    "kproxy/**/*.html",
    "kproxy/**/*.py",
    "tests/**/*.py",
    "bench/**/*.py",
    "tools/**/*.py",
    "verification/**/*.py",
    "deploy/**/*.py",
)
#: CHANGELOG.md is history; the test quotes the phrases.
_LEFT_OUT: Final = {"CHANGELOG.md", "test_check_words.py"}
_FENCED: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
_INLINE: Final = re.compile(r"`+[^`\n]*`+|\]\([^)\n]*\)")


class Rule(NamedTuple):
    """A phrase that readers stumble over, and what to write instead."""

    phrase: "re.Pattern[str]"
    write: str


class Finding(NamedTuple):
    """One use of a phrase: file, line (from 1), the words, and what to write instead."""

    file: str
    line: int
    words: str
    write: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.words!r}: write {self.write}"


def read_rules(path: Path = RULES) -> list[Rule]:
    """Return the rules of a file: a list of entries with ``phrase`` (a regular expression) and ``write``."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [Rule(re.compile(entry["phrase"], re.IGNORECASE), entry["write"]) for entry in entries]


def check(name: str, text: str, rules: Sequence[Rule]) -> Iterator[Finding]:
    """Yield each phrase that a rule finds in a page in Markdown or in the prose of a Python file, by line."""
    prose = _prose(name, text) if name.endswith(".py") else text
    for code in (_FENCED, _INDENTED, _INLINE):
        prose = code.sub(_blank, prose)
    found = [(match.start(), match[0], rule.write) for rule in rules for match in rule.phrase.finditer(prose)]
    for start, words, write in sorted(found):
        yield Finding(name, prose.count("\n", 0, start) + 1, " ".join(words.split()), write)


def _prose(name: str, source: str) -> str:
    """Return what is prose in a Python file, each part in its line, and nothing else."""
    lines = [""] * (source.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] += token.string.lstrip("#: ")
    docstrings: set[ast.AST] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as docstring):
                docstrings.add(docstring)
                for number, line in enumerate(f"{inspect.cleandoc(text)};".splitlines(), node.lineno - 1):
                    lines[number] += line
            case ast.FunctionDef(name=function) | ast.AsyncFunctionDef(name=function) if function.startswith("test_"):
                lines[node.lineno - 1] += f"{function.replace('_', ' ')};"
            case ast.Constant(value=str(text)) if node not in docstrings and not name.startswith("tests/"):
                lines[node.lineno - 1] += f" {' '.join(text.split())};"
    return "\n".join(lines)


def _blank(match: "re.Match[str]") -> str:
    """Return as many lines without words, so that line numbers stay."""
    return re.sub(r"[^\n]", " ", match[0])


def main(arguments: Sequence[str]) -> int:
    """Print what should be replaced in these files, or in all pages."""
    files = [Path(name).resolve() for name in arguments] or sorted(
        {path for pattern in PAGES for path in ROOT.glob(pattern) if path.name not in _LEFT_OUT}
    )
    rules = read_rules()
    findings = [
        finding
        for path in files
        for finding in check(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"), rules)
    ]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
