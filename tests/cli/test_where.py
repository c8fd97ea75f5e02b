from pathlib import Path

import click
import pytest

from kproxy.cli.where import control_client, control_options


def test_the_options_of_every_command_that_asks_kproxy() -> None:
    command = click.command()(control_options(lambda **_: None))
    assert {option.name for option in command.params} == {"socket_path", "url", "token_file", "as_json", "wide"}


@pytest.mark.parametrize(
    ("url", "token", "said"), [("ftp://x", None, "must be http"), ("http://localhost:1", "none", "cannot read")]
)
def test_what_cannot_be_is_a_fault_of_usage(tmp_path: Path, url: str, token: str | None, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        control_client("/x", url, None if token is None else str(tmp_path / token))


def test_the_socket_asks_for_no_token(tmp_path: Path) -> None:
    control_client("/x", None, str(tmp_path / "not read"))


@pytest.mark.parametrize("url", ["127.0.0.1:19645", "http://127.0.0.1:19645"])
def test_an_address_needs_no_scheme(url: str) -> None:
    assert vars(control_client("/x", url, None))["_tcp"] == ("127.0.0.1", 19645)


def test_the_environment_may_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROXY_URL", "kproxy:1")
    seen: list[object] = []
    command = click.command()(control_options(lambda **given: seen.append(given["url"])))
    command.main([], standalone_mode=False)
    assert seen == ["kproxy:1"]
