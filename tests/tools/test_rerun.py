"""A test that needs a second run fails the run, unless it is listed."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

import pytest

from tools.rerun import KNOWN, Known, Result, judge, main, read_known, read_results

PASSED, FAILED = Result.PASSED, Result.FAILED
TODAY = date(2026, 6, 1)
FLAKY = "tests/test_x.py::test_flaky"
LISTED = Known(FLAKY, "someone", "a reason", date(2026, 6, 1), "")
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
    first: Mapping[str, Result], second: Mapping[str, Result], *known: Known, status: int = 0
) -> tuple[bool, list[str]]:
    judgement = judge(first, second, status, known, TODAY)
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


@pytest.mark.parametrize("second", [{FLAKY: FAILED}, {FLAKY: Result.SKIPPED}, {}])
def test_what_does_not_pass_the_second_time_fails_the_run_though_it_is_listed(second: Mapping[str, Result]) -> None:
    good, lines = lines_of({FLAKY: FAILED}, second, LISTED)
    assert (good, lines) == (False, [f"failed both times: {FLAKY}", "0 passed, 1 failed"])


def test_a_test_that_fails_only_the_second_time_fails_the_run() -> None:
    good, lines = lines_of({FLAKY: FAILED, "t::good": PASSED}, {FLAKY: PASSED, "t::good": FAILED}, LISTED)
    assert (good, lines[-1]) == (False, "1 passed, 1 failed")


def test_a_run_that_failed_without_a_failed_test_fails() -> None:
    assert lines_of({"t::good": PASSED}, {})[0] is False
    assert lines_of({}, {})[1][-1] == "0 passed, 1 failed"
    good, lines = lines_of({FLAKY: FAILED}, {FLAKY: PASSED}, LISTED, status=3)
    assert (good, lines[-1]) == (False, "1 passed, 1 failed")


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
    for entry in read_known(KNOWN):
        file, _, name = entry.id.partition("::")
        assert name.partition("[")[0].split("::")[-1] in (KNOWN.parent.parent / file).read_text(encoding="utf-8")


def test_a_report_that_is_cut_off_or_missing_holds_nothing(tmp_path: Path) -> None:
    assert read_results(tmp_path / "none.xml") == {}
    cut = tmp_path / "cut.xml"
    cut.write_text("<testsuites><testsuite>", encoding="utf-8")
    assert read_results(cut) == {}


@pytest.fixture(scope="module")
def run_suite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Path, Path, int]]:
    """Runs SUITE twice, the second time what failed; returns both reports and the second status."""

    def run(name: str, bad: str) -> tuple[Path, Path, int]:
        home = tmp_path_factory.mktemp(name)
        (home / "pytest.ini").write_text("[pytest]\njunit_family = xunit1\n", encoding="utf-8")
        (home / "tests").mkdir()
        (home / "tests" / "test_x.py").write_text(f"BAD = {bad}\n{SUITE}", encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "--last-failed"]
        statuses = [
            subprocess.run(
                [*command, f"--junitxml={number}.xml"], cwd=home, capture_output=True, check=False
            ).returncode
            for number in (1, 2)
        ]
        return home / "1.xml", home / "2.xml", statuses[1]

    return run


def test_reports_of_real_runs_are_understood(
    run_suite: Callable[[str, str], tuple[Path, Path, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, status = run_suite("good", "None")
    flaky = ["tests/test_x.py::TestClass::test_at_its_end", "tests/test_x.py::test_flaky[a::b[c]]"]
    assert sorted(test for test, result in read_results(first).items() if result is FAILED) == flaky
    known = tmp_path / "flaky.toml"
    known.write_text("", encoding="utf-8")
    arguments = [str(first), str(second), "--status", str(status), "--known", str(known)]
    assert main(arguments) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 2 failed"
    entry = '[[test]]\nid = "{}"\nowner = "o"\nreason = "r"\nissue = "1"\n'
    known.write_text("".join(entry.format(test.removesuffix("[a::b[c]]")) for test in flaky), encoding="utf-8")
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "4 passed, 0 failed"


def test_a_test_that_fails_twice_fails_the_run(
    run_suite: Callable[[str, str], tuple[Path, Path, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, status = run_suite("bad", "1")
    assert status == 1
    assert main([str(first), str(second), "--status", str(status)]) == 1
    assert "failed both times: tests/test_x.py::TestClass::test_bad" in capsys.readouterr().out
