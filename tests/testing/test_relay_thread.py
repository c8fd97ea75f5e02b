"""Relays in a thread, seen from code that blocks."""

import socket

import pytest

from kproxy.testing.relay import FaultRelay, Faults
from kproxy.testing.relay_thread import RelayThread

TIMEOUT = 60.0


def test_bytes_pass_and_methods_are_called_in_the_thread() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = FaultRelay(("127.0.0.1", server.getsockname()[1]), faults=Faults())
        with RelayThread([relay]) as thread, socket.create_connection(("127.0.0.1", relay.port), TIMEOUT) as client:
            upstream, _ = server.accept()
            with upstream:
                upstream.settimeout(TIMEOUT)
                client.sendall(b"\xff\xff\xff\xff")
                assert upstream.recv(4) == b"\xff\xff\xff\xff"
                assert thread.call(relay.cut_all) == 1
                with pytest.raises(ConnectionResetError):
                    client.recv(1)


def test_a_taken_port_is_told_to_the_caller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = FaultRelay(("127.0.0.1", 1), port=server.getsockname()[1])
        with pytest.raises(OSError, match="in use"), RelayThread([relay]):
            pytest.fail("entered")
