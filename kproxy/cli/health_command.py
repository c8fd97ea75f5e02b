"""``kproxy health``: asks the kproxy of this host how it is, for container engines: they know only exit codes."""

import json
import os
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Final, NamedTuple

import click

from kproxy.config import Address, ConfigError, ExitCode, load_one

_HTTP: Final = "http"
_LONGEST_ANSWER: Final = 65_536


class _Answer(NamedTuple):
    status: int
    body: bytes


@click.command()
@click.option("--ready", is_flag=True, help="Check whether clients are served, not only whether the process is alive.")
@click.option("--http", metavar="HOST:PORT", help="Where to ask. [default: as kproxy run: file, environment, 19644]")
@click.option("--config", metavar="FILE", help="The file of kproxy run. [environment: KPROXY_CONFIG]")
@click.option(
    "--timeout-ms",
    default=2000,
    show_default=True,
    type=click.IntRange(1, 600_000),
    help="How long to wait for an answer.",
)
def health(ready: bool, http: str | None, config: str | None, timeout_ms: int) -> int:
    """Check the health of the kproxy on this host: exit code 0 if it is healthy, 1 if not.

    It needs no shell and no other program, so that an image's health check can call it.
    """
    flags = {name: text for name, text in ((_HTTP, http), ("config", config)) if text is not None}
    address = load_one(_HTTP, flags, os.environ)
    if address is None:
        raise ConfigError(["http is off, so that nobody can be asked: give --http HOST:PORT of a kproxy with http"])
    answer = _ask(address, "/readyz" if ready else "/healthz", timeout_ms / 1000)
    if answer.status != HTTPStatus.OK:
        raise click.ClickException(f"{address} is not {_asked(ready)}: {_reasons(answer)}")
    click.echo(f"kproxy at {address} is {_asked(ready)}")
    return ExitCode.OK


def _asked(ready: bool) -> str:
    return "ready" if ready else "alive"


def _ask(address: Address, path: str, timeout: float) -> _Answer:
    """One GET, ``timeout`` in seconds. click.ClickException if there is no response, or one that is not HTTP."""
    connection = HTTPConnection(*address.on_this_host, timeout=timeout)
    try:
        connection.request("GET", path)
        response: HTTPResponse = connection.getresponse()
        return _Answer(response.status, response.read(_LONGEST_ANSWER))
    except TimeoutError:
        raise click.ClickException(f"{address} has not answered within {timeout:g} s") from None
    except OSError as error:
        raise click.ClickException(f"cannot reach {address}: {error.strerror or error}") from None
    except HTTPException:
        raise click.ClickException(f"{address} does not speak HTTP: is it another program?") from None
    finally:
        connection.close()


def _reasons(answer: _Answer) -> str:
    """The reasons in the response of /readyz; without them the HTTP status."""
    try:
        reasons = json.loads(answer.body)["reasons"]
        return ", ".join(map(str, reasons))
    except (ValueError, TypeError, KeyError):
        return f"HTTP {answer.status}"
