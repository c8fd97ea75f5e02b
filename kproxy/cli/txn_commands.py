"""``kproxy txn``: transactions by hand, through the control API of a kproxy that runs."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kproxy.client import DEFAULT_SOCKET, DEFAULT_TIMEOUT_MS, ControlClient
from kproxy.config import ExitCode, load
from kproxy.config.sources import CONFIG_FILE
from kproxy.txn.described import Described, described_json, listed_json

_Command = TypeVar("_Command", bound=Callable[..., Any])

_WHERE = """\b
Where kproxy is found:
  its Unix socket (control.socket), at --socket or /run/kproxy/control.sock
  its loopback port (control.http), at --url and with --token-file"""

_EXAMPLES = """\b
Examples:
  kproxy txn begin --client-id loader --timeout-ms 300000
  kproxy txn commit kproxy-loader
  kproxy txn abort kproxy-loader
  kproxy txn list --state Ongoing
  kproxy txn describe kproxy-loader --json
  kproxy txn list --url http://127.0.0.1:19645 --token-file /etc/kproxy/token
  kproxy txn log --bootstrap-servers kafka:9092 --transactional-id kproxy-loader"""


@click.group(name="txn", invoke_without_command=True, epilog=f"{_EXAMPLES}\n\n{_WHERE}")
@click.pass_context
def txn(ctx: click.Context) -> None:
    """Begin, decide and look at transactions; print their log."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _control(command: _Command) -> _Command:
    """The options that say where kproxy is, and ``--json``."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--token-file", metavar="FILE", envvar="KPROXY_CONTROL_TOKEN_FILE", help="Token for --url."),
        click.option("--url", metavar="URL", help="http://HOST:PORT of control.http, in place of the socket."),
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


def _client(socket_path: str, url: str | None, token_file: str | None) -> ControlClient:
    try:
        # The socket asks for no token, so that one in the environment is left unread.
        return ControlClient(socket_path, url=url, token_file=token_file if url else None)
    except OSError as error:
        raise click.UsageError(f"cannot read --token-file {token_file}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"--url {error}") from None


def _tell(found: Described, as_json: bool) -> int:
    from kproxy.cli.txn_report import print_described

    if as_json:
        _print_json(described_json(found))
    else:
        print_described(found)
    return ExitCode.OK


def _print_json(value: object) -> None:
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


_members = click.option(
    "--member", "members", metavar="NAME", multiple=True, help="A member to decide with; may be repeated."
)


@txn.command()
@click.option("--client-id", metavar="NAME", help="client.id of the producer whose records belong to the transaction.")
@click.option("--transactional-id", metavar="ID", help='[default: "kproxy-" and the client.id]')
@click.option(
    "--timeout-ms",
    type=click.IntRange(1, (1 << 31) - 1),
    default=DEFAULT_TIMEOUT_MS,
    show_default=True,
    help="After so long without a decision it is aborted.",
)
@_control
def begin(client_id: str | None, transactional_id: str | None, timeout_ms: int, as_json: bool, **where: Any) -> int:
    """Begin a transaction for all that a client writes."""
    if client_id is None and transactional_id is None:
        raise click.UsageError("give --client-id, --transactional-id or both")
    found = _client(**where).begin(client_id=client_id, transactional_id=transactional_id, timeout_ms=timeout_ms)
    return _tell(found, as_json)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@click.option("--batch-id", metavar="NAME", help="Makes the commit safe to repeat: it counts once.")
@_members
@_control
def commit(transactional_id: str, batch_id: str | None, members: tuple[str, ...], as_json: bool, **where: Any) -> int:
    """Commit: all is seen from now on."""
    return _tell(_client(**where).commit(transactional_id, batch_id=batch_id, members=members), as_json)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@_members
@_control
def abort(transactional_id: str, members: tuple[str, ...], as_json: bool, **where: Any) -> int:
    """Abort: nothing of it will ever be seen."""
    return _tell(_client(**where).abort(transactional_id, members=members), as_json)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@_control
def prepare(transactional_id: str, as_json: bool, **where: Any) -> int:
    """Make it durable: it waits for a commit or an abort, however long."""
    return _tell(_client(**where).prepare(transactional_id), as_json)


@txn.command()
@click.argument("transactional_id", metavar="ID")
@_control
def describe(transactional_id: str, as_json: bool, **where: Any) -> int:
    """Show one transactional id and its transaction."""
    return _tell(_client(**where).describe(transactional_id), as_json)


@txn.command(name="list")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Only those in this state; may be repeated.")
@_control
def list_ids(states: tuple[str, ...], as_json: bool, **where: Any) -> int:
    """List all transactional ids."""
    from kproxy.cli.txn_report import print_list

    rows = _client(**where).list(states)
    if as_json:
        _print_json([listed_json(row) for row in rows])
    else:
        print_list(rows)
    return ExitCode.OK


@txn.command()
@click.option(
    "--bootstrap-servers", metavar="LIST", help="Brokers that have it. [environment: KPROXY_BOOTSTRAP_SERVERS]"
)
@click.option("--config", metavar="FILE", help="kproxy's own, for its bootstrap.servers. [environment: KPROXY_CONFIG]")
@click.option("--transactional-id", metavar="ID", help="Only what concerns this id.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition of the log.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each record.")
def log(
    bootstrap_servers: str | None,
    config: str | None,
    transactional_id: str | None,
    partition: int | None,
    follow: bool,
    as_json: bool,
) -> int:
    """Print the transaction log, from the brokers themselves."""
    from kproxy.cli.txn_log import Wanted, print_log

    given = {"bootstrap.servers": bootstrap_servers, CONFIG_FILE: config}
    loaded = load({name: value for name, value in given.items() if value is not None}, dict(os.environ))
    return print_log(loaded, Wanted(transactional_id, partition), follow=follow, as_json=as_json)
