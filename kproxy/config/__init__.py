"""Configuration: one table of options, three sources (file, environment, flags), one frozen result.

``Config`` may also be built directly, ``Config(bootstrap_servers=(Address("localhost", 9092),))``; every other field
then has its default. ``load`` checks what people wrote and reports everything that is wrong with it at once.

Our own parser, because every fault is reported with the flag, variable or file that it comes from, and all of them at
once; libraries for settings validate the merged values.
"""

from kproxy.config.exits import EXIT_CODES, ExitCode, StartupError, cannot_listen, startup_error
from kproxy.config.model import Config
from kproxy.config.options import Change, Option, options
from kproxy.config.reload import Changed, Reload, merge
from kproxy.config.sources import ConfigError, Loaded, load, load_one, load_with_sources
from kproxy.config.values import DeliverRule, show
from kproxy.proxy.routing import Address

__all__ = [
    "EXIT_CODES",
    "Address",
    "Change",
    "Changed",
    "Config",
    "ConfigError",
    "DeliverRule",
    "ExitCode",
    "Loaded",
    "Option",
    "Reload",
    "StartupError",
    "cannot_listen",
    "load",
    "load_one",
    "load_with_sources",
    "merge",
    "options",
    "show",
    "startup_error",
]
