"""``kproxy status``, ``clients`` and ``lanes``: the state of a running kproxy, read from its control API."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kproxy.cli.output import show
from kproxy.cli.status_report import print_clients, print_lanes, print_status
from kproxy.cli.where import PatientClient, control_client, control_options
from kproxy.client import DEFAULT_SOCKET, ControlClient, ControlUnreachable
from kproxy.config import load_one
from kproxy.errors import KproxyError

_Answer = TypeVar("_Answer")

WHERE: Final = """\b
Where kproxy is found:
  its Unix socket (control.socket), at --socket or /run/kproxy/control.sock
  else its status page (http), at 127.0.0.1:19644 or where KPROXY_HTTP says
  --url (or KPROXY_URL) takes the address of http, or that of control.http with --token-file"""


@click.command(epilog=WHERE)
@control_options
def status(as_json: bool, **where: Any) -> int:
    """Show what a running kproxy is doing, and its brokers."""
    found, brokers = ask(where, lambda client: (client.status(), client.brokers()))
    return show(found | {"brokers": brokers["brokers"]}, as_json, lambda _: print_status(found, brokers))


@click.command(epilog=WHERE)
@control_options
def clients(as_json: bool, **where: Any) -> int:
    """List the clients of a running kproxy, the busiest first."""
    return show(ask(where, ControlClient.clients), as_json, print_clients)


@click.command(epilog=WHERE)
@control_options
def lanes(as_json: bool, **where: Any) -> int:
    """List kproxy's producer ids and the clients that use them, waiting ones first."""
    return show(ask(where, ControlClient.lanes), as_json, print_lanes)


def ask(where: dict[str, Any], question: Callable[[ControlClient], _Answer]) -> _Answer:
    """The response of the control API, or of the status page where there is none. KproxyError if no kproxy responds."""
    page = _page_url()
    if where["url"] or where["socket_path"] != DEFAULT_SOCKET or Path(DEFAULT_SOCKET).exists() or page is None:
        return question(control_client(**where))
    try:
        return question(PatientClient(url=page))
    except ControlUnreachable:
        raise KproxyError(
            f"no kproxy answers, neither at {DEFAULT_SOCKET} nor at {page}: is it running? "
            "Say where with --url http://HOST:PORT of its http, or --socket PATH of its control.socket"
        ) from None


def _page_url() -> str | None:
    """The page of a kproxy with the same environment and file; None if it has none."""
    address = load_one("http", {}, os.environ)
    return None if address is None else f"http://{address.on_this_host}"
