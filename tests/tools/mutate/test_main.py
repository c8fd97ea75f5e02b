"""The command on a project of two files: what is killed, what is not, and what runs for ever."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tools.mutate.__main__ as command
from tools.mutate.__main__ import Results
from tools.mutate.mutants import Module

ROOT = Path(__file__).parents[3]
MODULE = "kproxy/dedup/count.py"
SOURCE = """\
_STEP = 2

def count(limit, extra=False):
    found = []
    n = 0
    while n < limit:
        found.append(n)
        n += _STEP
    if extra:
        found.append(-1)
    return found

def unused():
    return 5
"""
TEST = """\
def test_count():
    from kproxy.dedup.count import count

    assert count(3) == [0, 2]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("kproxy/__init__.py", "kproxy/dedup/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "tests/dedup").mkdir(parents=True)
    (tmp_path / MODULE).write_text(SOURCE)
    (tmp_path / "tests/dedup/test_count.py").write_text(TEST)
    options = "\n".join(f'  "{mark}: needs it",' for mark in ("kafka", "java", "spark", "browser"))
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\nfilterwarnings = ["error"]\n'
        f"markers = [\n{options}\n]\n"
    )
    return tmp_path


def mutate(project: Path, reasons: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (project / "reasons.yaml").write_text(reasons)
    program = [sys.executable, "-m", "tools.mutate", MODULE, "--reasons", "reasons.yaml", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run(program, cwd=project, env=environment, capture_output=True, text=True, timeout=120)


def test_survivors_without_a_reason_fail_the_command_and_a_second_run_tries_only_these(project: Path) -> None:
    first = mutate(project, "", "--jobs", "1")
    assert first.returncode == 1, first.stderr
    named = {line.split(": ", 1)[1].rsplit(": ", 1)[0] for line in first.stdout.splitlines() if "has no reason" in line}
    assert named == {
        "count: if False instead of `extra`",
        "count: delete `found.append(-1)`",
        "count: `n < limit` becomes `n <= limit`",
        "count: 1 becomes 2",
        "unused: 5 becomes 6",
    }
    outcomes = (project / "build/mutate").glob("*.jsonl")
    text = "".join(path.read_text() for path in outcomes)
    assert '"delete `n += _STEP`' not in text
    assert text.count('"timed out"') >= 1

    listed = f"{MODULE}:\n" + "".join(f'  "{name}": nobody needs it\n' for name in sorted(named))
    second = mutate(project, listed, "--jobs", "1")
    assert second.returncode == 0, second.stdout
    assert "without a mutant" not in second.stdout


def test_what_changed_is_tried_again_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_KEPT", tmp_path)
    module = Module(MODULE, SOURCE)
    for mutant in module.mutants:
        Results(module, ()).note({"mutant": mutant.name, "outcome": "killed"})
    edited = Module(MODULE, SOURCE.replace("_STEP = 2", "_STEP = 2\n").replace("return 5", "return 5 + 5"))
    names = {mutant.name for mutant in edited.mutants}
    again = names - Results(edited, ()).outcomes.keys()
    assert again == {name for name in names if name.startswith("unused: ")}
