"""All checks, in the order of the report, and the way from the configuration to their findings."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import trio

from kproxy.client import ControlClient, ControlError, ControlUnreachable
from kproxy.config import Config
from kproxy.doctor import brokers, option_checks, rights, topic_checks
from kproxy.doctor.examined import Examined
from kproxy.doctor.findings import Finding, Level
from kproxy.doctor.gather import gather
from kproxy.net.broker_sasl.sasl_networks import open_networks
from kproxy.proxy.stats import Stats

_PATIENCE_SECONDS: Final = 5.0


class Check(NamedTuple):
    """What is checked, and the function that checks it."""

    name: str
    look: Callable[[Examined], Iterator[Finding]]


class CheckResult(NamedTuple):
    """A finding and the check that made it."""

    check: str
    finding: Finding


CHECKS: Final = (
    Check("running kproxy", option_checks.running),
    Check("transaction log", option_checks.transaction_log),
    Check("bootstrap servers", brokers.bootstrap),
    Check("advertised addresses", brokers.advertised),
    Check("releases", brokers.releases),
    Check("transaction.version", brokers.transactions),
    Check("clock", brokers.clock),
    Check("right to markers", rights.markers),
    Check("right to producer ids", rights.producer_ids),
    Check("rights on own topics", rights.own_topics),
    Check("right to read", rights.reading),
    Check("own topics", topic_checks.own_topics),
    Check("replication", topic_checks.replication),
    Check("time-outs", option_checks.times),
    Check("producer id expiration", option_checks.expiration),
    Check("transaction time-outs", option_checks.transaction_timeouts),
    Check("batch sizes", topic_checks.message_sizes),
    Check("other sizes", option_checks.sizes),
    Check("open files", option_checks.open_files),
)


def look(examined: Examined) -> list[CheckResult]:
    """All findings; each check has at least one."""
    return [CheckResult(check.name, finding) for check in CHECKS for finding in check.look(examined)]


def worst(results: list[CheckResult]) -> Level:
    """FAIL, WARN or OK: what could not be found out counts as nothing."""
    levels = {row.finding.level for row in results}
    return next((level for level in (Level.FAIL, Level.WARN) if level in levels), Level.OK)


def examine(config: Config) -> Examined:
    """All that brokers and a running kproxy say. StartupError if a file of TLS or of a login is bad."""
    running = _running(config)
    examined = trio.run(_examine, config)
    examined.running = running
    return examined


async def _examine(config: Config) -> Examined:
    return await gather(config, open_networks(config, Stats()).own)


def _running(config: Config) -> Mapping[str, Any] | None:
    """What a kproxy with these options says of itself; None if none answers."""
    clients = []
    if config.control_socket is not None:
        clients.append(ControlClient(config.control_socket, timeout=_PATIENCE_SECONDS))
    if config.http is not None:
        clients.append(ControlClient(url=f"http://{config.http.on_this_host}", timeout=_PATIENCE_SECONDS))
    for client in clients:
        try:
            return client.status()
        except (ControlUnreachable, ControlError):
            continue
    return None
