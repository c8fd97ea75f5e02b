"""What `make test` and `make demo` say before anything else where programs are missing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "system-packages.sh"
#: What the script itself calls, and the Java of this machine.
HERE = ("bash", "env", "id", "sed", "head", "java")


@pytest.fixture
def only(tmp_path: Path) -> Path:
    """A directory of programs, to be all of PATH."""
    for name in HERE:
        found = shutil.which(name)
        assert found is not None
        _write(tmp_path / name, found)
    _write(tmp_path / "python3", sys.executable)
    return tmp_path


def _write(program: Path, real: str) -> None:
    program.write_text(f'#!/bin/sh\nexec "{real}" "$@"\n')
    program.chmod(0o755)


def run(path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *args], env={"PATH": str(path)}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(("args", "names", "others"), [((), "chromium", "jre"), (("demo",), "maven", "chromium")])
def test_what_is_missing_is_named_where_it_cannot_be_installed(
    only: Path, args: tuple[str, ...], names: str, others: str
) -> None:
    done = run(only, *args)
    assert done.returncode == 1
    assert done.stderr.startswith("missing: ")
    assert names in done.stderr
    assert others not in done.stderr
    assert "apt-get install" in done.stderr


def test_where_all_is_there_nothing_is_said(only: Path) -> None:
    _write(only / "mvn", "/bin/true")
    done = run(only, "demo")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
