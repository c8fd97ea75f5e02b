"""Where the transactions of a test are decided: by Kafka alone, to show that the drivers are right, or through kproxy.

With `INTEROP_HOMES=all` all clients run in all homes, with `KPROXY_INTEROP=direct` all of them without kproxy.
"""

import os
from dataclasses import dataclass
from typing import Final

from kproxy.testing.kafka import DEFAULT_VERSION, RealKafka
from tests.interop.proxy import KproxyProcess
from tests.interop.request_versions import RequestVersions
from tests.interop.transactional import READERS, TRANSACTIONAL, Reader, Transactional

_DIRECT: Final = os.environ.get("KPROXY_INTEROP") == "direct"
_ALL: Final = _DIRECT or os.environ.get("INTEROP_HOMES") == "all"
HOMES: Final = (
    ("native",) if _DIRECT else ("native", "auto", "auto-on-4.3.0", "broker-fenced", "kproxy", "kproxy-on-3.9.1")
)
_FEW: Final = {
    "native": ("java-4.4.0", "sarama-1.61.1"),
    "auto": ("java-0.11.0.3", "librdkafka-2.16.1", "franz-go-1.22.2"),
    "auto-on-4.3.0": ("java-4.4.0",),
    "broker-fenced": (
        "java-0.11.0.3",
        "java-4.4.0",
        "librdkafka-2.16.1",
        "kafka-python-3.0.12",
        "aiokafka-0.14.0",
        "sarama-1.61.1",
        "franz-go-1.22.2",
    ),
    "kproxy-on-3.9.1": ("java-4.4.0", "franz-go-1.22.2"),
}
"""Who runs where not all do. Kafka 3.9.1 has no `transaction.version`, so that these two speak as they did before.
Kafka 4.3.0 has no TxnOffsetCommit that names topics by id, which Java 4.4.0 uses where it can."""
_NEVER: Final = {"kproxy-on-3.9.1": ("java-4.4.0-consumer-protocol",)}
"""Kafka 3.9.1 has no groups of KIP-848, if it is not told to."""
OF_BROKERS: Final = ("native", "auto", "auto-on-4.3.0", "broker-fenced")
"""Homes where the broker decides, so that what lies in its log is as without kproxy."""
RECORDED: Final = ("broker-fenced", "kproxy", "kproxy-on-3.9.1")
"""Homes whose clients' requests are recorded: where the broker decides, where kproxy does, and on the old Kafka."""
OVERRIDES: Final = "kafka-python-1.*=read_committed,kafka-python-2.*=read_committed"
"""kproxy's option for consumers that could ask for committed records, but do not know how."""


def rule_and_release(home: str) -> tuple[str, str]:
    """Return kproxy's `transactions.home` and the release of Kafka."""
    rule, _, release = home.partition("-on-")
    return rule, release or DEFAULT_VERSION


@dataclass(frozen=True)
class Home:
    """Who decides the transactions, and where clients connect to."""

    name: str
    bootstrap: str
    kafka: RealKafka
    kproxy: KproxyProcess | None
    requests: RequestVersions | None = None
    """What clients have sent, in the homes of which that is recorded."""


def in_each_run(home: str, client: str) -> bool:
    """Whether this producer runs here even if not all are asked for."""
    few = _FEW.get(home, ())
    return not few or client in few


def can_run(home: str, client: str) -> bool:
    """Whether this producer runs here at all."""
    return client not in _NEVER.get(home, ())


def clients_of(home: str) -> list[Transactional]:
    """Return the producers that run here: all in kproxy's own home, in the others some if not all are asked for."""
    return [one for one in TRANSACTIONAL if can_run(home, one.name) and (_ALL or in_each_run(home, one.name))]


def readers_of(home: str) -> list[Reader]:
    """Return the consumers that run here: without kproxy only those that hide something by themselves."""
    if home in OF_BROKERS and home != "native":
        return []  # what is in the log is as in native
    names = {client.name for client in clients_of(home)}
    if home == "kproxy":
        return list(READERS)
    return [reader for reader in READERS if reader.name in names and (home != "native" or reader.native)]
