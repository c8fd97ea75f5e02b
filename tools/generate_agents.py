"""Writes the table of log shippers in docs/clients.md, from verification/agents and from what its trials last found.

With ``--check`` only tells whether it is up to date. A trial that was not run is an error: ``make agents
ARGS=--record`` runs all of them, and records what they found.
"""

import sys
from pathlib import Path

from tools.one_page import draw_or_check, markdown_table, with_part
from verification.agents.programs import AGENTS
from verification.agents.results import Results, missing, read
from verification.agents.trial import KINDS

PAGE = Path(__file__).parent.parent / "docs" / "clients.md"
BEGIN = "<!-- agents: made by `make generate` from verification/agents and its results.json -->"
END = "<!-- /agents -->"
_WORDS = {"direct": "directly", "through": "through kproxy"}


def table(results: Results) -> str:
    """A row for each program: the copies that each kind of trial left, and what the program needs."""
    numbers = ["lines", *(_WORDS.get(kind, kind) for kind in KINDS)]
    head = ["program", *numbers, "what it needs in its configuration", "tested"]
    return markdown_table(head, [_row(name, results) for name in AGENTS], numbers)


def _row(name: str, results: Results) -> list[str]:
    agent, found = AGENTS[name], results[name]
    last = max(found.values())
    cells = [_copies(found[kind].copies, found[kind].missing) if kind in found else agent.directly for kind in KINDS]
    tested = f"{min(found.values()).date}, Kafka {' and '.join(sorted({one.broker for one in found.values()}))}"
    return [f"{agent.title} {last.version}".strip(), f"{last.lines:,}", *cells, agent.needs, tested]


def _copies(copies: int, lost: int) -> str:
    return f"{copies:,}, and {lost:,} lost" if lost else f"{copies:,}"


def drawn(page: str, results: Results) -> str:
    """The page with the table between its marks; ValueError if it has none, or a trial was not run."""
    left = missing(results)
    if left:
        raise ValueError(f"not run yet: {', '.join(left)}; run make agents ARGS=--record")
    return with_part(page, BEGIN, END, table(results))


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference, or a trial was not run."""
    return draw_or_check(PAGE, lambda page: drawn(page, read()), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
