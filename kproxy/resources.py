"""What a kproxy loads before it serves: one list of the files and packages that its options name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kproxy.config import Config, ExitCode, StartupError
from kproxy.config.client_options import AccessOptions
from kproxy.config.process_options import TraceOptions
from kproxy.distribution import install_command
from kproxy.net.broker_sasl.sasl_networks import Networks, open_networks
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.process_stats import ProcessStats
from kproxy.proxy.refusal_stats import RefusalStats
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
        "tracing": partial(open_tracing, config, stats.process),
        "authorization": partial(open_authorization, config, stats.refused),
        "quotas": partial(open_quotas, config, stats.refused),
        "logins": partial(open_logins, config),
    }


def load_resources(config: Config, stats: Stats, sockets: SocketNetwork | None = None) -> Resources:
    """Loads everything; the first thing that cannot be used raises StartupError or ConfigError."""
    return Resources(**{name: load() for name, load in loaders(config, stats, sockets).items()})


# What is off is not imported.


# Each imports what it needs only if the options ask for it.


def open_tracing(config: TraceOptions, stats: ProcessStats) -> "Collector | None":
    """None if it is off. StartupError if what it needs is not installed."""
    endpoint = config.otel_exporter_otlp_endpoint
    if endpoint is None:
        return None
    from kproxy.tracing.collector import Collector, Limits

    try:
        from kproxy.tracing.otlp import OtlpExporter
    except ModuleNotFoundError as error:
        raise StartupError(
            f"otel.exporter.otlp.endpoint = '{endpoint}' needs the package {error.name}: {install_command('otel')}",
            ExitCode.USAGE,
        ) from None
    exporter = OtlpExporter(endpoint, config.otel_service_name, config.instance_id)
    limits = Limits(
        ratio=config.otel_traces_sampler_arg,
        queue=config.otel_bsp_max_queue_size,
        batch=config.otel_bsp_max_export_batch_size,
        delay_s=config.otel_bsp_schedule_delay_ms / 1000,
    )
    return Collector(exporter, limits, stats)


def open_authorization(config: AccessOptions, stats: RefusalStats) -> "Authorization | None":
    """By ``acl.file``; None if there is none. StartupError if it can't be used."""
    if config.acl_file is None:
        return None
    from kproxy.config.acl_file import load_rules
    from kproxy.net.authorization import Authorization
    from kproxy.net.watched_file import WatchedFile

    read = partial(load_rules, super_users=config.super_users)
    return Authorization(WatchedFile(config.acl_file, read, "acl.file"), stats)


def open_quotas(config: AccessOptions, stats: RefusalStats) -> "QuotaKeeper | None":
    """By ``quotas.file``; None if there is none. StartupError if it can't be used."""
    if config.quotas_file is None:
        return None
    from kproxy.config.quota_file import load_quotas
    from kproxy.net.quotas import QuotaKeeper
    from kproxy.net.watched_file import WatchedFile

    file = WatchedFile(config.quotas_file, load_quotas, "quotas.file")
    return QuotaKeeper(file, config.quota_throttle_max_ms / 1000, stats)


def open_logins(config: Config) -> "LoginWorker | None":
    """None if clients do not log in at kproxy. StartupError."""
    if not config.sasl_enabled_mechanisms:
        return None
    from kproxy.net.client_login.login_worker import open_desk

    return open_desk(config)
