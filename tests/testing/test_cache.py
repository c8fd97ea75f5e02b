"""The cache: filled once for just its inputs, whole or not there."""

from pathlib import Path

import pytest

from kproxy.testing.cache import cache_directory, filled_once, installed


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path / "cache"))


def test_the_directory_is_the_one_that_was_named(tmp_path: Path) -> None:
    assert cache_directory() == tmp_path / "cache"


def test_it_is_in_the_home_directory_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KPROXY_CACHE")
    assert cache_directory() == Path.home() / ".cache" / "kproxy"


def test_what_is_there_is_not_filled_again(tmp_path: Path) -> None:
    fills: list[Path] = []
    for _ in range(2):
        assert filled_once(tmp_path / "deep" / "target", fills.append) == tmp_path / "deep" / "target"
    assert len(fills) == 1


def test_a_failed_fill_leaves_nothing_but_its_lock(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        filled_once(tmp_path / "target", fail)
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["target.lock"]


def test_other_inputs_are_another_directory() -> None:
    directories = {
        installed("java", ["a"], lambda _: None),
        installed("java", ["b"], lambda _: None),
        installed("go", ["a"], lambda _: None),
        installed("java", ["a"], lambda _: None),
    }
    assert len(directories) == 3
    assert all(directory.is_dir() for directory in directories)
