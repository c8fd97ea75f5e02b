"""An honest client counts its wait from the first try."""

import socket
from http.client import HTTPConnection
from threading import Thread
from typing import Any

from verification.hostile.pings import Pings


class Refusing:
    """A target that closes the first connections, and serves the next one."""

    honest_request = ("GET", "/healthz", None)

    def __init__(self, refusals: int) -> None:
        self._refusals = refusals
        self.tries = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        Thread(target=self._serve, daemon=True).start()

    def honest_connection(self, patience: float) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self._listener.getsockname()[1], timeout=patience)

    def _serve(self) -> None:
        while True:
            client, _ = self._listener.accept()
            self.tries += 1
            with client:
                while self.tries > self._refusals and client.recv(4096):
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def test_a_refused_client_has_one_wait_until_it_is_served() -> None:
    target: Any = Refusing(3)
    pings = Pings(target)
    asked: list[float] = []
    note = pings._note

    def noted() -> None:
        asked.append(pings._asked_at or 0.0)
        note()
        if pings.count == 2:
            pings._over.set()

    pings._note = noted  # type: ignore[method-assign]
    pings.run()
    assert target.tries == 4
    assert pings.count == 2
    assert pings.slowest > 0
    # The moment of the first try is not forgotten by those that fail.
    assert 0 < asked[0] < asked[1]
