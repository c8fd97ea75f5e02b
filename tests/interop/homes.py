"""Where the transactions of a test are decided: by Kafka alone, to show that the drivers are right, or by kproxy."""

import os
from dataclasses import dataclass
from typing import Final

from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess
from tests.interop.transactional import READERS, TRANSACTIONAL, Reader, Transactional

_WANTED: Final = os.environ.get("KPROXY_INTEROP")
_DIRECT: Final = _WANTED == "direct"
HOMES: Final = ("native", "kproxy") if _WANTED == "kproxy" else ("native",)
_FEW: Final = ("java-4.3.0", "sarama-1.61.1")


@dataclass(frozen=True)
class Home:
    """Who decides the transactions, and where clients connect to."""

    name: str
    bootstrap: str
    kafka: RealKafka
    kproxy: KproxyProcess | None


def clients_of(home: str) -> list[Transactional]:
    """Return the clients that run here: against Kafka alone only two, but all with `KPROXY_INTEROP=direct`."""
    return [client for client in TRANSACTIONAL if home == "kproxy" or _DIRECT or client.name in _FEW]


def readers_of(home: str) -> list[Reader]:
    """Return the consumers that run here: without kproxy only those that hide something by themselves."""
    if home == "kproxy":
        return list(READERS)
    return [reader for reader in READERS if reader.native and (_DIRECT or reader.name in _FEW)]
