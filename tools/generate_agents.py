"""Writes the table of log shippers in docs/clients.md, from verification/agents and from what its trials last found.

With ``--check`` only tells whether it is up to date. A trial that was not run is an error: ``make agents
ARGS=--record`` runs all of them, and records what they found.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from tools.one_page import dated, draw_or_check, with_part
from verification.agents.programs import AGENTS
from verification.agents.results import Result, Results, missing, read
from verification.agents.trial import KINDS

PAGE = Path(__file__).parent.parent / "docs" / "clients.md"
BEGIN = "<!-- agents: made by `make generate` from verification/agents and its results.json -->"
END = "<!-- /agents -->"
_THROUGH = [kind for kind in KINDS if kind != "direct"]


def table(results: Results) -> str:
    """A row for each program: the copies directly and in all trials through kproxy, and what the program needs."""
    head = ("program", "lines", "copies directly", "through kproxy", "what it needs in its configuration")
    dates = [_tested(results[name]) for name in AGENTS]
    return dated(head, [_row(name, results) for name in AGENTS], dates, head[1:4])


def _row(name: str, results: Results) -> list[str]:
    agent, found = AGENTS[name], results[name]
    last = max(found.values())
    through = {kind: _copies(found[kind]) for kind in _THROUGH if kind in found}
    differ = [f"{kind}: {cell}" for kind, cell in through.items() if cell != "0"]
    direct = _copies(found["direct"]) if "direct" in found else agent.directly
    return [f"{agent.title} {last.version}".strip(), f"{last.lines:,}", direct, "; ".join(differ) or "0", agent.needs]


def _tested(found: Mapping[str, Result]) -> str:
    brokers = " and ".join(sorted({one.broker for one in found.values()}))
    return f"{min(found.values()).date}, Kafka {brokers}"


def _copies(one: Result) -> str:
    return f"{one.copies:,}, and {one.missing:,} lost" if one.missing else f"{one.copies:,}"


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
