"""A client of kproxy's health page during an attack: its latency shows how long the event loop was blocked.

One loop serves this page and all clients. A Kafka request would wait for the fake broker, too, which attacks may end.
"""

import time
from http.client import HTTPConnection, HTTPException
from threading import Event, Thread
from typing import Final, Self

from verification.hostile.target import Besieged

_EVERY_SECONDS: Final = 0.005
_PATIENCE_SECONDS: Final = 60.0


class Pings(Thread):
    """Asks every 5 ms, over one connection, until the block ends."""

    def __init__(self, proxy: Besieged) -> None:
        """Nothing is asked yet."""
        super().__init__(daemon=True)
        self._proxy = proxy
        self._over = Event()
        #: Answers so far, and the longest wait for one, in seconds.
        self.count = 0
        self.slowest = 0.0

    def run(self) -> None:
        """Asks until the block ends; a connection that fails is made again."""
        while not self._over.is_set():
            connection = HTTPConnection(self._proxy.http, timeout=_PATIENCE_SECONDS)
            try:
                self._ask(connection)
            except (OSError, HTTPException):
                continue
            finally:
                connection.close()

    def _ask(self, connection: HTTPConnection) -> None:
        while not self._over.wait(_EVERY_SECONDS):
            began = time.monotonic()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.count += 1

    def __enter__(self) -> Self:
        """Begins."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the last response."""
        self._over.set()
        self.join(_PATIENCE_SECONDS)
