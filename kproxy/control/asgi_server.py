"""The HTTP server: hypercorn, as kproxy sets it up."""

import logging
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import ASGIApp

if TYPE_CHECKING:
    from hypercorn.typing import ASGIFramework

_SHUTDOWN_SECONDS: Final = 1.0
_HANDSHAKE_SECONDS: Final = 10.0


class _Config(Config):
    """Hypercorn's, with a TLS context that is already made."""

    ssl_handshake_timeout = _HANDSHAKE_SECONDS
    tls: ssl.SSLContext | None = None

    @property
    def ssl_enabled(self) -> bool:
        return self.tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self.tls


class AsgiServer:
    """Serves one ASGI application."""

    def __init__(self, app: ASGIApp, tls: ssl.SSLContext | None = None) -> None:
        """``tls``: what connections are encrypted by; None: they are not."""
        self._app = app
        self._tls = tls

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        config = _Config()
        config.tls = self._tls
        config.bind = [f"fd://{listener.detach()}" for listener in sockets]
        config.include_server_header = False
        config.graceful_timeout = _SHUTDOWN_SECONDS
        config.errorlog = _quiet_log()
        # Starlette and hypercorn name the types of ASGI differently; they are the same at run time.
        await serve(cast("ASGIFramework", self._app), config)


def _quiet_log() -> logging.Logger:
    log = logging.getLogger("http")
    log.setLevel(logging.WARNING)
    return log
