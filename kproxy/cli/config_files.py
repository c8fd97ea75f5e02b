"""Loads what ``kproxy run`` loads before it serves: certificates, rules, limits, credentials, the token, extras."""

from collections.abc import Callable, Iterator

import trio

from kproxy.config import Config, ConfigError, ExitCode, StartupError
from kproxy.control.logging import configure_logging
from kproxy.control.token_file import read_token
from kproxy.net.authorization import open_authorization
from kproxy.net.broker_sasl.sasl_networks import open_networks
from kproxy.net.client_login.login_worker import open_desk
from kproxy.net.quotas import open_quotas
from kproxy.proxy.stats import Stats
from kproxy.tracing.opening import open_tracing


def load_files(config: Config) -> None:
    """Return if ``kproxy run`` could use every file and package that the options name.

    :raises StartupError: names all that it could not use, with the exit code of ``kproxy run``.
    """
    configure_logging("warning", "console")
    errors = trio.run(_errors, config)
    if errors:
        # Each file has one error, and kproxy run ends with the first.
        raise StartupError("; ".join(text for text, _ in errors), errors[0][1])


async def _errors(config: Config) -> list[tuple[str, int]]:
    found = []
    for load in _loaders(config, Stats()):
        try:
            load()
        except StartupError as error:
            found.append((str(error), error.exit_code))
        except ConfigError as error:
            found.append(("; ".join(error.problems), ExitCode.USAGE))
    return found


def _loaders(config: Config, stats: Stats) -> Iterator[Callable[[], object]]:
    """In the order of ``kproxy run``."""
    yield lambda: open_networks(config, stats)
    yield lambda: open_tracing(config, stats)
    yield lambda: open_authorization(config, stats)
    yield lambda: open_quotas(config, stats)
    yield lambda: open_desk(config)
    token = config.control_token_file
    if token is not None and not (config.http is None and config.control_http is None):
        yield lambda: read_token(token)
