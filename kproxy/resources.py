"""What a kproxy loads before it serves: one list of the files and packages that its options name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kproxy.config import Config
from kproxy.net.authorization import Authorization, open_authorization
from kproxy.net.broker_sasl.sasl_networks import Networks, open_networks
from kproxy.net.client_login.login_worker import LoginWorker, open_desk
from kproxy.net.quotas import QuotaKeeper, open_quotas
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.stats import Stats
from kproxy.tracing.collector import Collector
from kproxy.tracing.opening import open_tracing


@dataclass(frozen=True, slots=True)
class Resources:
    """All that was loaded; None for what is off."""

    networks: Networks
    tracing: Collector | None
    authorization: Authorization | None
    quotas: QuotaKeeper | None
    logins: LoginWorker | None


def loaders(config: Config, stats: Stats, sockets: SocketNetwork | None = None) -> Mapping[str, Callable[[], Any]]:
    """By field of ``Resources`` what loads it, in order; to be called inside trio. StartupError, ConfigError."""
    return {
        "networks": partial(open_networks, config, stats, sockets),
        "tracing": partial(open_tracing, config, stats.process),
        "authorization": partial(open_authorization, config, stats.refused),
        "quotas": partial(open_quotas, config, stats.refused),
        "logins": partial(open_desk, config),
    }


def load_resources(config: Config, stats: Stats, sockets: SocketNetwork | None = None) -> Resources:
    """Loads everything; the first thing that cannot be used raises StartupError or ConfigError."""
    return Resources(**{name: load() for name, load in loaders(config, stats, sockets).items()})
