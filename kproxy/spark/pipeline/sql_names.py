"""Which tables a query reads, as far as can be found without Spark: enough to check names and their order.

Only names that surely are tables are returned. Spark has the last word: it parses the text when the pipeline starts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<string>'(?:\\.|''|[^'\\])*'|"(?:\\.|""|[^"\\])*")
    |(?P<name>(?:`(?:[^`]|``)*`|[^\W\d]\w*)(?:\s*\.\s*(?:`(?:[^`]|``)*`|[^\W\d]\w*))*)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ENDS_RELATIONS = re.compile(
    "WHERE|GROUP|ORDER|HAVING|LIMIT|OFFSET|UNION|EXCEPT|INTERSECT|MINUS|WINDOW|LATERAL|SELECT|SORT|CLUSTER|DISTRIBUTE"
    "|PIVOT|UNPIVOT|TABLESAMPLE"
)
_NO_TABLES = frozenset(["SELECT", "VALUES", "LATERAL", "TABLE", "STREAM", "WITH", "JOIN"])


@dataclass
class _Level:
    """One level of parentheses."""

    clauses: bool = False
    relations: bool = False
    expected: bool = False


def tables_read(sql: str) -> tuple[str, ...]:
    """The names after FROM and JOIN, each once, without those that the query defines (WITH) or that have a dot."""
    tokens = list(_tokens(sql))
    own = {_plain(name) for name in _defined(tokens)}
    found = dict.fromkeys(name for name in _relations(tokens) if _plain(name) not in own)
    return tuple(_bare(name) for name in found)


def _tokens(sql: str) -> Iterator[tuple[str, str]]:
    for found in _TOKEN.finditer(sql):
        if found.lastgroup != "skip":
            yield str(found.lastgroup), found[0]


def _defined(tokens: list[tuple[str, str]]) -> Iterator[str]:
    """The names of ``name AS (`` and ``name (columns) AS (``."""
    for index in range(1, len(tokens) - 1):
        if _word(tokens[index]) == "AS" and tokens[index + 1][1] == "(":
            before = index - 1
            if tokens[before][1] == ")":
                while before > 0 and tokens[before][1] != "(":
                    before -= 1
                before -= 1
            if before >= 0 and tokens[before][0] == "name":
                yield tokens[before][1]


def _relations(tokens: list[tuple[str, str]]) -> Iterator[str]:
    levels = [_Level()]
    for index, token in enumerate(tokens):
        level, word = levels[-1], _word(token)
        if token[1] == "(":
            level.expected = False
            levels.append(_Level())
        elif token[1] == ")":
            levels[1:] = levels[1:-1]
        elif level.expected and token[0] == "name" and word not in _NO_TABLES:
            level.expected = False
            called = index + 1 < len(tokens) and tokens[index + 1][1] == "("
            if not called and not _dotted(token[1]):
                yield token[1]
        else:
            _keyword(level, word, token[1], _word(tokens[index - 1]) if index else "", index == 0)


def _keyword(level: _Level, word: str, text: str, before: str, first: bool) -> None:
    """Follows the clauses: FROM counts where a query has begun, not in EXTRACT(YEAR FROM ...) or DISTINCT FROM."""
    if word == "FROM":
        begins = first or level.clauses
        level.relations = level.expected = begins and before != "DISTINCT"
        level.clauses = level.clauses or begins
    elif word == "JOIN" or (text == "," and level.relations):
        level.expected = True
    elif _ENDS_RELATIONS.fullmatch(word):
        level.relations = level.expected = False
        level.clauses = level.clauses or word == "SELECT"


def _word(token: tuple[str, str]) -> str:
    return token[1].upper() if token[0] == "name" else ""


def _dotted(name: str) -> bool:
    return "." in re.sub(r"`[^`]*`", "", name)


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _plain(name: str) -> str:
    return _bare(name).lower()
