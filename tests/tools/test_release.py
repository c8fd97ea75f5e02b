"""The rehearsal of a release: its steps, its report, and README's quick start as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kproxy import __version__
from tools import release_steps
from tools.release import ROOT, main, rehearse, table
from tools.release_quick_start import QuickStart, StepFailed, quick_start_of
from tools.release_steps import STEPS, Release


def _release(tmp_path: Path, tag: str | None = None) -> Release:
    for name in ("dist", "work"):
        (tmp_path / name).mkdir()
    return Release(ROOT, tmp_path / "dist", tmp_path / "work", tag, "fake", lambda _: None)


def test_every_line_of_the_readmes_quick_start_can_be_typed() -> None:
    found = quick_start_of((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found.run.startswith("kproxy run --bootstrap-servers ")
    assert found.commands


def test_comments_are_not_typed() -> None:
    text = (
        "## Quick start\n\n    pip install .\n    kproxy run --bootstrap-servers broker1:9092,broker2:9092\n\n"
        "    # A client:\n    bootstrap.servers=127.0.0.1:19092\n\n    kproxy status   # who\n\nMore.\n"
    )
    run = "kproxy run --bootstrap-servers broker1:9092,broker2:9092"
    assert quick_start_of(text) == QuickStart(run, "bootstrap.servers=127.0.0.1:19092", ("kproxy status",))
    with pytest.raises(StepFailed, match="cannot type: 'sudo rm'"):
        quick_start_of(text.replace("pip install .", "sudo rm"))
    with pytest.raises(StepFailed, match="must run kproxy for broker1:9092,broker2:9092"):
        quick_start_of(text.replace("## Quick start", "## Start"))


def test_it_ends_at_the_first_step_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Release) -> str:
        subprocess.run(
            [sys.executable, "-c", "print('so it is'); raise SystemExit(3)"], check=True, capture_output=True, text=True
        )
        return ""

    monkeypatch.setitem(release_steps.STEPS, "chart", fail)  # type: ignore[arg-type]
    assert main(["--dist", str(tmp_path / "dist"), "--json", "versions", "chart", "notes"]) == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert [(row["step"], row["ok"]) for row in found["steps"]] == [("versions", True), ("chart", False)]
    assert "ended with 3\nso it is" in found["steps"][1]["text"]
    assert "[2/3] chart ..." in shown.err
    assert "[2/3] chart: failed after" in shown.err


def test_the_table_names_steps_that_were_not_begun(tmp_path: Path) -> None:
    outcomes = rehearse(_release(tmp_path, "9.9.9"), ["versions", "notes"], lambda _: None)
    lines = [line.split() for line in table(outcomes, ["versions", "notes"]).splitlines()]
    assert lines[1] == ["versions", "0.0", "failed"]
    assert lines[2] == ["notes", "not", "begun"]
    assert "in place of 9.9.9" in outcomes[0].text


def test_the_chart_is_packaged_and_its_archive_renders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dist", str(tmp_path / "dist"), "--json", "notes", "chart"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in found["steps"]] == ["chart", "notes"], "in their order"
    assert [row["name"] for row in found["files"]] == [f"kproxy-{__version__}.tgz", "notes.md"]


def test_unknown_steps_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--dist", str(tmp_path / "dist"), "wheel"])
    assert "wheel: no such step; valid: versions, package" in capsys.readouterr().err


def test_a_tag_is_for_a_published_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = _release(tmp_path, __version__)
    monkeypatch.setattr(release_steps, "PUBLISHED", False)
    with pytest.raises(StepFailed, match="PUBLISHED is False"):
        STEPS["versions"](release)
    monkeypatch.setattr(release_steps, "PUBLISHED", True)
    assert STEPS["versions"](release).endswith(f"name {__version__}")


def test_the_workflow_publishes_what_was_rehearsed() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    [rehearsed] = [
        step["run"] for step in jobs["rehearsal"]["steps"] if "make " in step.get("run", "") and "ARGS" in step["run"]
    ]
    assert rehearsed.startswith("make release-rehearsal ")
    # No other job makes a file of the release, but the image for both architectures.
    makers = ("-m build", "helm package", "make ", "python")
    others = [step.get("run", "") for name, job in jobs.items() if name != "rehearsal" for step in job["steps"]]
    assert not [run for run in others if any(maker in run for maker in makers)]
    for name in ("package", "chart", "notes"):
        assert any("actions/download-artifact@" in step.get("uses", "") for step in jobs[name]["steps"])
