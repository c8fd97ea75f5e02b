"""Options that say where a running kproxy is found, for the commands that ask it something."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from kproxy.cli.output import json_flag, waiting, wide_flag
from kproxy.client import DEFAULT_SOCKET, ControlClient

_Answer = TypeVar("_Answer")
_Command = TypeVar("_Command", bound=Callable[..., Any])

WHERE: Final = """\b
Where kproxy is found:
  its Unix socket (control.socket), at --socket or /run/kproxy/control.sock
  its port (control.http), at --url or KPROXY_URL, with --token-file; https:// where it speaks TLS"""


class PatientClient(ControlClient):
    """A client that shows on a terminal that it waits."""

    def _ask(
        self, read: Callable[[Any], _Answer], method: str, target: str, body: Mapping[str, Any] | None = None
    ) -> _Answer:
        with waiting("Waiting for kproxy's answer"):
            return super()._ask(read, method, target, body)


def control_options(command: _Command) -> _Command:
    """The options that say where kproxy is, ``--json`` and ``--wide``."""
    for option in (
        json_flag,
        wide_flag,
        click.option("--token-file", metavar="FILE", envvar="KPROXY_CONTROL_TOKEN_FILE", help="Token for --url."),
        click.option(
            "--url",
            metavar="URL",
            envvar="KPROXY_URL",
            show_envvar=True,
            help="HOST:PORT or http://HOST:PORT of control.http, in place of the socket; status, clients and lanes "
            "also take that of http.",
        ),
        click.option(
            "--socket",
            "socket_path",
            metavar="PATH",
            envvar="KPROXY_CONTROL_SOCKET",
            default=DEFAULT_SOCKET,
            show_default=True,
            help="Unix socket of kproxy's control.socket.",
        ),
    ):
        command = option(command)
    return command


def control_client(socket_path: str, url: str | None, token_file: str | None) -> ControlClient:
    """Return the client of the kproxy that was named.

    :raises click.UsageError: the address or the token file cannot be used.
    """
    if url and "://" not in url:
        url = f"http://{url}"
    try:
        # The socket asks for no token, so that one in the environment is left unread.
        return PatientClient(socket_path, url=url, token_file=token_file if url else None)
    except OSError as error:
        raise click.UsageError(f"cannot read --token-file {token_file}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"--url {error}") from None
