"""What others publish and a build runs is named by its content: an action by commit, a base image by digest."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
DOCKERFILES = sorted(ROOT.glob("deploy/**/Dockerfile"))


def test_actions_are_pinned_by_commit() -> None:
    used = [line for path in WORKFLOWS for line in path.read_text().splitlines() if re.search(r"\buses:", line)]
    assert len(used) > 15
    # The version beside it is for readers, and for Dependabot, which renews both.
    pinned = re.compile(r" uses: [\w-]+/[\w/-]+@[0-9a-f]{40}  # v\d+(\.\d+)*$")
    assert [line for line in used if not pinned.search(line)] == []


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_base_images_are_pinned_by_digest(path: Path) -> None:
    lines = path.read_text().splitlines()
    base = [line.removeprefix("ARG BASE=") for line in lines if line.startswith("ARG BASE=")]
    stages = {"${BASE}"} | {line.partition(" AS ")[2] for line in lines if line.startswith("FROM ")}
    images = [name for line in lines if line.startswith("FROM ") and (name := line.split()[1]) not in stages] + base
    assert len(images) == 1
    assert re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", images[0])
