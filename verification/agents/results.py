"""What ``make agents`` last found of each program and kind of trial, for docs/clients.md."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from verification.agents.programs import AGENTS
from verification.agents.trial import KINDS, Found, Trial

RESULTS: Final = Path(__file__).with_name("results.json")


class Result(NamedTuple):
    """One whole trial; ``version`` of the program, ``broker``: the release of Kafka."""

    date: str
    version: str
    broker: str
    lines: int
    copies: int
    missing: int


Results = Mapping[str, Mapping[str, Result]]


def read(path: Path = RESULTS) -> dict[str, dict[str, Result]]:
    """The results by program and kind."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: {kind: Result(**row) for kind, row in kinds.items()} for name, kinds in known.items()}


def is_whole(trial: Trial) -> bool:
    """Whether a trial is one for the docs: with all lines, and as many responses lost as usual."""
    return (trial.lines, trial.share) == (trial.agent.lines, trial.agent.share)


def add(trial: Trial, found: Found, date: str, version: str, broker: str, path: Path = RESULTS) -> None:
    """Records what a whole trial found; programs and kinds that nobody runs any more go."""
    results = read(path)
    results.setdefault(trial.agent.name, {})[trial.kind] = Result(
        date, version, broker, found.lines, found.copies, found.missing
    )
    rows = {
        name: {kind: results[name][kind]._asdict() for kind in KINDS if kind in results[name]}
        for name in AGENTS
        if name in results
    }
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def missing(results: Results) -> list[str]:
    """The trials that were not run, each as ``PROGRAM KIND``."""
    return [
        f"{name} {kind}"
        for name, agent in AGENTS.items()
        for kind in KINDS
        if kind not in results.get(name, {}) and not (kind == "direct" and agent.directly)
    ]
