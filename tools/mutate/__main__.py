"""Tries mutants and shows a table. Exit status 1 if one survives that is not listed in survivors.yaml.

    python -m tools.mutate [--jobs 2] [--seconds 20] [--limit N] [--own] [--also NAME] [--only TEXT] [--again] [PATH]...

Without a module: all that survivors.yaml names. Outcomes are kept in build/mutate, so that an interrupted run can
continue: until the function around the mutant changes, those of survivors until a test changes, too.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tools.mutate import survivors
from tools.mutate.choice import files_for, grouped
from tools.mutate.mutants import Module
from tools.mutate.survivors import LIVES
from tools.mutate.worker import Job

#: The packages whose rules keep kproxy's promises.
PACKAGES: Final = ("kproxy/dedup", "kproxy/txn", "kproxy/net/txn")
_KEPT: Final = Path("build", "mutate")
_OUTCOMES: Final = ("killed", "timed out", "survived", "not reached")


class Results:
    """The outcomes of one module's mutants, kept in a file. A survivor is tried again when one of its tests changes."""

    def __init__(self, module: Module, also: Sequence[str] | None) -> None:
        """Reads what is there."""
        self._tests = _digest(files_for(module.path, also))
        self._sources = {mutant.name: mutant.source for mutant in module.mutants}
        self._file = _KEPT / f"{module.path.removesuffix('.py').replace('/', '.')}.jsonl"
        self.outcomes: dict[str, str] = {}
        for line in self._file.read_text().splitlines() if self._file.exists() else ():
            row = json.loads(line)
            if row["source"] != self._sources.get(row["mutant"]):
                continue
            if row["outcome"] not in LIVES or row["with"] == self._tests:
                self.outcomes[row["mutant"]] = row["outcome"]

    def forget(self) -> None:
        """Has all tried again."""
        self._file.unlink(missing_ok=True)
        self.outcomes.clear()

    def note(self, row: Mapping[str, str]) -> None:
        """Keeps one."""
        self.outcomes[row["mutant"]] = row["outcome"]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps({**row, "source": self._sources[row["mutant"]], "with": self._tests}) + "\n")


def _digest(files: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()[:16]


def _modules(paths: Sequence[str], known: survivors.Known) -> list[str]:
    found: dict[str, None] = {}
    for path in paths or list(known):
        files = sorted(Path(path).rglob("*.py")) if Path(path).is_dir() else [Path(path)]
        found.update((str(file), None) for file in files)
    return list(found)


def _sample(names: Sequence[str], limit: int) -> list[str]:
    """So many of the mutants, the same in each run; 0: all."""
    chosen = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[: limit or None]
    return [name for name in names if name in set(chosen)]


def _work(job: Job, results: Mapping[str, Results], progress: Progress, errors: IO[str]) -> None:
    """Has one worker do a job. RuntimeError if it can't."""
    command = [sys.executable, "-m", "tools.mutate.worker"]
    task = progress.add_task(str(Path(next(iter(job.mutants))).parent), total=sum(map(len, job.mutants.values())))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write(job.text())
        worker.stdin.close()
        for line in worker.stdout:
            row = json.loads(line)
            if "mutant" in row:
                results[row["path"]].note(row)
                progress.advance(task)
                continue
            progress.console.print(f"{row['tests']} tests take {row['seconds']:.0f} s without a mutant")
            for failed in row["failed"]:
                progress.console.print(
                    f"left out, for it fails without a mutant: {failed.splitlines()[0]}", markup=False
                )
    if worker.returncode:
        raise RuntimeError(f"the worker ended with status {worker.returncode}; see {errors.name}")


def _table(results: Mapping[str, Results], chosen: Mapping[str, Sequence[str]], known: survivors.Known) -> Table:
    table = Table("module", box=None)
    table.columns[0].no_wrap = True
    for name in ("mutants", *_OUTCOMES, "listed"):
        table.add_column(name, justify="right")
    for path, names in chosen.items():
        counts = Counter(results[path].outcomes.get(name, "not tried") for name in names)
        reasons = sum(name in known.get(path, {}) for name in names)
        table.add_row(path, *map(str, (len(names), *(counts[name] for name in _OUTCOMES), reasons)))
    return table


@click.command(help=__doc__)
@click.argument("paths", nargs=-1, type=click.Path(exists=True))
@click.option("--jobs", default=2, show_default=True, help="Mutants at once.")
@click.option("--seconds", default=20.0, show_default=True, help="Of tests for one mutant, as measured without it.")
@click.option("--limit", default=0, help="So many mutants of each module: the same ones each time.")
@click.option("--own", is_flag=True, help="Only the tests of each module's own file: quick; more mutants survive.")
@click.option("--also", multiple=True, help="As --own, and the tests of the file of this name (log_follower).")
@click.option("--only", default="", help="Mutants whose name has this in it.")
@click.option("--reasons", default=survivors.PATH, type=click.Path(path_type=Path), help="The list of survivors.")
@click.option("--again", is_flag=True, help="Forgets what was found before.")
def main(
    paths: tuple[str, ...],
    jobs: int,
    seconds: float,
    limit: int,
    own: bool,
    also: tuple[str, ...],
    only: str,
    reasons: Path,
    again: bool,
) -> None:
    """As the module's docstring says."""
    known = survivors.read(reasons)
    modules = {path: Module(path, Path(path).read_text()) for path in _modules(paths, known)}
    modules = {path: module for path, module in modules.items() if module.mutants}
    tests = also if own or also else None
    results = {path: Results(module, tests) for path, module in modules.items()}
    names = {path: [mutant.name for mutant in module.mutants] for path, module in modules.items()}
    chosen = {path: _sample([name for name in all_ if only in name], limit) for path, all_ in names.items()}
    if again:
        for one in results.values():
            one.forget()
        shutil.rmtree(_KEPT / "reached", ignore_errors=True)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    _KEPT.mkdir(parents=True, exist_ok=True)
    with Progress(*columns, console=console) as progress, (_KEPT / "errors.txt").open("w") as errors:
        for group in grouped(list(modules)):
            todo = {path: [name for name in chosen[path] if name not in results[path].outcomes] for path in group}
            todo = {path: rows for path, rows in todo.items() if rows}
            if todo:
                _work(Job(todo, seconds, jobs, tests), results, progress, errors)
    console.print(_table(results, chosen, known))
    outcomes = {
        path: {name: results[path].outcomes[name] for name in rows if name in results[path].outcomes}
        for path, rows in chosen.items()
    }
    wrong = survivors.complaints(known, outcomes, {path: set(all_) for path, all_ in names.items()})
    for line in wrong:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
