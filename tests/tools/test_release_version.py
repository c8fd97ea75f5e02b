"""One version in package, chart, manifests and changelog."""

import shutil
from pathlib import Path

import pytest

from kproxy import __version__
from tools.release_version import PLACES, ROOT, main, notes, problems, set_version, versions


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in (*PLACES, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_repository_names_one_version() -> None:
    assert problems(ROOT, __version__) == []


def test_a_version_is_written_everywhere(copy: Path) -> None:
    set_version(copy, "12.0.3rc1")
    assert versions(copy) == {name: {"12.0.3rc1"} for name in PLACES}


def test_a_file_that_was_forgotten_and_a_missing_note_are_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_version(copy, "9.9.9")
    shutil.copy(ROOT / "kproxy/__init__.py", copy / "kproxy/__init__.py")
    assert main(["--check", "9.9.9"], copy) == 1
    shown = capsys.readouterr().err
    assert f"kproxy/__init__.py: {__version__} in place of 9.9.9" in shown
    assert "CHANGELOG.md says nothing about 9.9.9" in shown


def test_notes_are_those_of_one_version(copy: Path) -> None:
    (copy / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- New.\n\n## 0.1.0\n\n- Old.\n")
    assert notes(copy, "0.2.0") == "- New.\n"
    assert notes(copy, "0.1.0") == "- Old.\n"


@pytest.mark.parametrize("version", ["1", "v1.0.0", "1.0.0-rc1", "x"])
def test_what_is_no_version_is_refused(copy: Path, version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", version], copy) == 1
    assert "0.2.0rc1" in capsys.readouterr().err
    assert versions(copy) == versions(ROOT)
