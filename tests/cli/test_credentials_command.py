import io
import json
import sys
from pathlib import Path

import pytest

from kproxy.cli import main
from kproxy.net.client_login.credential_file import read_credentials

ADD = ["credentials", "add"]


class Input(io.TextIOWrapper):
    """Standard input that is no terminal."""


def given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", Input(io.BytesIO(data)))


def test_a_user_is_added_changed_listed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "users"
    given(monkeypatch, b"s3cret\r\nmore\n")
    assert main([*ADD, str(file), "--user", "alice"]) == 0
    decoy = read_credentials(file).decoy
    assert all(made.is_of("s3cret") for made in read_credentials(file).verifiers.values())
    (tmp_path / "password").write_text("other\n")
    more = ["--password-file", str(tmp_path / "password"), "--mechanism", "scram-sha-256", "--iterations", "5000"]
    assert main([*ADD, str(file), "--user", "alice", *more]) == 0
    assert main(["credentials", "list", str(file)]) == 0
    out = capsys.readouterr().out
    assert out == "alice: added\nalice: changed\nalice: SCRAM-SHA-256 (5000 iterations), PLAIN\n"
    assert read_credentials(file).decoy == decoy
    assert main(["credentials", "list", str(file), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed == {"users": [{"name": "alice", "mechanisms": ["SCRAM-SHA-256 (5000 iterations)"]}]}
    assert main(["credentials", "remove", str(file), "--user", "alice"]) == 0
    assert not read_credentials(file).verifiers
    assert "s3cret" not in file.read_text() + out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "FILE", "--user", "alice"], "the password is empty"),
        (["add", "FILE", "--user", "a\nb"], "a user's name must be printable"),
        (["add", "FILE", "--user", "alice", "--password-file", "/none"], "/none: No such file"),
        (["add", "FILE", "--user", "alice", "--iterations", "1"], "4096<=x<=1000000"),
        (["add", "/none/x", "--user", "alice", "--password-file", "PASSWORD"], "/none/x: No such file"),
        (["add", "BROKEN", "--user", "alice"], "line 1 must be MECHANISM$ITERATIONS"),
        (["list", "FILE"], "No such file"),
        (["remove", "EMPTY", "--user", "bob"], "'bob' is not in"),
        (["add", "FILE"], "Missing option '--user'"),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "BROKEN").write_text("alice:secret\n")
    (tmp_path / "EMPTY").write_text("decoy " + "A" * 43 + "=\n")
    (tmp_path / "PASSWORD").write_text("x\n")
    given(monkeypatch, b"")
    places = [str(tmp_path / word) if word.isupper() else word for word in arguments]
    assert main(["credentials", *places]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert said in first
    assert "secret" not in first


def test_help_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["credentials"]) == 0
    assert "holds no passwords" in " ".join(capsys.readouterr().out.split())


def test_a_password_that_is_no_text_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, b"\xff\n")
    assert main([*ADD, str(tmp_path / "users"), "--user", "alice"]) == 2
    assert "the password is no UTF-8 text" in capsys.readouterr().err
