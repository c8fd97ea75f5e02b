"""Which tests are tried on a mutant: those of its package and those that import it, if they reach the statement."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutate.instrument import module_name
from tools.mutate.mutants import Module, Mutant


@dataclass(frozen=True, slots=True)
class Ran:
    """A test in the run without a mutant."""

    seconds: float
    #: The lines of statements that it reached, and what it met there, by the path of their module.
    lines: Mapping[str, Collection[int | str]]


def files_for(path: str, also: Collection[str] | None = None) -> list[Path]:
    """The files whose tests may notice a change of a module: its own, all of its package, and all that import it.

    ``also``, if given: only its own, or where it has none those of its package that import it, and the files of these
    names (``log_follower``).
    """
    own = Path("tests", *Path(path).parts[1:-1])
    mirrored = own / f"test_{Path(path).name}"
    importers = _importers(module_name(path))
    if also is not None:
        first = [mirrored] if mirrored.exists() else sorted(file for file in importers if file.parent == own)
        return [*first, *(file for name in sorted(also) for file in sorted(Path("tests").rglob(f"test_{name}.py")))]
    files = [*own.glob("test_*.py"), *(file for file in importers if file.parent != own)]
    return sorted(files, key=lambda file: (file != mirrored, file.parent != own, file))


def _importers(module: str) -> list[Path]:
    imports = re.compile(rf"^\s*(?:from|import) {re.escape(module)}\b", re.MULTILINE)
    folders = ("net",) if module.startswith("kproxy.net.") else ("dedup", "txn", "proxy")
    return [
        file for name in folders for file in Path("tests", name).rglob("test_*.py") if imports.search(file.read_text())
    ]


def choose(mutant: Mutant, module: Module, ran: Mapping[str, Ran], seconds: float) -> list[str]:
    """The tests that can notice the mutant: those of the module's own file first, then the fastest, ``seconds`` in all.

    They reach its statement, and meet there what makes a difference: an operand of ``and``, say, that is false.

    For a constant: all that reach its module, those that reach a statement with its name before the others.
    """
    lines: set[int | str] = {mutant.needs or mutant.line}
    if mutant.unit is None:
        lines = set(module.lines_that_mention(mutant.assigns))
    own = f"test_{Path(module.path).name}"
    first = set(_reaching(ran, module.path, lines))
    found = list(first)
    if mutant.unit is None:  # a test of a constant, or of a field's default, need not reach a statement that names it
        found = [node for node, one in ran.items() if _is_in(own, node) or one.lines.get(module.path)]
    found.sort(key=lambda node: (not _is_in(own, node), node not in first, ran[node].seconds))
    chosen, total = [], 0.0
    for node in found:
        total += ran[node].seconds
        if chosen and total > seconds:
            break
        chosen.append(node)
    return chosen


def _is_in(file: str, node: str) -> bool:
    return Path(node.split("::")[0]).name == file


def _reaching(ran: Mapping[str, Ran], path: str, lines: Collection[int | str]) -> list[str]:
    return [node for node, one in ran.items() if not set(lines).isdisjoint(one.lines.get(path, ()))]


def grouped(paths: Sequence[str]) -> list[list[str]]:
    """Modules of one package together: their tests are collected, and run without a mutant, once."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(str(Path(path).parent), []).append(path)
    return list(groups.values())
