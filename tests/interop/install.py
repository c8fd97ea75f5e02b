"""Installs what tests run, some at a time: clients, older brokers, Telegraf: ``python -m tests.interop.install``.

A test installs what it misses by itself, while all others of its file wait for the download.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from kproxy.testing.kafka import DEFAULT_VERSION
from kproxy.testing.maven import kafka_jars
from kproxy.testing.tools import Unavailable
from tests.interop.catalog import CLIENTS
from tests.interop.transactional import TRANSACTIONAL
from tests.support.kfake import install_kfake
from verification.agents.go_programs import Telegraf

_AT_A_TIME: Final = 4
_BROKERS: Final = (DEFAULT_VERSION, "4.3.0", "3.9.1", "2.8.2")


def _error_of(install: Callable[[], object]) -> str:
    try:
        install()
    except Unavailable as error:
        return str(error)
    return ""


def main() -> None:
    """Install all; ends with the errors of those that failed."""
    installs: list[Callable[[], object]] = [partial(kafka_jars, version) for version in _BROKERS]
    installs += [install_kfake, Telegraf.unpacked, *(client.install for client in (*CLIENTS, *TRANSACTIONAL))]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        errors = dict.fromkeys(filter(None, pool.map(_error_of, installs)))
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
