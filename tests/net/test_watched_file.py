from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.config import ConfigError, StartupError
from kproxy.net.watched_file import WatchedFile


def read(path: Path) -> str:
    text = path.read_text()
    if text.startswith("bad"):
        raise ConfigError([f"{path}:1: is bad"])
    return text


async def test_new_content_is_handed_on_without_being_asked_for(tmp_path: Path) -> None:
    file = trio.Path(tmp_path / "file")
    await file.write_text("one")
    watched = WatchedFile(tmp_path / "file", read, "some.file")
    assert watched.content == "one"
    seen: list[str] = []
    came = trio.Event()

    def use(content: str) -> None:
        seen.append(content)
        came.set()

    async with trio.open_nursery() as nursery:
        watched.use = use
        nursery.start_soon(watched.watch)
        await file.write_text("second")
        with trio.fail_after(120):
            await came.wait()
        nursery.cancel_scope.cancel()
    assert (seen, watched.content) == (["second"], "second")


async def test_what_cannot_be_used_is_reported_once_and_changes_nothing(tmp_path: Path) -> None:
    file = trio.Path(tmp_path / "file")
    await file.write_text("one")
    watched = WatchedFile(tmp_path / "file", read, "some.file")
    seen: list[str] = []
    watched.use = seen.append
    with capture_logs() as lines:
        await file.write_text("bad content")
        assert not await watched.reload()
        assert not await watched.reload()
        await file.write_text("good again")
        assert await watched.reload()
    assert [(line["log_level"], line["option"]) for line in lines] == [("error", "some.file"), ("info", "some.file")]
    assert lines[0]["problems"] == [f"{file}:1: is bad"]
    assert seen == ["good again"]


def test_at_the_start_it_must_be_right(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("bad")
    with pytest.raises(StartupError, match="is bad"):
        WatchedFile(tmp_path / "file", read, "some.file")
