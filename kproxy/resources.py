"""What a kproxy loads before it serves: one list of the files and packages that its options name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kproxy.config import Config
from kproxy.net.broker_sasl.sasl_networks import Networks, open_networks
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.stats import Stats

if TYPE_CHECKING:
    from kproxy.net.authorization import Authorization
    from kproxy.net.client_login.login_worker import LoginWorker
    from kproxy.net.quotas import QuotaKeeper
    from kproxy.tracing.collector import Collector


@dataclass(frozen=True, slots=True)
class Resources:
    """All that was loaded; None for what is off."""

    networks: Networks
    tracing: "Collector | None"
    authorization: "Authorization | None"
    quotas: "QuotaKeeper | None"
    logins: "LoginWorker | None"


def loaders(config: Config, stats: Stats, sockets: SocketNetwork | None = None) -> Mapping[str, Callable[[], Any]]:
    """By field of ``Resources`` what loads it, in order; to be called inside trio. StartupError, ConfigError."""
    return {
        "networks": partial(open_networks, config, stats, sockets),
        "tracing": partial(_tracing, config, stats),
        "authorization": partial(_authorization, config, stats),
        "quotas": partial(_quotas, config, stats),
        "logins": partial(_logins, config),
    }


def load_resources(config: Config, stats: Stats, sockets: SocketNetwork | None = None) -> Resources:
    """Loads everything; the first thing that cannot be used raises StartupError or ConfigError."""
    return Resources(**{name: load() for name, load in loaders(config, stats, sockets).items()})


# What is off is not imported.


def _tracing(config: Config, stats: Stats) -> "Collector | None":
    if config.otel_exporter_otlp_endpoint is None:
        return None
    from kproxy.tracing.opening import open_tracing

    return open_tracing(config, stats.process)


def _authorization(config: Config, stats: Stats) -> "Authorization | None":
    if config.acl_file is None:
        return None
    from kproxy.net.authorization import open_authorization

    return open_authorization(config, stats.refused)


def _quotas(config: Config, stats: Stats) -> "QuotaKeeper | None":
    if config.quotas_file is None:
        return None
    from kproxy.net.quotas import open_quotas

    return open_quotas(config, stats.refused)


def _logins(config: Config) -> "LoginWorker | None":
    if not config.sasl_enabled_mechanisms:
        return None
    from kproxy.net.client_login.login_worker import open_desk

    return open_desk(config)
