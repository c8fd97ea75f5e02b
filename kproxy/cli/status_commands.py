"""``kproxy status``, ``clients`` and ``lanes``: what a kproxy that runs tells of itself."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kproxy.cli.where import control_client, control_options, print_json
from kproxy.client import DEFAULT_SOCKET, ControlClient, ControlUnreachable
from kproxy.config import Address, ExitCode, load_one
from kproxy.errors import KproxyError

_Answer = TypeVar("_Answer")

#: Where to ask a process that listens on every address of its host.
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}

_WHERE: Final = """\b
Where kproxy is found:
  its Unix socket (control.socket), at --socket or /run/kproxy/control.sock
  else its status page (http), at 127.0.0.1:19644 or where KPROXY_HTTP says
  --url (or KPROXY_URL) takes the address of http, or that of control.http with --token-file"""


@click.command(epilog=_WHERE)
@control_options
def status(as_json: bool, **where: Any) -> int:
    """Show what a running kproxy is doing, and its brokers."""
    from kproxy.cli.status_report import print_status

    found, brokers = _ask(where, lambda client: (client.status(), client.brokers()))
    if as_json:
        print_json(found | {"brokers": brokers["brokers"]})
    else:
        print_status(found, brokers)
    return ExitCode.OK


@click.command(epilog=_WHERE)
@control_options
def clients(as_json: bool, **where: Any) -> int:
    """List the clients of a running kproxy, the busiest first."""
    from kproxy.cli.status_report import print_clients

    found = _ask(where, lambda client: client.clients())
    if as_json:
        print_json(found)
    else:
        print_clients(found)
    return ExitCode.OK


@click.command(epilog=_WHERE)
@control_options
def lanes(as_json: bool, **where: Any) -> int:
    """List kproxy's producer ids and the clients that use them, waiting ones first."""
    from kproxy.cli.status_report import print_lanes

    found = _ask(where, lambda client: client.lanes())
    if as_json:
        print_json(found)
    else:
        print_lanes(found)
    return ExitCode.OK


def _ask(where: dict[str, Any], question: Callable[[ControlClient], _Answer]) -> _Answer:
    """The control API's answer, or that of the status page where there is none. KproxyError if no kproxy answers."""
    page = _page_url()
    if where["url"] or where["socket_path"] != DEFAULT_SOCKET or Path(DEFAULT_SOCKET).exists() or page is None:
        return question(control_client(**where))
    try:
        return question(ControlClient(url=page))
    except ControlUnreachable:
        raise KproxyError(
            f"no kproxy answers, neither at {DEFAULT_SOCKET} nor at {page}: is it running? "
            "Say where with --url http://HOST:PORT of its http, or --socket PATH of its control.socket"
        ) from None


def _page_url() -> str | None:
    """Of a kproxy with the same environment and file; None if it has no page."""
    address = load_one("http", {}, os.environ)
    if address is None:
        return None
    return f"http://{Address(_LOOPBACK.get(address.host, address.host), address.port)}"
