"""An honest client during an attack: its latency shows how long the event loop was blocked, or others served instead.

It asks for kproxy's health page, for a Kafka request would wait for the fake broker, too, which attacks may end; of the
webhook it asks for a review.
"""

import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from threading import Event, Thread
from typing import Final, Self

from verification.hostile.target import Target

_EVERY_SECONDS: Final = 0.005
_PATIENCE_SECONDS: Final = 60.0


class Pings(Thread):
    """Asks every 5 ms, over one connection, until the block ends."""

    def __init__(self, proxy: Target) -> None:
        """Nothing is asked yet."""
        super().__init__(daemon=True)
        self._proxy = proxy
        self._over = Event()
        self._asked_at: float | None = None
        #: Answers so far, and the longest wait for one, in seconds; it counts from the first try.
        self.count = 0
        self.slowest = 0.0

    def run(self) -> None:
        """Asks until the block ends; a connection that fails is made again."""
        while not self._over.wait(_EVERY_SECONDS):
            connection = self._proxy.honest_connection(_PATIENCE_SECONDS)
            try:
                self._ask(connection)
            except (OSError, HTTPException):
                continue
            finally:
                connection.close()

    def _ask(self, connection: HTTPConnection) -> None:
        method, path, body = self._proxy.honest_request
        while not self._over.wait(_EVERY_SECONDS):
            if self._asked_at is None:
                self._asked_at = time.monotonic()
            connection.request(method, path, body)
            answer = connection.getresponse()
            answer.read()
            if answer.status != HTTPStatus.OK:
                raise HTTPException(answer.status)
            self._note()

    def _note(self) -> None:
        if self._asked_at is not None:
            self.slowest = max(self.slowest, time.monotonic() - self._asked_at)
            self._asked_at = None
            self.count += 1

    def __enter__(self) -> Self:
        """Begins."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the last response; one that did not come by the end counts as come then."""
        self._over.set()
        self.join(_PATIENCE_SECONDS)
        self._note()
