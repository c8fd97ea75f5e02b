"""Judges a test run whose failures ran a second time: a test that passes only then fails the run, unless it is listed.

    python -m tools.rerun first.xml second.xml --status STATUS

``first.xml`` and ``second.xml`` are pytest's JUnit reports (family xunit1), ``STATUS`` is pytest's exit status of the
second run. ``.ci/flaky.toml`` lists the tests that may need a second run. Each entry has an owner, a reason and an end:

    [[test]]
    id = "tests/interop/test_x.py::test_y"  # without [...] it covers every parameter
    owner = "name"
    reason = "the cause, as far as it is known"
    until = 2026-12-31                       # or: issue = "15"
"""

import argparse
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

KNOWN = Path(__file__).resolve().parent.parent / ".ci" / "flaky.toml"


class Result(StrEnum):
    """The result of one test in one run."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True)
class Known:
    """A test that may need a second run: at most until a day (None: until its issue is closed)."""

    id: str
    owner: str
    reason: str
    until: date | None
    issue: str

    def covers(self, test: str, today: date) -> bool:
        """Whether this entry excuses a test today; an id without parameters covers all of them."""
        return test in (self.id, f"{self.id}[{test.partition('[')[2]}") and (self.until is None or today <= self.until)

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


def read_results(path: Path) -> dict[str, Result]:
    """Return the result of each test of a JUnit report by pytest's node id; nothing if there is no whole report.

    A test with several rows (its call and its teardown) has the worst result of them.
    """
    try:
        root = ET.parse(path).getroot()
    except (OSError, ET.ParseError):
        return {}
    order = list(Result)
    found: dict[str, Result] = {}
    for row in root.iter("testcase"):
        test = _node_id(row)
        found[test] = max(_result(row), found.get(test, Result.PASSED), key=order.index)
    return found


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
    """What two runs showed."""

    passed: int
    failed: Sequence[str]
    """Tests that did not pass the second time either, or did not run."""
    unlisted: Sequence[str]
    """Tests that passed the second time and are in no list."""
    excused: Mapping[str, Known]
    """Tests that passed the second time, with the entry that allows it."""
    broken: str = ""
    """What went wrong beside the tests."""

    @property
    def good(self) -> bool:
        """Whether the run counts as passed."""
        return not (self.failed or self.unlisted or self.broken)

    def lines(self) -> Iterator[str]:
        """The report; its last line is ``N passed, N failed``, where tests that passed the second time count as failed
        unless they are listed."""
        for test in self.failed:
            yield f"failed both times: {test}"
        for test, known in self.excused.items():
            yield f"passed the second time, listed: {test} ({known})"
        for test in self.unlisted:
            yield f"passed the second time, not listed: {test}"
        if self.unlisted:
            yield "A test that needs a second run is a flaw: mend it, or list it in .ci/flaky.toml."
        if self.broken:
            yield f"failed: {self.broken}"
        bad = len(self.failed) + len(self.unlisted) + bool(self.broken)
        yield f"{self.passed + len(self.excused)} passed, {bad} failed"


def judge(
    first: Mapping[str, Result], second: Mapping[str, Result], status: int, known: Sequence[Known], today: date
) -> Judgement:
    """Compare a run that failed with the second run of what failed.

    :param status: pytest's exit status of the second run; a status other than 0 is a failure, whatever its report says.
    """
    suspects = [test for test, result in first.items() if result is Result.FAILED]
    failed = [test for test in suspects if second.get(test) is not Result.PASSED]
    failed += [test for test, result in second.items() if result is Result.FAILED and test not in suspects]
    excused, unlisted = {}, []
    for test in suspects:
        if test in failed:
            continue
        entry = next((entry for entry in known if entry.covers(test, today)), None)
        if entry is None:
            unlisted.append(test)
        else:
            excused[test] = entry
    broken = ""
    if not suspects:
        broken = "the first run failed without a failed test in its report: it was killed, or pytest itself failed"
    elif status and not failed:
        broken = f"the second run ended with status {status} without a failed test"
    passed = sum(result is Result.PASSED and test not in failed for test, result in first.items())
    return Judgement(passed, failed, unlisted, excused, broken)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the judgement; 0 if every test that needed a second run is listed and passed then, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.rerun")
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--status", type=int, required=True)
    parser.add_argument("--known", type=Path, default=KNOWN)
    given = parser.parse_args(arguments)
    today = datetime.now(UTC).date()
    judgement = judge(
        read_results(given.first), read_results(given.second), given.status, read_known(given.known), today
    )
    print("\n".join(judgement.lines()))
    return 0 if judgement.good else 1


if __name__ == "__main__":
    sys.exit(main())
