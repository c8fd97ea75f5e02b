"""Loads what ``kproxy run`` loads before it serves: certificates, rules, limits, credentials, the token, extras."""

from functools import partial
from typing import TYPE_CHECKING

import trio

from kproxy.config import Config, ConfigError, ExitCode, StartupError
from kproxy.control.listeners import open_token
from kproxy.control.logging import configure_logging
from kproxy.proxy.stats import Stats
from kproxy.resources import loaders

if TYPE_CHECKING:
    from collections.abc import Callable


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
    # The listeners of HTTP read the token.
    loads: list[Callable[[], object]] = [*loaders(config, Stats()).values(), partial(open_token, config)]
    for load in loads:
        try:
            load()
        except StartupError as error:
            found.append((str(error), error.exit_code))
        except ConfigError as error:
            found.append(("; ".join(error.problems), ExitCode.USAGE))
    return found
