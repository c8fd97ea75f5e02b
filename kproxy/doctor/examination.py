"""From the configuration to the findings: a network, what a running kproxy says, the checks."""

from collections.abc import Mapping
from typing import Any, Final

import trio

from kproxy.client import ControlClient, ControlError, ControlUnreachable
from kproxy.config import Config
from kproxy.doctor.checks import CheckResult, look
from kproxy.doctor.gather import gather
from kproxy.net.broker_sasl.sasl_networks import open_networks
from kproxy.proxy.stats import Stats

_PATIENCE_SECONDS: Final = 5.0


def examine(config: Config) -> list[CheckResult]:
    """All findings. StartupError if a file of TLS or of a login is bad."""
    running = _running(config)
    return trio.run(_examine, config, running)


async def _examine(config: Config, running: Mapping[str, Any] | None) -> list[CheckResult]:
    examined = await gather(config, open_networks(config, Stats()).own)
    examined.running = running
    return look(examined)


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
