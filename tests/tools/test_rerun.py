"""A test that needs a second run fails the run, unless it is listed."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from tools.rerun import KNOWN, Known, Result, Run, for_third_run, judge, main, read_known, read_run

MARKERS = ("kafka", "java", "spark", "browser")
PASSED, FAILED = Result.PASSED, Result.FAILED
TODAY = date(2026, 6, 1)
FLAKY = "tests/test_x.py::test_flaky"
LISTED = Known(FLAKY, "someone", "a reason", date(2026, 6, 1), "")
GROUP = Known("tests/*", "someone", "a slow JVM", None, "15")
SUITE = """
import pathlib
import pytest

ROUNDS = pathlib.Path(__file__).with_name("rounds")


@pytest.fixture
def fails_once_at_its_end():
    yield
    again = ROUNDS.with_suffix(".end").exists()
    ROUNDS.with_suffix(".end").touch()
    assert again


def test_good():
    pass


@pytest.mark.kafka
def test_needs_kafka():
    again = ROUNDS.with_suffix(".kafka").exists()
    ROUNDS.with_suffix(".kafka").touch()
    assert again


@pytest.mark.skip
def test_skipped():
    raise AssertionError


@pytest.mark.parametrize("name", ["a::b[c]"])
def test_flaky(name):
    again = ROUNDS.exists()
    ROUNDS.touch()
    assert again


class TestClass:
    def test_at_its_end(self, fails_once_at_its_end):
        pass

    def test_bad(self):
        assert BAD is None
"""


def lines_of(
    first: Mapping[str, Result], second: Mapping[str, Result], *known: Known, status: int = 0, first_status: int = 2
) -> tuple[bool, list[str]]:
    judgement = judge(Run(first), Run(second), Run(), (first_status, status), known, TODAY)
    return judgement.good, list(judgement.lines())


def test_what_passes_the_second_time_is_listed_and_fails_the_run() -> None:
    good, lines = lines_of({FLAKY: FAILED, "t::good": PASSED}, {FLAKY: PASSED})
    assert not good
    assert lines[0] == f"passed the second time, not listed: {FLAKY}"
    assert lines[-1] == "1 passed, 1 failed"


def test_what_is_listed_does_not_fail_the_run_but_is_shown_with_owner_and_reason() -> None:
    good, lines = lines_of({FLAKY: FAILED, "t::good": PASSED}, {FLAKY: PASSED}, LISTED)
    assert good
    assert lines == [
        f"passed the second time, listed: {FLAKY} (someone, until 2026-06-01: a reason)",
        "2 passed, 0 failed",
    ]


@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        (LISTED, True),
        (Known(FLAKY, "someone", "a reason", None, "15"), True),
        (Known(FLAKY, "someone", "expired", date(2026, 5, 31), ""), False),
        (Known("tests/test_x.py::test_flak", "someone", "another test", None, "15"), False),
        (Known("tests/test_x.py", "someone", "a file is no test", None, "15"), False),
    ],
)
def test_an_entry_covers_one_test_until_its_day(entry: Known, covered: bool) -> None:
    assert entry.covers(FLAKY, TODAY) is covered
    assert entry.covers(f"{FLAKY}[a-[1]]", TODAY) is covered


def test_an_entry_with_parameters_covers_these_alone() -> None:
    entry = Known(f"{FLAKY}[a]", "someone", "a reason", None, "15")
    assert entry.covers(f"{FLAKY}[a]", TODAY)
    assert not entry.covers(f"{FLAKY}[b]", TODAY)
    assert not entry.covers(FLAKY, TODAY)


def test_a_group_covers_what_starts_a_foreign_program_and_nothing_else() -> None:
    assert GROUP.covers(FLAKY, TODAY, foreign=True)
    assert not GROUP.covers(FLAKY, TODAY)
    assert not Known("tests/test_y*", "someone", "another file", None, "15").covers(FLAKY, TODAY, foreign=True)
    assert not Known("tests/*", "someone", "expired", date(2026, 5, 31), "").covers(FLAKY, TODAY, foreign=True)
    assert Known("tests/*[[]a]", "o", "brackets are no pattern", None, "1").covers("tests/t[[]a]", TODAY, foreign=True)


@pytest.mark.parametrize(
    ("third", "good", "line"),
    [
        ({FLAKY: PASSED}, True, f"passed the second and third time, listed: {FLAKY} (someone, issue 15: a slow JVM)"),
        ({FLAKY: FAILED}, False, f"passed the second time, but not the third: {FLAKY} (someone, issue 15: a slow JVM)"),
        ({}, False, f"passed the second time, but not the third: {FLAKY} (someone, issue 15: a slow JVM)"),
    ],
)
def test_a_test_of_a_group_must_pass_twice_in_a_row(third: Mapping[str, Result], good: bool, line: str) -> None:
    first, second = Run({FLAKY: FAILED}, frozenset({FLAKY})), Run({FLAKY: PASSED})
    assert for_third_run(first, second, [GROUP], TODAY) == [FLAKY]
    judgement = judge(first, second, Run(third), (2, 0), [GROUP], TODAY)
    assert judgement.good is good
    assert list(judgement.lines()) == [line, "1 passed, 0 failed" if good else "0 passed, 1 failed"]


def test_an_entry_for_the_test_itself_goes_before_a_group() -> None:
    first, second = Run({FLAKY: FAILED}, frozenset({FLAKY})), Run({FLAKY: PASSED})
    assert for_third_run(first, second, [GROUP, LISTED], TODAY) == []
    assert judge(first, second, Run(), (2, 0), [GROUP, LISTED], TODAY).good


def test_no_third_run_for_what_failed_twice_or_is_not_listed() -> None:
    foreign = frozenset({FLAKY})
    assert for_third_run(Run({FLAKY: FAILED}, foreign), Run({FLAKY: FAILED}), [GROUP], TODAY) == []
    assert for_third_run(Run({FLAKY: FAILED}), Run({FLAKY: PASSED}), [GROUP], TODAY) == []


@pytest.mark.parametrize("second", [{FLAKY: FAILED}, {FLAKY: Result.SKIPPED}, {}])
def test_what_does_not_pass_the_second_time_fails_the_run_though_it_is_listed(second: Mapping[str, Result]) -> None:
    good, lines = lines_of({FLAKY: FAILED}, second, LISTED)
    assert (good, lines) == (False, [f"failed the second time: {FLAKY}", "0 passed, 1 failed"])


def test_a_test_that_fails_only_the_second_time_fails_the_run() -> None:
    good, lines = lines_of({FLAKY: FAILED, "t::good": PASSED}, {FLAKY: PASSED, "t::good": FAILED}, LISTED)
    assert (good, lines[-1]) == (False, "1 passed, 1 failed")


def test_a_run_that_failed_without_a_failed_test_fails() -> None:
    assert lines_of({"t::good": PASSED}, {})[0] is False
    assert lines_of({}, {})[1][-1] == "0 passed, 1 failed"
    good, lines = lines_of({FLAKY: FAILED}, {FLAKY: PASSED}, LISTED, status=3)
    assert (good, lines[-1]) == (False, "1 passed, 1 failed")


@pytest.mark.parametrize("status", [124, 137])
def test_a_run_that_was_ended_counts_if_the_second_ran_the_rest(status: int) -> None:
    good, lines = lines_of({"t::good": PASSED}, {"t::rest": PASSED}, first_status=status)
    assert good
    assert lines[0].startswith("The first run was ended before all tests had run; 1 tests passed in the second")
    assert lines[-1] == "2 passed, 0 failed"
    assert not lines_of({"t::good": PASSED}, {"t::rest": FAILED}, first_status=status, status=2)[0]
    assert not lines_of({"t::good": PASSED}, {"t::rest": PASSED}, first_status=status, status=124)[0]
    assert not lines_of({FLAKY: FAILED}, {FLAKY: PASSED, "t::rest": PASSED}, first_status=status)[0]
    assert lines_of({}, {}, first_status=status)[1][-2].startswith("failed: the first run left no report")


@pytest.mark.parametrize(
    "entry",
    [
        'owner = "o"\nreason = "r"\nissue = "1"',
        'id = "t"\nreason = "r"\nissue = "1"',
        'id = "t"\nowner = "o"\nreason = " "\nissue = "1"',
        'id = "t"\nowner = "o"\nreason = "r"',
        'id = "t"\nowner = "o"\nreason = "r"\nuntil = "2026-01-01"',
        'id = "t"\nowner = "o"\nreason = "r"\nissue = "1"\nsince = 2026-01-01',
    ],
)
def test_an_entry_needs_an_owner_a_reason_and_an_end(entry: str, tmp_path: Path) -> None:
    path = tmp_path / "flaky.toml"
    path.write_text(f"[[test]]\n{entry}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="until must be a date"):
        read_known(path)


def test_the_list_of_this_repository_is_sound_and_names_tests_that_exist() -> None:
    root = KNOWN.parent.parent
    for entry in read_known(KNOWN):
        file, _, name = entry.id.partition("::")
        if entry.is_group:
            texts = [
                path.read_text(encoding="utf-8")
                for path in root.glob(file)
                for path in [path, *path.rglob("*.py")]
                if path.suffix == ".py"
            ]
            assert any(f"pytest.mark.{marker}" in text for text in texts for marker in MARKERS), entry.id
        else:
            assert name.partition("[")[0].split("::")[-1] in (root / file).read_text(encoding="utf-8")


def test_a_report_that_is_cut_off_or_missing_holds_nothing(tmp_path: Path) -> None:
    assert read_run(tmp_path / "none.xml") == Run()
    cut = tmp_path / "cut.xml"
    cut.write_text("<testsuites><testsuite>", encoding="utf-8")
    assert read_run(cut) == Run()


@dataclass(frozen=True)
class Reports:
    """The reports of three runs: of all tests, of what failed, and of what must pass again."""

    first: Path
    second: Path
    third: Path
    status: int


def run_suite(home: Path, *, bad: str, known: str) -> Reports:
    """Runs SUITE as CI does."""
    (home / "pytest.ini").write_text("[pytest]\njunit_family = xunit1\nmarkers = kafka\n", encoding="utf-8")
    (home / "tests").mkdir()
    (home / "tests" / "conftest.py").write_text(
        'pytest_plugins = ["tests.foreign", "tests.unpassed"]', encoding="utf-8"
    )
    (home / "tests" / "test_x.py").write_text(f"BAD = {bad}\n{SUITE}", encoding="utf-8")
    (home / "flaky.toml").write_text(known, encoding="utf-8")

    def run(report: Path, *arguments: str) -> int:
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
        environ = os.environ | {"PYTHONPATH": str(KNOWN.parent.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(command, cwd=home, env=environ, capture_output=True, check=False).returncode

    first, second, third = (home / f"{number}.xml" for number in (1, 2, 3))
    run(first)
    status = run(second, f"--unpassed={first}")
    again = for_third_run(read_run(first), read_run(second), read_known(home / "flaky.toml"), TODAY)
    if again:
        (home / "again").write_text("\n".join(again), encoding="utf-8")
        run(third, "@again")
    return Reports(first, second, third, status)


def test_reports_of_real_runs_are_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = '[[test]]\nid = "{}"\nowner = "o"\nreason = "r"\nissue = "1"\n'
    reports = run_suite(tmp_path, bad="None", known=entry.format("tests/*"))
    kafka = "tests/test_x.py::test_needs_kafka"
    flaky = ["tests/test_x.py::TestClass::test_at_its_end", "tests/test_x.py::test_flaky[a::b[c]]"]
    first = read_run(reports.first)
    assert sorted(test for test, result in first.results.items() if result is FAILED) == [*flaky, kafka]
    assert first.foreign == {kafka}
    assert read_run(reports.third) == Run({kafka: PASSED}, frozenset({kafka}))
    known = tmp_path / "flaky.toml"
    paths = [str(reports.first), str(reports.second), "--known", str(known)]
    assert main([*paths, "--third-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [kafka]
    arguments = [*paths[:2], str(reports.third), *paths[2:], "--status", "2", str(reports.status)]
    assert main(arguments) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 2 failed"
    known.write_text(
        "".join(entry.format(test.removesuffix("[a::b[c]]")) for test in [*flaky, "tests/*"]), encoding="utf-8"
    )
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 0 failed"


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = run_suite(tmp_path, bad="1", known="")
    assert reports.status == 1
    assert main([str(reports.first), str(reports.second), "--status", "2", str(reports.status)]) == 1
    assert "failed the second time: tests/test_x.py::TestClass::test_bad" in capsys.readouterr().out
