"""Locks are found to fit what is required, or not, without asking a registry."""

from pathlib import Path

import pytest

from tools.generate_lock import LOCKS, Lock, problems, required

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
LOCK = """\
# made
click==8.1.7 \\
    --hash=sha256:00
    # via kproxy-kafka (pyproject.toml)
pyyaml==6.0.2 ; python_full_version >= '3.11' \\
    --hash=sha256:11 \\
    --hash=sha256:22
    # via
    #   kproxy-kafka (pyproject.toml)
    #   other
idna==3.10 \\
    --hash=sha256:33
    # via trio
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.lock"
    path.write_text(LOCK)
    return path


def test_a_lock_that_fits(lock: Path) -> None:
    assert list(problems(lock, ["click>=8.1,<9", "PyYAML>=6.0"])) == []


@pytest.mark.parametrize(
    ("requirements", "found"),
    [
        (["click>=8.2", "PyYAML"], "click 8.1.7 is not >=8.2"),
        (["click", "PyYAML", "trio"], "trio is missing"),
        (["click"], "pyyaml is not asked for any more"),
    ],
)
def test_what_does_not_fit_is_named(lock: Path, requirements: list[str], found: str) -> None:
    assert list(problems(lock, requirements)) == [found]


def test_a_pin_without_a_hash(lock: Path) -> None:
    lock.write_text(LOCK.replace("    --hash=sha256:00\n", ""))
    assert list(problems(lock, ["click", "PyYAML"])) == ["click has no hash"]


def test_no_lock_at_all(tmp_path: Path) -> None:
    assert list(problems(tmp_path / "none.lock", ["click"])) == ["click is missing"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.path.stem)
def test_there_are_requirements(lock: Lock) -> None:
    assert required(PYPROJECT, lock)


def test_extras_are_required_beside_what_all_need() -> None:
    plain, more = required(PYPROJECT, Lock(PYPROJECT)), required(PYPROJECT, Lock(PYPROJECT, extras=("oauth",)))
    assert set(plain) < set(more)
