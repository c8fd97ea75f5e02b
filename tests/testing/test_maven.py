"""Jars of Kafka: what is missing is named, what is cached is not fetched again."""

from pathlib import Path

import pytest

from kproxy.testing import maven
from kproxy.testing.cache import cache_directory
from kproxy.testing.tools import Unavailable


def _tool(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory that is the whole PATH, and an empty cache."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return directory


def test_old_java_is_refused(tools: Path) -> None:
    _tool(tools, "java", "echo 'openjdk version \"11.0.2\" 2019' >&2")
    with pytest.raises(Unavailable, match="needs Java 17"):
        maven.find_java()


def test_java_home_comes_first(tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _tool(tools, "java", "echo 'openjdk version \"11.0.2\" 2019' >&2")
    (tmp_path / "home" / "bin").mkdir(parents=True)
    _tool(tmp_path / "home" / "bin", "java", "echo 'openjdk version \"21\" 2023' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert maven.find_java() == str(tmp_path / "home" / "bin" / "java")


def test_missing_maven_says_what_to_install(tools: Path) -> None:
    _tool(tools, "java", "echo 'openjdk version \"17.0.1\"' >&2")
    with pytest.raises(Unavailable, match="install Maven"):
        maven.kafka_jars("4.3.0")


def test_a_failed_resolution_shows_mavens_words_and_leaves_no_cache(tools: Path) -> None:
    _tool(tools, "java", "echo 'openjdk version \"17.0.1\"' >&2")
    _tool(tools, "mvn", "echo no such artefact; exit 1")
    with pytest.raises(Unavailable, match="no such artefact"):
        maven.kafka_jars("4.3.0")
    assert not (cache_directory() / "kafka-4.3.0").exists()


def test_the_users_options_of_maven_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAVEN_OPTS", "-Xmx1g")
    options = maven.maven_environment()["MAVEN_OPTS"].split()
    assert options == [*maven.QUICK_JVM, "-Xmx1g"]


def test_cached_jars_need_no_maven(tools: Path) -> None:
    jars = cache_directory() / "kafka-4.3.0"
    jars.mkdir(parents=True)
    assert maven.kafka_jars("4.3.0") == jars


def test_a_version_is_a_version() -> None:
    with pytest.raises(Unavailable, match="not a Kafka release"):
        maven.kafka_jars("../4.3.0")
