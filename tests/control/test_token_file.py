from pathlib import Path

import pytest

from kproxy.config import StartupError
from kproxy.control.token_file import read_token

TOKEN = b"correct-horse-battery"


def test_a_token_may_end_with_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(TOKEN + b"\n")
    assert read_token(path) == TOKEN


@pytest.mark.parametrize("content", [b"", b"\n", b"short", b"x" * 1025, b"two words are not one token", b"\xff" * 20])
def test_what_is_no_token_ends_the_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(StartupError, match="must hold 16 to 1024 printable characters"):
        read_token(path)


def test_a_token_file_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot read control.token.file"):
        read_token(tmp_path / "none")
