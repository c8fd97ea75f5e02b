"""The process that tries the mutants of a package: collects its tests, runs them once, then forks for each mutant.

Reads a ``Job`` as JSON from its standard input; writes one JSON object a line: what was found, as it is found.
"""

import gc
import hashlib
import importlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tools.mutate import trial
from tools.mutate.choice import Ran, choose, files_for
from tools.mutate.instrument import Finder, Instrumented, module_name
from tools.mutate.mutants import Module, Mutant, Unit, function_code

#: pytest's options: none of these tests starts a broker.
OPTIONS: Final = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=0", "--no-header", "--tb=line"]
NO_BROKERS: Final = ["-m", "not kafka and not java and not spark and not browser"]
#: A test is given so many times what it took without a mutant, and a second.
_PATIENCE: Final = 5
#: For a new interpreter on a machine that has much else to do; a test that runs on and on is ended sooner (``bound``).
_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class Job:
    """What to try: the names of mutants by the path of their module."""

    mutants: Mapping[str, Sequence[str]]
    #: Of tests for one mutant, as measured without it.
    seconds: float
    at_once: int
    #: None: all tests; else those of the modules' own files, and those of these files.
    also: Sequence[str] | None

    @classmethod
    def read(cls) -> "Job":
        """From the standard input."""
        return cls(**json.load(sys.stdin))

    def text(self) -> str:
        """For the standard input."""
        return json.dumps(asdict(self))


class Deterministic:
    """A pytest plugin: hypothesis tries the same examples in each run, and does not look for smaller ones."""

    def pytest_configure(self) -> None:
        """Called before tests are imported."""
        from hypothesis import HealthCheck, Phase, settings  # pytest has to prepare it first

        quick = settings(
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        settings.register_profile("mutate", quick)
        settings.load_profile("mutate")


@dataclass(slots=True)
class _Child:
    path: str
    mutant: Mutant
    tests: int
    began: float
    deadline: float


class Trials:
    """A pytest plugin that tries mutants instead of running the tests."""

    def __init__(self, job: Job, finder: Finder, modules: Mapping[str, Module], tell: Callable[..., None]) -> None:
        """``tell`` takes what was found."""
        self._job, self._finder, self._modules, self._tell = job, finder, modules, tell
        self._failures = trial.Failures()
        self._running: dict[int, _Child] = {}
        #: How many mutants of a function each test has killed: it is tried first on the others.
        self._killers: dict[tuple[str, Unit | None], Counter[str]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of pytest's own."""
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        session.config.pluginmanager.register(self._failures)
        items = {item.nodeid: item for item in session.items}
        with tempfile.TemporaryDirectory(prefix="mutate-") as scratch:
            ran = self._without_mutants(session.items, scratch)
            for path in self._modules:
                importlib.import_module(module_name(path))  # some are imported when they are needed
            functions = trial.functions()
            gc.collect()
            gc.freeze()  # a fork copies no page for a collection of what was imported
            for path, mutant in self._all():
                self._finish(self._job.at_once - 1, scratch)
                chosen = self._chosen(path, mutant, ran)
                if not chosen:
                    self._tell(path=path, mutant=mutant.name, outcome="not reached", tests=0, seconds=0)
                    continue
                patience = _START_SECONDS + _PATIENCE * sum(ran[node].seconds for node in chosen)
                tests = [(items[node], ran[node].seconds) for node in chosen]
                pid = self._start(path, mutant, tests, functions, scratch)
                now = time.monotonic()
                self._running[pid] = _Child(path, mutant, len(chosen), now, now + patience)
            self._finish(0, scratch)
        return True

    def _all(self) -> Iterator[tuple[str, Mutant]]:
        for path, names in self._job.mutants.items():
            wanted = set(names)
            yield from ((path, mutant) for mutant in self._modules[path].mutants if mutant.name in wanted)

    def _chosen(self, path: str, mutant: Mutant, ran: Mapping[str, Ran]) -> list[str]:
        killers = self._killers.setdefault((path, mutant.unit), Counter())
        return sorted(
            choose(mutant, self._modules[path], ran, self._job.seconds), key=lambda node: killers[node], reverse=True
        )

    def _without_mutants(self, items: Sequence[pytest.Item], scratch: str) -> dict[str, Ran]:
        """Runs each test once, unless that was done before; those that fail are reported and left out."""
        tests = list(dict.fromkeys(item.path for item in items))
        kept = {(test, module): _kept(test, module) for test in tests for module in self._modules}
        missing = {test for (test, _), file in kept.items() if not file.exists()}
        failed = self._run_once([item for item in items if item.path in missing], scratch, kept) if missing else []
        ran: dict[str, Ran] = {}
        for test in tests:
            rows = {module: json.loads(kept[test, module].read_text()) for module in self._modules}
            for node, (seconds, _) in next(iter(rows.values())).items():
                ran[node] = Ran(seconds, {module: found[node][1] for module, found in rows.items()})
        self._tell(tests=len(ran), seconds=sum(one.seconds for one in ran.values()), failed=failed)
        bad = {message.split(": ")[0] for message in failed}
        for item in items:
            if item.nodeid in bad:  # so that it is run again
                kept[item.path, next(iter(self._modules))].unlink(missing_ok=True)
        return {node: one for node, one in ran.items() if node not in bad}

    def _run_once(self, items: Sequence[pytest.Item], scratch: str, kept: Mapping[tuple[Path, str], Path]) -> list[str]:
        """Keeps what each test reaches of each module; what failed."""
        report = Path(scratch, "ran.json")

        def work() -> int:
            ran: dict[str, Any] = {}
            for item, seconds in trial.run(items):
                ran[item.nodeid] = seconds, {path: list(lines) for path, lines in self._finder.reached.items()}
                for reached in self._finder.reached.values():
                    reached.clear()
            report.write_text(json.dumps([ran, self._failures.failed]))
            return 0

        for reached in self._finder.reached.values():
            reached.clear()
        os.waitpid(trial.fork(lambda: trial.limited(work, scratch)), 0)
        if not report.exists():
            raise pytest.UsageError("the tests did not run to their end without a mutant")
        ran, failed = json.loads(report.read_text())
        found: dict[Path, dict[str, Any]] = {}
        for item in items:
            seconds, lines = ran[item.nodeid]
            for path in self._modules:
                found.setdefault(kept[item.path, path], {})[item.nodeid] = seconds, lines[path]
        for file, rows in found.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(rows))
        return list(failed)

    def _start(
        self,
        path: str,
        mutant: Mutant,
        tests: Sequence[tuple[pytest.Item, float]],
        functions: Mapping[tuple[str, Unit], Sequence[Any]],
        scratch: str,
    ) -> int:
        if mutant.unit is not None and (path, mutant.unit) in functions:
            code = function_code(self._modules[path].code(mutant), mutant.unit)
            changed = functions[path, mutant.unit]
            if code is not None and all(code.co_freevars == one.__code__.co_freevars for one in changed):

                def work() -> int:
                    for one in changed:
                        one.__code__ = code
                    return self._first_failure(tests, scratch)

                return trial.fork(lambda: trial.limited(work, scratch))
        if (statement := self._modules[path].constant(mutant)) is not None:

            def assign() -> int:
                exec(statement, sys.modules[module_name(path)].__dict__)
                return self._first_failure(tests, scratch)

            return trial.fork(lambda: trial.limited(assign, scratch))
        command = [sys.executable, "-m", "tools.mutate.fresh", path, mutant.name, *(item.nodeid for item, _ in tests)]

        def replace() -> int:
            os.execv(sys.executable, command)

        return trial.fork(replace)

    def _first_failure(self, tests: Sequence[tuple[pytest.Item, float]], scratch: str) -> int:
        """Runs tests until one fails; 1 if one has, whose name is left in a file."""
        limits = iter([1 + _PATIENCE * seconds for _, seconds in tests[1:]] + [60.0])
        trial.bound(1 + _PATIENCE * tests[0][1])
        for item, _ in trial.run([item for item, _ in tests]):
            trial.bound(next(limits))
            if self._failures.failed:
                Path(scratch, str(os.getpid())).write_text(item.nodeid)
                return 1
        return 0

    def _finish(self, at_most: int, scratch: str) -> None:
        """Waits until at most so many are running."""
        while len(self._running) > at_most:
            now = time.monotonic()
            for pid, child in list(self._running.items()):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    self._told(pid, child, _outcome(status), scratch)
                elif now > child.deadline:
                    trial.kill(pid)
                    os.waitpid(pid, 0)
                    self._told(pid, child, "timed out", scratch)
            time.sleep(_POLL_SECONDS)

    def _told(self, pid: int, child: _Child, outcome: str, scratch: str) -> None:
        trial.kill(pid)  # what it started
        del self._running[pid]
        killer = Path(scratch, str(pid))
        by = killer.read_text() if killer.exists() else ""
        killer.unlink(missing_ok=True)
        seconds = round(time.monotonic() - child.began, 3)
        name, tests = child.mutant.name, child.tests
        self._killers[child.path, child.mutant.unit][by] += 1
        self._tell(path=child.path, mutant=name, outcome=outcome, tests=tests, seconds=seconds, by=by)


def _kept(test: Path, module: str) -> Path:
    """The file for what the tests of a file reach of a module without a mutant, while none of both changes."""
    found = hashlib.sha256(f"{test} {module}\n".encode() + test.read_bytes() + Path(module).read_bytes())
    return Path("build", "mutate", "reached", f"{test.stem}-{found.hexdigest()[:16]}.json")


def _outcome(status: int) -> str:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in trial.BOUNDS:
        return "timed out"
    return "survived" if status == 0 else "killed"


def main() -> int:
    """Works off one job; pytest's exit status."""
    job = Job.read()
    modules = {path: Module(path, Path(path).read_text()) for path in job.mutants}
    finder = Finder({path: Instrumented(path, Path(path).read_text()) for path in modules})
    finder.install()
    with os.fdopen(os.dup(1), "w", buffering=1) as lines:
        os.dup2(2, 1)  # whatever pytest says goes where errors go

        def tell(**what: object) -> None:
            lines.write(json.dumps(what) + "\n")

        files = dict.fromkeys(str(file) for path in modules for file in files_for(path, job.also))
        trials = Trials(job, finder, modules, tell)
        return int(pytest.main([*OPTIONS, *NO_BROKERS, *files], plugins=[Deterministic(), trials]))


if __name__ == "__main__":
    sys.exit(main())
