from pathlib import Path

import pytest

from kproxy.config import show
from kproxy.config.secrets import SECRET, SecretLocation
from kproxy.config.sources import ConfigError, load


def test_the_first_line_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes("geheim ä \r\nmore".encode())
    location = SECRET.parse(str(path))
    assert location is not None
    assert location.read() == "geheim ä "
    assert show(location) == str(path)


def test_a_variable_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "geheim")
    location = SECRET.parse("env:BROKER_PASSWORD")
    assert location == SecretLocation(variable="BROKER_PASSWORD")
    assert location.read() == "geheim"
    assert show(location) == "env:BROKER_PASSWORD"


@pytest.mark.parametrize("raw", ["", "off", "none"])
def test_none(raw: str) -> None:
    assert SECRET.parse(raw) is None


@pytest.mark.parametrize("raw", ["geheim", "env:", "env:1", "./password", "/a\0b", ["/a"], {"a": "b"}])
def test_what_is_no_place(raw: str) -> None:
    with pytest.raises(ValueError, match=r"never the secret itself|a single value"):
        SECRET.parse(raw)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), (b"", "its first line is empty"), (b"\xff", "it is no UTF-8 text")],
)
def test_what_is_unavailable(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OSError, match=f"password: {why}"):
        SecretLocation(path=path).read()


def test_a_variable_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BROKER_PASSWORD", raising=False)
    with pytest.raises(OSError, match="env:BROKER_PASSWORD: there is no such variable"):
        SecretLocation(variable="BROKER_PASSWORD").read()


def test_a_secret_in_the_wrong_place_is_not_shown() -> None:
    with pytest.raises(ConfigError) as told:
        load({"bootstrap.servers": "a:1", "upstream.sasl.password.location": "geheim"}, {})
    assert "geheim" not in str(told.value)
