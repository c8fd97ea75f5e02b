"""Builds a kproxy from its configuration: the one place where all parts are put together."""

import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio

from kproxy import __version__
from kproxy.codec import accelerator
from kproxy.config import Config, ConfigError, ExitCode, Loaded, StartupError, show, startup_error
from kproxy.config.os_limits import may_open, open_files_for
from kproxy.control.addresses_in_use import until_free
from kproxy.control.listeners import InFlight, serve_control, serve_http
from kproxy.control.logging import Logs
from kproxy.control.serving import unix_listener
from kproxy.control.settings import Settings
from kproxy.control.stopping import Stop
from kproxy.control.systemd import Notifier
from kproxy.heap import keep_level, settle
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.response_room import ResponseRoom
from kproxy.net.handover import HandOver, Predecessor
from kproxy.net.running_facts import Facts
from kproxy.net.server import Server
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.succession import Succession
from kproxy.net.tls_context import control_context, silence_unreadable_names
from kproxy.net.txn.service import Transactions
from kproxy.proxy.api_stats import ApiStats
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.resources import load_resources

if TYPE_CHECKING:
    from starlette.routing import Route

    from kproxy.net.announcer import Announcer

log = structlog.get_logger("kproxy.app")

_GC_ALLOCATIONS = 20_000
_READY_SECONDS = 0.05
#: A start takes less where brokers answer.
_PATIENCE_SECONDS = 5.0
#: Python's default is 0.005.
_SWITCH_SECONDS = 0.001


def run(loaded: Loaded, read: Callable[[], Loaded], *, replace: bool = False) -> int:
    """Runs the proxy until SIGTERM or SIGINT; the exit code. StartupError if it can't begin.

    ``read`` reads the configuration again, for SIGHUP and the control API. ``replace``: takes over from the kproxy at
    ``handover.socket``, if one is there, and from any other process with this ``instance.id``.
    """
    settings, logs = Settings(loaded, read), Logs(loaded.config)
    # What a request allocates is freed by reference counts; looking for cycles so often would only cost time.
    gc.freeze()
    gc.set_threshold(_GC_ALLOCATIONS)
    # The loop gives up the interpreter's lock at each system call, and waits so long for what works beside it.
    sys.setswitchinterval(_SWITCH_SECONDS)
    settings.follow(logs.reconfigure)
    settings.follow(lambda config: allow_connections(config.max_connections))
    settings.follow(lambda config: report_files(config.max_connections))
    allow_connections(loaded.config.max_connections)
    try:
        with silence_unreadable_names():
            return trio.run(partial(_main, settings, logs, replace=replace))
    except* StartupError as group:
        error = startup_error(group)
    raise error


def allow_connections(count: int) -> None:
    """Raises the limit on open files for so many clients, each with its broker, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = open_files_for(count)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    raised = wanted if hard == resource.RLIM_INFINITY else max(soft, min(hard, wanted))
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))


def report_files(count: int) -> None:
    """Logs if the system allows fewer open files than so many clients may need."""
    limit, needed = may_open(), open_files_for(count)
    if limit < needed:
        log.info("open files are limited below what max.connections may need", limit=limit, needed=needed)


async def _main(settings: Settings, logs: Logs, *, replace: bool) -> int:
    config = settings.config
    path = config.handover_socket if replace else None
    predecessor = None if path is None else await _find(path, config)
    if predecessor is None:
        await until_free(config)
    process = _Process(settings, logs, predecessor, replace=replace)
    try:
        async with trio.open_nursery() as nursery:
            await process.run(nursery)
            nursery.cancel_scope.cancel()
    finally:
        process.close()
    return ExitCode.OK


async def _find(path: Path, config: Config) -> Predecessor | None:
    """Whom to take over from. StartupError if that is another instance."""
    found = await Predecessor.find(path)
    if found is None:
        log.info("no kproxy to replace; starting as usual", handover_socket=str(path))
    elif found.instance_id != config.instance_id:
        found.close()
        raise StartupError(
            f"instance.id = '{config.instance_id}': the kproxy at handover.socket = '{path}' is '{found.instance_id}'; "
            "a hand-over needs the same, or what is in doubt there is not known here"
        )
    return found


class _Process:
    """All parts of one kproxy, from its beginning to its end."""

    def __init__(self, settings: Settings, logs: Logs, predecessor: Predecessor | None, *, replace: bool) -> None:
        config = settings.config
        self._settings, self._logs, self._predecessor = settings, logs, predecessor
        self._stats = Stats(apis=ApiStats(config.legacy_clients_max))
        listening = predecessor.listening if predecessor is not None else ()
        ports = {each.node_id: each.sock.getsockname()[1] for each in listening if each.node_id is not None}
        claims = config.crash_recovery_enable and config.idempotence_enable
        self._succession = Succession(None if predecessor is None else ports, replaces=replace, claims=claims)
        self._sockets = SocketNetwork((each.sock for each in listening), config.proxy_protocol_hosts)
        self._loaded = load_resources(config, self._stats, self._sockets)
        networks = self._loaded.networks
        self._cluster = Cluster(
            config, self._stats.upstream, _cluster_map(config), networks.own, networks, ResponseRoom.of(config)
        )
        self._stop, self._in_flight, self._notifier = Stop(), InFlight(), Notifier(os.environ)
        self._hand_over = HandOver(config.instance_id, self._listening, self._taken)

    async def run(self, nursery: trio.Nursery) -> None:
        """Serves until told to stop, then drains."""
        config = self._settings.config
        loaded, tracing = self._loaded, self._loaded.tracing
        if tracing is not None:
            nursery.start_soon(tracing.run)
        transactions = Transactions(self._cluster, config, self._stats, nursery, self._succession, tracing)
        server = Server(
            config,
            self._stats,
            self._cluster,
            nursery,
            transactions,
            loaded.authorization,
            loaded.quotas,
            loaded.logins,
            self._succession,
            tracing,
        )
        self._server, self._cluster.open_port = server, server.open_broker_port
        self._settings.follow(server.reconfigure)
        with (
            trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals,
            ExitStack() as sockets,
        ):
            nursery.start_soon(self._stop.follow, signals, self._reload)
            nursery.start_soon(loaded.networks.run)
            nursery.start_soon(server.watch)
            if self._predecessor is not None and not await self._take_over(self._predecessor, nursery, transactions):
                return
            facts = Facts(config, self._stats, self._cluster, server)
            nursery.start_soon(facts.run)
            http = await nursery.start(serve_http, config, self._stats, facts, transactions.control)
            sockets.callback(facts.close)
            announcer = self._announcer(facts, str(http or ""))
            if announcer is not None:
                nursery.start_soon(announcer.run)
            if self._predecessor is None:
                nursery.start_soon(self._cluster.run)
                nursery.start_soon(transactions.run)

            def routes() -> "Sequence[Route]":
                from kproxy.control.config_api import config_routes
                from kproxy.control.fact_routes import fact_routes

                return [*config_routes(self._settings, self._logs), *fact_routes(facts)]

            refused = partial(self._stats.refused.count_http_refused, "control")
            closed = partial(self._stats.refused.count_http_connection, "control")
            tls = control_context(config, self._stats.certificates)
            control = (transactions.control, routes, refused, self._in_flight, tls, closed)
            await nursery.start(serve_control, config, *control)
            if config.handover_socket is not None:
                listener = unix_listener("handover.socket", config.handover_socket, socket.SOCK_SEQPACKET)
                nursery.start_soon(self._hand_over.serve, sockets.enter_context(listener))
            if self._predecessor is None:
                await server.listen()
            keep_level()
            settle()
            listen, page = str(server.address), str(http or "off")
            log.info("listening", version=__version__, listen=listen, http=page, accelerator=accelerator.STATE)
            report_files(config.max_connections)  # not before: what keeps kproxy from starting comes first
            nursery.start_soon(self._say_ready, listen, page)
            self._notifier.ready()
            await self._stop.requested.wait()
            await self._end()
            # after a hand-over the other process announces itself under the same name
            if announcer is not None and not self._stop.handed_over:
                await announcer.leave()

    def _announcer(self, facts: Facts, page: str) -> "Announcer | None":
        """None if ``fleet.announce.interval.ms`` is 0; ``page``: where the status page is, or nothing."""
        config = self._settings.config
        if not config.fleet_announce_interval_ms:
            return None
        from kproxy.net.announcer import Announcer

        return Announcer(config, self._cluster, facts.fleet_log, facts.status, socket.gethostname(), page)

    async def _say_ready(self, listen: str, page: str) -> None:
        """Logs once that clients are served: brokers answered, and what a former kproxy left is known."""
        config = self._settings.config
        with trio.move_on_after(_PATIENCE_SECONDS):
            await self._wait_ready()
        if not self._stats.upstream.ready:
            log.warning(
                "not ready yet; clients wait until brokers answer",
                bootstrap=show(config.bootstrap_servers),
                advice="kproxy doctor with the same options says what is wrong; are these Kafka's own ports, and does "
                f"upstream.security.protocol = {show(config.upstream_security_protocol)} fit them?",
            )
            await self._wait_ready()
        brokers = len(self._cluster.map.members)
        log.info("ready", listen=listen, http=page, brokers=brokers, instance_id=config.instance_id)

    async def _wait_ready(self) -> None:
        while not self._stats.upstream.ready:  # noqa: ASYNC110 - several tasks make it ready, and each may take that back
            await trio.sleep(_READY_SECONDS)

    async def _take_over(self, former: Predecessor, nursery: trio.Nursery, transactions: Transactions) -> bool:
        """Takes the place of the kproxy that runs, once this one can serve; False if told to stop before."""
        async with trio.open_nursery() as preparing:
            preparing.start_soon(_cancel_after, self._stop.requested, preparing.cancel_scope)
            await nursery.start(self._cluster.run)
            await nursery.start(transactions.run)
            preparing.cancel_scope.cancel()
        if self._stop.requested.is_set():
            return False
        await self._server.listen()
        await former.take()
        self._succession.taken()
        await former.ended()
        self._succession.ended()
        return True

    async def _reload(self) -> None:
        self._notifier.reloading()
        with suppress(ConfigError):  # it is in the log, with all that is wrong
            await self._settings.reload()
        self._notifier.ready()

    def _listening(self) -> Sequence[tuple[int, int | None]]:
        """As ``HandOver`` wants it."""
        brokers = {broker.port: node_id for node_id, broker in self._cluster.map.brokers.items()}
        brokers.pop(self._server.address.port, None)  # with one port for all of them it is none's
        return [(each.fileno, brokers.get(each.port)) for each in self._sockets.listeners]

    def _taken(self) -> int:
        """The other process has the ports; gives the time that this one may take to end, in ms."""
        self._server.stop_accepting()
        self._stop.replaced()
        return self._settings.config.shutdown_grace_ms

    async def _end(self) -> None:
        """Drains, within ``shutdown.grace.ms``; at once if told again."""
        config = self._settings.config
        self._stats.upstream.stopping = True
        self._notifier.stopping()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_after, self._stop.at_once, nursery.cancel_scope)
            if not self._stop.handed_over:
                await trio.sleep(config.shutdown_delay_ms / 1000)
            with trio.move_on_after(config.shutdown_grace_ms / 1000):
                async with trio.open_nursery() as ending:
                    ending.start_soon(self._end_in_vain)
                    await self._server.drain()
                    await self._in_flight.quiet()
                    ending.cancel_scope.cancel()
                await self._server.lanes.log.stop()
            await self._in_flight.end()
            nursery.cancel_scope.cancel()
        left = self._server.draining.left()._asdict() | {"control_requests": self._in_flight.count}
        if any(left.values()):
            log.warning(
                "stopped with something left; what is open is aborted, what is in doubt is settled later", **left
            )
        else:
            log.info("stopped; nothing is left")

    async def _end_in_vain(self) -> None:
        """Ends the control API's requests while no broker answers, for ever: they would wait for all of the grace."""
        while True:
            if not self._stats.upstream.reached:
                await self._in_flight.end()
            await trio.sleep(_READY_SECONDS)

    def close(self) -> None:
        """Closes what is still open after all tasks have ended."""
        self._cluster.close()
        if self._predecessor is not None:
            self._predecessor.close()
        self._hand_over.close()


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _cluster_map(config: Config) -> ClusterMap:
    advertised, ports = config.advertised_address, config.advertised_broker_ports
    bound = config.broker_port_range
    return ClusterMap(
        advertised_host=advertised.host if advertised else None,
        port_shift=ports[0] - bound[0] if ports and bound else 0,
        host_pattern=config.broker_host_pattern,
        one_port=advertised.port if advertised else None,
    )
