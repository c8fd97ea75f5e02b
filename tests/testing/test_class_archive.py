"""The path of the archive of classes, and when Java gets it as an option."""

from pathlib import Path

import pytest

from kproxy.testing.class_archive import archive_in, archive_of, sharing, writing
from tests.support.clients import Command, run_driver


def java_of(home: Path, release: str | None) -> str:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    if release is not None:
        (home / "release").write_text(release)
    return str(java)


def test_each_build_of_java_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path / "cache"))
    javas = [java_of(tmp_path / str(number), text) for number, text in enumerate(("17.0.1", "17.0.2", None, None))]
    archives = {archive_of("kafka-1.2.3", java) for java in javas}
    assert len(archives) == 4
    assert {archive.parent.parent for archive in archives} == {tmp_path / "cache"}
    assert archive_of("kafka-1.2.4", javas[0]) not in archives
    assert archive_of("kafka-1.2.3", javas[0]) in archives
    assert len({archive_in(tmp_path, java) for java in javas}) == 4


def test_one_that_is_not_there_is_not_used(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    assert sharing(archive) == []
    archive.touch()
    assert sharing(archive)[0] == f"-XX:SharedArchiveFile={archive}"
    assert writing(archive)[0] == f"-XX:ArchiveClassesAtExit={archive}"


@pytest.mark.parametrize(("ending", "kept"), [(0, True), (1, False)])
def test_a_driver_leaves_a_whole_archive_or_none(tmp_path: Path, ending: int, kept: bool) -> None:
    java = tmp_path / "java"
    script = 'case "$1" in *=*) echo classes > "${1#*=}";; esac'
    java.write_text(f"#!/bin/sh\n{script}\nexit {ending}\n", encoding="utf-8")
    java.chmod(0o755)
    archive = tmp_path / "classes.jsa"
    command = Command((str(java), "-version"), archive=archive)
    run_driver(command, {"steps": []})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["java", *(["classes.jsa"] if kept else [])])
    if kept:
        archive.write_text("those of the first run")
        run_driver(command, {"steps": []})
        assert archive.read_text() == "those of the first run"
