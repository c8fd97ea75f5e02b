"""Writes the tables of agents in docs/clients.md and README.md, from what the trials of verification/agents found.

With ``--check`` only tells whether they are up to date. A trial that was not run is an error: ``make agents
ARGS=--record`` runs all of them, and records what they found.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from tools.one_page import dated, draw_or_check, markdown_table, with_part
from verification.agents.agent import Agent
from verification.agents.programs import AGENTS
from verification.agents.results import Result, Results, missing, read
from verification.agents.trial import KINDS

_ROOT = Path(__file__).parent.parent
PAGE = _ROOT / "docs" / "clients.md"
README = _ROOT / "README.md"
BEGIN = "<!-- agents: made by `make generate` from verification/agents and its results.json -->"
END = "<!-- /agents -->"
_THROUGH = [kind for kind in KINDS if kind != "direct"]


def table(results: Results) -> str:
    """A row for each program: the copies directly and in all trials through kproxy, and what the program needs."""
    head = ("program", "lines", "copies directly", "through kproxy", "what it needs in its configuration")
    dates = [_tested(results[name]) for name in AGENTS]
    return dated(head, [_row(name, results) for name in AGENTS], dates, head[1:4])


def short_table(results: Results) -> str:
    """A row for each program: the copies directly and in all trials through kproxy."""
    rows = []
    for name, agent in AGENTS.items():
        lines = max(results[name].values()).lines
        title = agent.title.removesuffix(" of Kafka") + (f", {lines:,} lines" if lines != Agent.lines else "")
        rows.append([title, *_counts(name, results)])
    head = ("program", "directly", "through kproxy")
    return markdown_table(head, rows, head[1:])


def _row(name: str, results: Results) -> list[str]:
    agent, last = AGENTS[name], max(results[name].values())
    return [f"{agent.title} {last.version}".strip(), f"{last.lines:,}", *_counts(name, results), agent.needs]


def _counts(name: str, results: Results) -> tuple[str, str]:
    found = results[name]
    through = {kind: _copies(found[kind]) for kind in _THROUGH if kind in found}
    differ = [f"{kind}: {cell}" for kind, cell in through.items() if cell != "0"]
    direct = _copies(found["direct"]) if "direct" in found else AGENTS[name].directly
    return direct, "; ".join(differ) or "0"


def _tested(found: Mapping[str, Result]) -> str:
    brokers = " and ".join(sorted({one.broker for one in found.values()}))
    return f"{min(found.values()).date}, Kafka {brokers}"


def _copies(one: Result) -> str:
    return f"{one.copies:,}, and {one.missing:,} lost" if one.missing else f"{one.copies:,}"


def drawn(page: str, results: Results) -> str:
    """The page with the table between its marks; ValueError if it has none, or a trial was not run."""
    _all_run(results)
    return with_part(page, BEGIN, END, table(results))


def readme_drawn(page: str, results: Results) -> str:
    """README.md, in the same way."""
    _all_run(results)
    return with_part(page, BEGIN, END, short_table(results))


def _all_run(results: Results) -> None:
    left = missing(results)
    if left:
        raise ValueError(f"not run yet: {', '.join(left)}; run make agents ARGS=--record")


def main(arguments: list[str]) -> int:
    """Write or check; 1 if the check finds a difference, or a trial was not run."""
    return max(
        draw_or_check(PAGE, lambda page: drawn(page, read()), arguments),
        draw_or_check(README, lambda page: readme_drawn(page, read()), arguments),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
