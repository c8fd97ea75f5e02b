"""``kproxy credentials``: the file of users that clients log in by, without a kproxy that runs."""

import secrets
import sys
from pathlib import Path
from typing import Final

import click

from kproxy.cli.groups import help_group
from kproxy.cli.output import json_flag, print_json
from kproxy.config import ExitCode
from kproxy.net.client_login.credential_file import read_credentials, write_credentials
from kproxy.proxy.client_login.stored_credentials import (
    DECOY_BYTES,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    SALT_BYTES,
    SCRAM_HASHES,
    USUAL_ITERATIONS,
    Credentials,
    check_name,
    make_verifier,
)

_EXAMPLES = """\b
Examples:
  kproxy credentials add /etc/kproxy/credentials --user alice
  kproxy credentials add /etc/kproxy/credentials --user etl --password-file /run/secrets/etl
  pass show kafka/orders | kproxy credentials add /etc/kproxy/credentials --user orders
  kproxy credentials list /etc/kproxy/credentials
  kproxy credentials remove /etc/kproxy/credentials --user alice"""
_MOST_BYTES: Final = 65_536

_FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_USER = click.option("--user", required=True, metavar="NAME", help="Whose credentials; the principal is User:NAME.")


credentials = help_group(
    "credentials",
    "Add, remove and list users for sasl.credentials.location.\n\n"
    "The file holds no passwords, only what proves them (salt, iterations, keys). A kproxy that runs reads it again.",
    _EXAMPLES,
)


@credentials.command()
@_FILE
@_USER
@click.option("--password-file", metavar="FILE", help="Its first line is the password; - is standard input.")
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(sorted(SCRAM_HASHES), case_sensitive=False),
    help="Only for this one, and PLAIN; may be given again.  [default: all]",
)
@click.option(
    "--iterations",
    type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS),
    default=USUAL_ITERATIONS,
    show_default=True,
    help="How long it takes to try a password; clients have to compute as many.",
)
def add(file: Path, user: str, password_file: str | None, mechanisms: tuple[str, ...], iterations: int) -> int:
    """Add a user, or give it another password: asked for, or the first line of standard input or of a file."""
    _check_user(user)
    known = read_credentials(file) if file.exists() else Credentials(secrets.token_bytes(DECOY_BYTES), {})
    password = _password(password_file)
    made = {key: value for key, value in known.verifiers.items() if key[0] != user}
    for mechanism in mechanisms or sorted(SCRAM_HASHES):
        made[user, mechanism] = make_verifier(mechanism, password, secrets.token_bytes(SALT_BYTES), iterations)
    changed = any(name == user for name, _ in known.verifiers)
    write_credentials(file, Credentials(known.decoy, made))
    click.echo(f"{user}: {'changed' if changed else 'added'}")
    return ExitCode.OK


@credentials.command()
@_FILE
@_USER
def remove(file: Path, user: str) -> int:
    """Remove a user; connections that it has stay until they have to log in again."""
    known = read_credentials(file)
    left = {key: value for key, value in known.verifiers.items() if key[0] != user}
    if len(left) == len(known.verifiers):
        raise click.BadParameter(
            f"{user!r} is not in {file}; see 'kproxy credentials list {file}'", param_hint="--user"
        )
    write_credentials(file, Credentials(known.decoy, left))
    click.echo(f"{user}: removed")
    return ExitCode.OK


@credentials.command(name="list")
@_FILE
@json_flag
def list_(file: Path, as_json: bool) -> int:
    """List users with the mechanisms they can log in by."""
    known = read_credentials(file)
    users: dict[str, list[str]] = {}
    for name, mechanism in sorted(known.verifiers):
        users.setdefault(name, []).append(f"{mechanism} ({known.verifiers[name, mechanism].iterations} iterations)")
    if as_json:
        print_json({"users": [{"name": name, "mechanisms": made} for name, made in users.items()]})
        return ExitCode.OK
    for name, made in users.items():
        click.echo(f"{name}: {', '.join(made)}, PLAIN")
    return ExitCode.OK


def _check_user(user: str) -> None:
    try:
        check_name(user)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--user") from None


def _password(file: str | None) -> str:
    """Never from the command line, which every user of the host can read."""
    if file is None and sys.stdin.isatty():
        password = str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        password = _first_line(file)
    if not password:
        raise click.UsageError("the password is empty: type it, or give its first line on standard input or in a file")
    return password


def _first_line(file: str | None) -> str:
    try:
        if file in (None, "-"):
            data = sys.stdin.buffer.read(_MOST_BYTES)
        else:
            with Path(file or "").open("rb") as opened:
                data = opened.read(_MOST_BYTES)
        return data.partition(b"\n")[0].removesuffix(b"\r").decode()
    except OSError as error:
        raise click.BadParameter(f"{file}: {error.strerror or error}", param_hint="--password-file") from None
    except UnicodeDecodeError:
        raise click.BadParameter("the password is no UTF-8 text", param_hint="--password-file") from None
