"""The survivors that are known, each with its reason: tools/mutate/survivors.yaml."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

PATH: Final = Path(__file__).with_name("survivors.yaml")
#: The outcomes of mutants that no test kills.
LIVES: Final = frozenset({"survived", "not reached"})
Known = Mapping[str, Mapping[str, str]]


def read(path: Path = PATH) -> Known:
    """Reasons by mutant, by module: ``{module: {mutant: reason}}``. ValueError if one has none."""
    known = yaml.safe_load(path.read_text()) or {}
    for module, rows in known.items():
        for mutant, reason in (rows or {}).items():
            if not isinstance(reason, str) or not reason.strip():
                raise ValueError(f"{path.name}: {module}: {mutant!r} has no reason")
    return {module: rows or {} for module, rows in known.items()}


def complaints(known: Known, outcomes: Mapping[str, Mapping[str, str]], names: Mapping[str, set[str]]) -> list[str]:
    """What is wrong with the list: ``outcomes`` of the mutants that were tried, ``names`` of all that a module has."""
    found: list[str] = []
    for module, tried in outcomes.items():
        reasons = known.get(module, {})
        for mutant, outcome in tried.items():
            lives = outcome in LIVES
            if lives and mutant not in reasons:
                found.append(f"{module}: {mutant}: {outcome}, and has no reason in {PATH.name}")
            elif not lives and mutant in reasons:
                found.append(f"{module}: {mutant}: {outcome}, but is in {PATH.name}")
        found += [
            f"{module}: {mutant}: is in {PATH.name}, but there is no such mutant"
            for mutant in reasons.keys() - names[module]
        ]
    return found
