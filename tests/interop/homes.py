"""Where the transactions of a test are decided: by Kafka alone, to show that the drivers are right, or by kproxy."""

import os
from dataclasses import dataclass
from typing import Final

from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess
from tests.interop.transactional import READERS, TRANSACTIONAL, Reader, Transactional

_DIRECT: Final = os.environ.get("KPROXY_INTEROP") == "direct"
HOMES: Final = ("native", "kproxy") if os.environ.get("INTEROP_HOMES") == "kproxy" else ("native",)
_FEW: Final = ("java-4.3.0", "sarama-1.61.1")
OVERRIDES: Final = "kafka-python-1.*=read_committed,kafka-python-2.*=read_committed"
"""What kproxy is told of consumers that could ask for committed records, but do not know how."""


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
