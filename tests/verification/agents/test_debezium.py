"""Debezium Server's distribution, and the database that it follows; the program itself does not run here."""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.testing.tools import Unavailable
from verification.agents.debezium import Debezium
from verification.agents.postgres import PostgreSQL


def _archive(path: Path, *names: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"debezium-server/{name}"), io.BytesIO())


def test_only_the_parts_of_the_distribution_that_are_needed_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _archive(tmp_path / "x.tar.gz", "debezium-server-dist-9-runner.jar", "lib/a.jar", "lib_opt/b.jar", "run.sh")
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(f'#!/bin/sh\nfor word; do place="${{word#*=}}"; done\ncp {tmp_path}/x.tar.gz "$place"\n')
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path / "cache"))
    root = Debezium.unpacked().root
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert files == {"debezium-server/debezium-server-dist-9-runner.jar", "debezium-server/lib/a.jar"}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[PostgreSQL]:
    with PostgreSQL(tmp_path / "database") as running:
        yield running


def test_the_database_lets_its_changes_be_followed(database: PostgreSQL) -> None:
    assert database.execute("SHOW wal_level") == "logical"
    assert database.execute("CREATE TABLE lines (line text)") == ""
    assert database.execute("INSERT INTO lines VALUES ('line-1'), ('line-2')") == ""
    assert database.execute("SELECT line FROM lines") == "line-1\nline-2"
    with pytest.raises(ValueError, match='relation "nothing" does not exist'):
        database.execute("SELECT * FROM nothing")


def test_a_database_that_does_not_start_says_why(tmp_path: Path) -> None:
    with PostgreSQL(tmp_path / "one") as one:
        other = PostgreSQL(tmp_path / "other")
        other.port = one.port
        with pytest.raises(Unavailable, match="could not bind"), other:
            pass
