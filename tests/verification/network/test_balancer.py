"""The balancer on loopback, with a gateway that answers every request."""

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import cast

import pytest

from kproxy.codec.messages import ApiKey
from verification.chaos.kproxy_process import BROKER_PORTS, KproxyProcess
from verification.network import balancer as module
from verification.network.balancer import Balancer

PATIENCE_S = 30.0
REQUEST = struct.pack(">ihhi", 8, ApiKey.PRODUCE, 0, 7)
RESPONSE = struct.pack(">ii", 4, 7)


class Gateway:
    """In the place of a kproxy: listens at one port for all that the balancer has."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.targets: Sequence[int] = [self.listener.getsockname()[1]] * (1 + BROKER_PORTS)
        self.pauses = 0

    def pause(self) -> None:
        self.pauses += 1

    def serve(self) -> None:
        """Answer one connection's requests until it ends."""
        with self.listener.accept()[0] as stream:
            while stream.recv(len(REQUEST), socket.MSG_WAITALL):
                stream.sendall(RESPONSE)


@contextmanager
def balanced(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Balancer, Gateway, socket.socket]]:
    """A balancer, a gateway, and a client's connection through the one to the other."""
    monkeypatch.setattr(module, "SERVER_ADDRESS", "127.0.0.1")
    gateway = Gateway()
    server = threading.Thread(target=gateway.serve)
    with gateway.listener, Balancer(0.0) as balancer:
        balancer.serve(cast("KproxyProcess", gateway))
        server.start()
        with socket.create_connection(("127.0.0.1", balancer.ports[0]), PATIENCE_S) as client:
            yield balancer, gateway, client
        server.join(PATIENCE_S)


def ask(client: socket.socket) -> None:
    client.sendall(REQUEST)
    assert client.recv(len(RESPONSE), socket.MSG_WAITALL) == RESPONSE


def test_the_next_that_answers_is_frozen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with balanced(monkeypatch) as (balancer, gateway, client), ThreadPoolExecutor() as pool:
        ask(client)
        assert gateway.pauses == 0
        frozen = pool.submit(balancer.freeze_next, PATIENCE_S)
        while not frozen.done():
            ask(client)
        assert frozen.result() is cast("KproxyProcess", gateway)
        before = balancer.requests
        ask(client)
        assert balancer.requests == before + 1
        assert gateway.pauses == 1
        assert balancer.dropped == 0


def test_none_is_frozen_later_if_none_answered_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with balanced(monkeypatch) as (balancer, gateway, client):
        with pytest.raises(TimeoutError, match="no Produce was answered"):
            balancer.freeze_next(0.01)
        ask(client)
        assert gateway.pauses == 0


def test_one_that_gets_no_new_connections_is_not_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Gateway()
    with other.listener, balanced(monkeypatch) as (balancer, gateway, client), ThreadPoolExecutor() as pool:
        ask(client)
        balancer.serve(cast("KproxyProcess", other))
        frozen = pool.submit(balancer.freeze_next, 0.2)
        while not frozen.done():
            ask(client)
        assert isinstance(frozen.exception(), TimeoutError)
        assert gateway.pauses == 0
