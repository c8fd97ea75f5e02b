"""The one place where everything is put together."""

import gc
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial

import structlog
import trio

from kproxy import __version__
from kproxy.config import Config, ConfigError, ExitCode, Loaded, StartupError
from kproxy.config.limits import open_files_for
from kproxy.control.config_api import config_routes
from kproxy.control.control_server import serve_control
from kproxy.control.fact_routes import fact_routes
from kproxy.control.http import serve_http
from kproxy.control.logging import Logs
from kproxy.control.settings import Settings
from kproxy.net.authorization import open_authorization
from kproxy.net.broker_sasl.networks import open_networks
from kproxy.net.cluster import Cluster
from kproxy.net.facts import Facts
from kproxy.net.quotas import open_quotas
from kproxy.net.server import Server
from kproxy.net.txn.service import Transactions
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats

log = structlog.get_logger("kproxy.app")

_GC_ALLOCATIONS = 20_000


def run(loaded: Loaded, read: Callable[[], Loaded]) -> int:
    """Runs the proxy until SIGTERM or SIGINT; the exit code. StartupError if it can't begin.

    ``read`` reads the configuration again, for SIGHUP and the control API.
    """
    settings, logs = Settings(loaded, read), Logs(loaded.config)
    # What a request allocates is freed by reference counts; looking for cycles so often would only cost time.
    gc.freeze()
    gc.set_threshold(_GC_ALLOCATIONS)
    settings.follow(logs.reconfigure)
    settings.follow(lambda config: allow_connections(config.max_connections))
    allow_connections(loaded.config.max_connections)
    try:
        return trio.run(_main, settings, logs)
    except* StartupError as group:
        error = _first(group)
    raise error


def allow_connections(count: int) -> None:
    """Raises the limit on open files for so many clients, each with its broker, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = open_files_for(count)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    raised = wanted if hard == resource.RLIM_INFINITY else max(soft, min(hard, wanted))
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    if raised < wanted:
        log.info("open files are limited below what max.connections may need", limit=raised, needed=wanted)


def _first(group: BaseExceptionGroup[StartupError]) -> StartupError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


async def _main(settings: Settings, logs: Logs) -> int:
    config = settings.config
    stats = Stats(legacy_clients_max=config.legacy_clients_max)
    networks = open_networks(config, stats)
    cluster = Cluster(config, stats, _cluster_map(config), networks.own, networks.for_client)
    authorization, quotas = open_authorization(config, stats), open_quotas(config, stats)
    try:
        async with trio.open_nursery() as nursery:
            transactions = Transactions(cluster, config, stats, nursery)
            server = Server(config, stats, cluster, nursery, transactions, authorization, quotas)
            cluster.open_port = server.open_broker_port
            nursery.start_soon(networks.run)
            settings.follow(server.reconfigure)
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
                facts = Facts(config, stats, cluster, server)
                nursery.start_soon(facts.run)
                http = await nursery.start(serve_http, config, stats, facts, transactions.control)
                nursery.start_soon(cluster.run)
                nursery.start_soon(server.watch)
                nursery.start_soon(transactions.run)
                routes = [*config_routes(settings, logs), *fact_routes(facts)]
                refused = partial(stats.count_http_refused, "control")
                await nursery.start(serve_control, config, transactions.control, routes, refused)
                address = await server.listen()
                log.info("kproxy is running", version=__version__, listen=str(address), http=str(http or "off"))
                await _until_told_to_stop(signals, settings)
                stats.ready, cluster.leaving = False, True
                with trio.move_on_after(settings.config.shutdown_grace_ms / 1000):
                    await server.drain()
            nursery.cancel_scope.cancel()
    finally:
        cluster.close()
    return ExitCode.OK


async def _until_told_to_stop(signals: AsyncIterator[int], settings: Settings) -> None:
    async for signum in signals:
        if signum != signal.SIGHUP:
            log.info("stopping", signal=signal.Signals(signum).name)
            return
        with suppress(ConfigError):  # it is in the log, with all that is wrong
            await settings.reload()


def _cluster_map(config: Config) -> ClusterMap:
    advertised, ports = config.advertised_address, config.advertised_broker_ports
    bound = config.broker_port_range
    return ClusterMap(
        advertised_host=advertised.host if advertised else None,
        port_shift=ports[0] - bound[0] if ports and bound else 0,
        host_pattern=config.broker_host_pattern,
        one_port=advertised.port if advertised else None,
    )
