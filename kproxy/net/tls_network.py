"""The network with TLS on one side or both; which, the configuration says."""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
import trio

from kproxy.config import Config, ExitCode, StartupError
from kproxy.config.broker_options import BrokerSecurityOptions
from kproxy.config.client_options import ClientTlsOptions
from kproxy.net.log_limit import LogLimit
from kproxy.net.network import ByteIO, Network, NetworkListener
from kproxy.net.socket_network import SocketListener, SocketNetwork
from kproxy.net.tls_context import TlsContext, TlsError, TlsFiles, client_context, server_context
from kproxy.net.tls_io import TlsIO
from kproxy.proxy.certificate_stats import CertificateStats
from kproxy.proxy.client_stats import ClientStats
from kproxy.proxy.stats import Stats

log = structlog.get_logger("kproxy.tls")

#: Bytes of ciphertext that are read at once.
_READ_BYTES: Final = 65_536
_IS_IT: Final = "is it a TLS port? See upstream.security.protocol"
#: What OpenSSL says of peers that speak no TLS at all.
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})


def open_network(config: Config, stats: Stats, network: SocketNetwork | None = None) -> Network:
    """The machine's network, as the configuration has it; made inside trio. StartupError names a file that is bad."""
    network = network or SocketNetwork(balancers=config.proxy_protocol_hosts)
    accepting = connecting = None
    try:
        if config.ssl_certificate_location is not None:
            accepting = _listener_context(config, stats.certificates)
        if config.upstream_security_protocol.endswith("ssl"):
            connecting = _upstream_context(config, stats.certificates)
    except TlsError as error:
        raise StartupError(f"TLS: {error}", ExitCode.USAGE) from None
    if accepting is None and connecting is None:
        return network
    return TlsNetwork(network, accepting, connecting, stats.clients)


def _listener_context(config: ClientTlsOptions, stats: CertificateStats) -> TlsContext:
    files = TlsFiles(
        config.ssl_certificate_location,
        config.ssl_key_location,
        config.ssl_key_password_location,
        config.ssl_ca_location,
    )
    note = partial(stats.uses, "ssl.certificate.location")
    return TlsContext(files, lambda: server_context(files, config.ssl_client_auth), trio.current_time, note)


def _upstream_context(config: BrokerSecurityOptions, stats: CertificateStats) -> TlsContext:
    files = TlsFiles(
        config.upstream_ssl_certificate_location,
        config.upstream_ssl_key_location,
        config.upstream_ssl_key_password_location,
        config.upstream_ssl_ca_location,
    )
    checks_name = config.upstream_ssl_endpoint_identification_algorithm == "https"
    note = partial(stats.uses, "upstream.ssl.certificate.location")
    return TlsContext(files, lambda: client_context(files, checks_name=checks_name), trio.current_time, note)


class TlsNetwork:
    """``kproxy.net.network.Network`` over TLS."""

    def __init__(
        self, network: SocketNetwork, accepting: TlsContext | None, connecting: TlsContext | None, stats: ClientStats
    ) -> None:
        """``accepting`` for clients, ``connecting`` for brokers; None: without TLS on that side."""
        self._network = network
        self._accepting = accepting
        self._connecting = connecting
        self._stats = stats
        self._scratch = memoryview(bytearray(_READ_BYTES))
        self._lines = LogLimit()

    async def connect(self, host: str, port: int, timeout_ms: int) -> ByteIO:
        """As ``Network``; OSError says what was wrong with the other's certificate."""
        if self._connecting is None:
            return await self._network.connect(host, port, timeout_ms)
        deadline = trio.current_time() + timeout_ms / 1000
        inner = await self._network.connect(host, port, timeout_ms)
        io = TlsIO(inner, self._connecting.current(), self._scratch, server_name=host)
        try:
            with trio.fail_at(deadline):
                await io.handshake()
        except trio.TooSlowError:
            io.close()
            raise OSError(f"{host}:{port} began no TLS within {timeout_ms} ms: {_IS_IT}") from None
        except OSError as error:
            io.close()
            raise OSError(f"TLS with {host}:{port}: {_explained(error)}") from error
        except BaseException:
            io.close()
            raise
        return io

    async def listen(self, host: str, port: int, backlog: int) -> Sequence[NetworkListener]:
        listeners = await self._network.listen(host, port, backlog)
        if self._accepting is None:
            return listeners
        return [_TlsListener(listener, self._accepting, self._scratch, self._refused) for listener in listeners]

    def _refused(self, peer: str, why: str) -> None:
        refused = self._stats.connections_refused
        refused["tls_handshake"] = refused.get("tls_handshake", 0) + 1
        reason = "it speaks no TLS" if why in _NO_TLS else why
        left = self._lines.take()
        if left > 0:
            log.info("TLS handshake with a client failed", peer=peer, reason=reason)
        elif left == 0:
            log.warning("many TLS handshakes fail; see kproxy_connections_refused_total", peer=peer, reason=reason)

    def wall(self) -> float:
        return self._network.wall()


@dataclass(slots=True)
class _TlsListener:
    """Accepts connections; their handshakes proceed when they are read."""

    _listener: SocketListener
    _context: TlsContext
    _scratch: memoryview
    _refused: Callable[[str, str], None]

    @property
    def port(self) -> int:
        return self._listener.port

    async def accept(self) -> TlsIO:
        inner = await self._listener.accept()
        peer = inner.peer

        def failed(why: str) -> None:
            # A load balancer has named the client by now; a closed connection has no peer name.
            self._refused(peer if inner.peer == "?" else inner.peer, why)

        return TlsIO(inner, self._context.current(), self._scratch, failed=failed)

    def close(self) -> None:
        self._listener.close()


def _explained(error: OSError) -> str:
    """What OpenSSL says, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        return f"{said}; see upstream.ssl.ca.location and upstream.ssl.endpoint.identification.algorithm"
    reason = getattr(error, "reason", None)
    if reason in _NO_TLS:
        return f"it speaks no TLS: {_IS_IT}"
    if reason == "UNEXPECTED_EOF_WHILE_READING" or isinstance(error, ConnectionError):
        return f"it ended the connection: {_IS_IT}"
    return str(reason or error)
