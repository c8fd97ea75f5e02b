from pathlib import Path

import click
import pytest

from kproxy.cli.where import control_client, control_options


def test_the_options_of_every_command_that_asks_kproxy() -> None:
    command = click.command()(control_options(lambda **_: None))
    assert {option.name for option in command.params} == {"socket_path", "url", "token_file", "as_json"}


@pytest.mark.parametrize(
    ("url", "token", "said"), [("ftp://x", None, "must be http"), ("http://localhost:1", "none", "cannot read")]
)
def test_what_cannot_be_is_a_fault_of_usage(tmp_path: Path, url: str, token: str | None, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        control_client("/x", url, None if token is None else str(tmp_path / token))


def test_the_socket_asks_for_no_token(tmp_path: Path) -> None:
    control_client("/x", None, str(tmp_path / "not read"))
