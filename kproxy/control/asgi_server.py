"""The HTTP server: hypercorn, as kproxy sets it up."""

import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import ASGIApp

if TYPE_CHECKING:
    from hypercorn.typing import ASGIFramework

_SHUTDOWN_SECONDS: Final = 1.0


class AsgiServer:
    """Serves one ASGI application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        config = Config()
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
