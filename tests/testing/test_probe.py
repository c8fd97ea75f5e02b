"""The probe: no broker, no count."""

import socket

from kproxy.testing.probe import broker_count


def test_nothing_listens_means_no_broker() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        assert broker_count("127.0.0.1", holder.getsockname()[1], timeout=1) == 0


def test_a_listener_that_hangs_up_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as server:
        port = server.getsockname()[1]
        assert broker_count("127.0.0.1", port, timeout=0.1) == 0
