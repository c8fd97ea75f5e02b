"""Which Java runs an agent."""

from pathlib import Path

import pytest

from kproxy.testing.tools import Unavailable
from verification.agents.java import find_newer_java


def _java(directory: Path, version: int) -> str:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}.0.1\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def test_another_java_is_taken_only_where_the_usual_one_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = _java(tmp_path / "usual", 17)
    newer = _java(tmp_path / "installed" / "b-25", 25)
    _java(tmp_path / "installed" / "a-11", 11)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "usual"))
    assert find_newer_java(17, tmp_path / "installed") == usual
    assert find_newer_java(21, tmp_path / "installed") == newer
    with pytest.raises(Unavailable, match="version 17: this needs Java 26 or later"):
        find_newer_java(26, tmp_path / "installed")
