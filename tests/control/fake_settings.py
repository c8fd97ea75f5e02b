"""A configuration that is read again from a dictionary, and the routes that show it."""

import io
from collections.abc import Mapping, Sequence

from starlette.routing import Route

from kproxy.config import Loaded, load_with_sources
from kproxy.control.config_api import config_routes
from kproxy.control.logging import Logs
from kproxy.control.settings import Settings

FLAGS = {"bootstrap.servers": "kafka:9092", "log.format": "json"}


def make_settings(given: Mapping[str, str]) -> Settings:
    """``given``, by dotted name, may be changed afterwards."""

    def read() -> Loaded:
        return load_with_sources({**FLAGS, **given}, {})

    return Settings(read(), read)


def settings_routes() -> Sequence[Route]:
    """Of a kproxy with the defaults, whose log goes nowhere."""
    settings = make_settings({})
    return config_routes(settings, Logs(settings.config, io.StringIO()))
