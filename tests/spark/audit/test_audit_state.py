from pathlib import Path

import pytest

from kproxy.config import StartupError
from kproxy.spark.audit.audit_state import STATE, PartitionProgress, State, load_state, save_state, write_whole

SAVED = State("20261121T120000Z", (PartitionProgress("orders", 0, 100, 90), PartitionProgress("bills", 3, 0, 0)))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    save_state(tmp_path, State("former", ()))
    save_state(tmp_path, SAVED)
    assert load_state(tmp_path) == SAVED
    assert [path.name for path in tmp_path.iterdir()] == [STATE]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 2, "run": "a", "places": []}', '{"version": 1, "run": "a", "places": [{"topic": 1}]}'],
)
def test_a_state_that_cannot_be_read_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE).write_text(text)
    with pytest.raises(StartupError, match="--fresh starts again"):
        load_state(tmp_path)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_whole(path, b"old")

    def fail(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="no space"):
            write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
