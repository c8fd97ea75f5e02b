"""A test that hangs fails with the stacks of its tasks; a run that is ended has its reports and can be continued."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools.rerun import KNOWN, Result, read_run

CONFTEST = 'pytest_plugins = ["tests.hangs", "tests.unpassed"]\n'
HANGS = """
import trio


async def waits_for_ever():
    await trio.sleep_forever()


async def test_hangs():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits_for_ever)


async def test_next():
    await trio.sleep(0)


def test_not_async():
    import time
    time.sleep(600)
"""
RUNS = """
import time
from pathlib import Path

def test_first():
    pass

def test_long():
    begun = Path("begun")
    if not begun.exists():
        begun.touch()
        time.sleep(600)

def test_last():
    pass
"""


def start(home: Path, suite: str, *arguments: str) -> subprocess.Popen[str]:
    (home / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (home / "test_x.py").write_text(suite, encoding="utf-8")
    (home / "pytest.ini").write_text("[pytest]\njunit_family = xunit1\ntrio_mode = true\n", encoding="utf-8")
    environ = os.environ | {"PYTHONPATH": str(KNOWN.parent.parent), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.Popen(command, cwd=home, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_a_test_that_hangs_fails_with_its_tasks_and_the_next_ones_run(tmp_path: Path) -> None:
    output, _ = start(tmp_path, HANGS, "--timeout=2").communicate()
    assert "2 failed, 1 passed" in output
    assert "task test_x.waits_for_ever" in output
    assert "await trio.sleep_forever()" in output
    assert output.count("Timeout (>2.0s)") >= 2


def test_a_run_that_is_ended_names_what_ran_and_the_next_run_takes_the_rest(tmp_path: Path) -> None:
    first, second = tmp_path / "first.xml", tmp_path / "second.xml"
    process = start(tmp_path, RUNS, "-n1", f"--junitxml={first}")
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)  # as timeout(1) does
    output, _ = process.communicate()
    assert "running when the run was ended: test_x.py::test_long for" in output
    assert read_run(first).results == {"test_x.py::test_first": Result.PASSED}
    output, _ = start(tmp_path, RUNS, f"--unpassed={first}", f"--junitxml={second}").communicate()
    assert "2 passed, 1 deselected" in output
    assert set(read_run(second).results) == {"test_x.py::test_long", "test_x.py::test_last"}
    output, _ = start(tmp_path, RUNS, f"--unpassed={tmp_path / 'none.xml'}").communicate()
    assert "3 deselected" in output
