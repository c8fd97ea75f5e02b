"""Judges a test run whose failures ran a second time: a test that passes only the second time fails the run, unless it
is listed.

    python -m tools.rerun first.xml second.xml --third-run
    python -m tools.rerun first.xml second.xml third.xml --status FIRST SECOND

The reports are pytest's JUnit reports (family xunit1). ``FIRST`` and ``SECOND`` are the exit statuses of these runs;
124 and 137 are those of a run that timeout(1) ended. The second run takes all tests that did not pass in the first
(``--unpassed``), so a first run that was ended is no failure if each test passed in one of both.
``.ci/flaky.toml`` lists the tests that may need a second run. Each entry has an owner, a reason and an end:

    [[test]]
    id = "tests/interop/test_x.py::test_y"  # without [...] it covers every parameter
    owner = "name"
    reason = "the cause, as far as it is known"
    until = 2026-12-31                       # or: issue = "15"

An id with ``*``, such as ``tests/spark/*``, covers every matching test that starts a foreign program (Spark, Kafka, a
JVM, a browser: its markers are in the report). Such a test must pass twice in a row, so it runs a third time:
``--third-run`` prints the tests for that run, one in a line.
"""

import argparse
import re
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

KNOWN = Path(__file__).resolve().parent.parent / ".ci" / "flaky.toml"
ENDED = {124, 137}
"""Exit statuses of timeout(1) for a run that it ended."""
STARTS = "starts"
"""The property of a test in the report that names a foreign program; ``tests/conftest.py`` writes it."""


class Result(StrEnum):
    """The result of one test in one run."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True)
class Run:
    """The result of each test of one run, by pytest's node id, and the tests that start foreign programs."""

    results: Mapping[str, Result] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()

    def passed(self, test: str) -> bool:
        """Whether the test ran and passed."""
        return self.results.get(test) is Result.PASSED


@dataclass(frozen=True)
class Known:
    """A test, or a group of tests, that may need a second run: until a day, or (None) until its issue is closed."""

    id: str
    owner: str
    reason: str
    until: date | None
    issue: str

    @property
    def is_group(self) -> bool:
        """Whether it covers all tests of a pattern; these must pass a third time, too."""
        return "*" in self.id

    def covers(self, test: str, today: date, *, foreign: bool = False) -> bool:
        """Whether this entry excuses a test today; an id without parameters covers all of them."""
        if self.until is not None and today > self.until:
            return False
        if self.is_group:
            return foreign and re.fullmatch(".*".join(map(re.escape, self.id.split("*"))), test) is not None
        return test in (self.id, f"{self.id}[{test.partition('[')[2]}")

    def __str__(self) -> str:
        end = f"until {self.until}" if self.until else f"issue {self.issue}"
        return f"{self.owner}, {end}: {self.reason}"


def read_known(path: Path) -> list[Known]:
    """Return the tests that may need a second run.

    :raises ValueError: the file is not TOML, or an entry lacks id, owner, reason, or both until and issue.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    return [_entry(fields) for fields in content.get("test", [])]


def _entry(fields: Mapping[str, Any]) -> Known:
    texts = {name: str(fields.get(name, "")).strip() for name in ("id", "owner", "reason", "issue")}
    until = fields.get("until")
    missing = [name for name in ("id", "owner", "reason") if not texts[name]]
    unknown = set(fields) - {*texts, "until"}
    if until is None and not texts["issue"]:
        missing.append("until or issue")
    if missing or unknown or not (until is None or type(until) is date):
        raise ValueError(f"entry {dict(fields)}: missing {missing}, unknown {sorted(unknown)}; until must be a date")
    return Known(**texts, until=until)


def read_run(path: Path) -> Run:
    """Return what a JUnit report says; nothing if there is no whole report.

    A test with several rows (its call and its teardown) has the worst result of them.
    """
    try:
        root = ET.parse(path).getroot()
    except (OSError, ET.ParseError):
        return Run()
    order = list(Result)
    found: dict[str, Result] = {}
    foreign = set()
    for row in root.iter("testcase"):
        test = _node_id(row)
        if not test:  # it ran when the run was ended
            continue
        found[test] = max(_result(row), found.get(test, Result.PASSED), key=order.index)
        if any(each.get("name") == STARTS for each in row.iter("property")):
            foreign.add(test)
    return Run(found, frozenset(foreign))


def _node_id(row: ET.Element) -> str:
    file, name = row.get("file", ""), row.get("name", "")
    module = file.removesuffix(".py").replace("/", ".")
    classes = row.get("classname", "").removeprefix(module).strip(".")
    return "::".join(part for part in (file, classes.replace(".", "::"), name) if part)


def _result(row: ET.Element) -> Result:
    kinds = {child.tag for child in row}
    if kinds & {"failure", "error"}:
        return Result.FAILED
    return Result.SKIPPED if "skipped" in kinds else Result.PASSED


@dataclass(frozen=True)
class Judgement:
    """What the runs showed."""

    passed: int
    failed: Sequence[str]
    """Tests that did not pass the second time."""
    unlisted: Sequence[str]
    """Tests that passed the second time and are in no list."""
    unsteady: Mapping[str, Known]
    """Tests of a listed group that did not pass twice in a row."""
    excused: Mapping[str, Known]
    """Tests that passed when they ran again, with the entry that allows it."""
    broken: str = ""
    """What went wrong beside the tests."""
    ended: bool = False
    """Whether the first run took too long."""
    rest: int = 0
    """How many tests passed in the second run and are not in the first run's report."""

    @property
    def good(self) -> bool:
        """Whether the run counts as passed."""
        return not (self.failed or self.unlisted or self.unsteady or self.broken)

    def lines(self) -> Iterator[str]:
        """The report; its last line is ``N passed, N failed``, where tests that passed the second time count as failed
        unless they are listed."""
        if self.ended:
            yield f"The first run was ended before all tests had run; {self.rest} tests passed in the second run alone."
        for test in self.failed:
            yield f"failed the second time: {test}"
        for test, known in self.unsteady.items():
            yield f"passed the second time, but not the third: {test} ({known})"
        for test, known in self.excused.items():
            times = "second and third" if known.is_group else "second"
            yield f"passed the {times} time, listed: {test} ({known})"
        for test in self.unlisted:
            yield f"passed the second time, not listed: {test}"
        if self.unlisted:
            yield "A test that needs a second run is a flaw: mend it, or list it in .ci/flaky.toml."
        if self.broken:
            yield f"failed: {self.broken}"
        bad = len(self.failed) + len(self.unlisted) + len(self.unsteady) + bool(self.broken)
        yield f"{self.passed + self.rest + len(self.excused)} passed, {bad} failed"


def _excuses(first: Run, second: Run, known: Sequence[Known], today: date) -> dict[str, Known | None]:
    """The tests that passed only the second time, each with the entry that allows it: its own before a group's."""
    entries = sorted(known, key=lambda entry: entry.is_group)
    return {
        test: next((entry for entry in entries if entry.covers(test, today, foreign=test in first.foreign)), None)
        for test, result in first.results.items()
        if result is Result.FAILED and second.passed(test)
    }


def for_third_run(first: Run, second: Run, known: Sequence[Known], today: date) -> list[str]:
    """Return the tests that passed the second time and must pass again."""
    return [test for test, entry in _excuses(first, second, known, today).items() if entry and entry.is_group]


def judge(
    first: Run, second: Run, third: Run, statuses: tuple[int, int], known: Sequence[Known], today: date
) -> Judgement:
    """Compare a run that failed with the second run, of what did not pass, and the third, of ``for_third_run``.

    :param statuses: of the first and the second run; a second one other than 0 is a failure, whatever its report says.
    """
    ended = statuses[0] in ENDED
    suspects = [test for test, result in first.results.items() if result is Result.FAILED]
    failed = [test for test in suspects if not second.passed(test)]
    failed += [test for test, result in second.results.items() if result is Result.FAILED and test not in suspects]
    excused, unsteady, unlisted = {}, {}, []
    for test, entry in _excuses(first, second, known, today).items():
        if entry is None:
            unlisted.append(test)
        elif entry.is_group and not third.passed(test):
            unsteady[test] = entry
        else:
            excused[test] = entry
    broken = ""
    if not first.results:
        broken = "the first run left no report: it was killed, or pytest itself failed"
    elif not (suspects or ended):
        broken = "the first run failed without a failed test in its report: pytest itself failed"
    elif statuses[1] and not failed:
        broken = f"the second run ended with status {statuses[1]} without a failed test"
    passed = sum(result is Result.PASSED and test not in failed for test, result in first.results.items())
    rest = sum(second.passed(test) for test in second.results.keys() - first.results.keys())
    return Judgement(passed, failed, unlisted, unsteady, excused, broken, ended, rest)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the judgement; 0 if every test that needed a second run is listed and passed then, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.rerun")
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("third", type=Path, nargs="?")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--status", type=int, nargs=2)
    what.add_argument("--third-run", action="store_true")
    parser.add_argument("--known", type=Path, default=KNOWN)
    given = parser.parse_args(arguments)
    first, second, known = read_run(given.first), read_run(given.second), read_known(given.known)
    today = datetime.now(UTC).date()
    if given.third_run:
        for test in for_third_run(first, second, known, today):
            print(test)
        return 0
    third = read_run(given.third) if given.third else Run()
    judgement = judge(first, second, third, tuple(given.status), known, today)
    print("\n".join(judgement.lines()))
    return 0 if judgement.good else 1


if __name__ == "__main__":
    sys.exit(main())
