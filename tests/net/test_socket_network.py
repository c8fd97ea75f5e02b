"""The network over TCP sockets."""

import socket
import time

import pytest
import trio
import trio.testing

from kproxy.net.socket_network import SocketNetwork
from kproxy.testing.ports import free_ports


async def test_what_is_listened_for_can_be_connected_to() -> None:
    network = SocketNetwork()
    (listener,) = await network.listen("127.0.0.1", 0, 8)
    client = await network.connect("127.0.0.1", listener.port, 1000)
    served = await listener.accept()
    assert client.peer == f"127.0.0.1:{listener.port}"
    assert (served.local_host, served.peer_host) == ("127.0.0.1", "127.0.0.1")
    await client.send_all([b"abc"])
    await served.readable()
    buffer = memoryview(bytearray(8))
    assert served.receive_now([buffer]) == 3
    client.close()
    served.close()
    listener.close()


async def test_without_a_host_both_families_are_listened_on() -> None:
    network, port = SocketNetwork(), free_ports(1)[0]
    listeners = await network.listen("", port, 8)
    try:
        assert [listener.port for listener in listeners] == [port, port]
        for host in ("127.0.0.1", "::1"):
            (await network.connect(host, port, 1000)).close()
    finally:
        for listener in listeners:
            listener.close()


async def test_connect_tells_what_failed() -> None:
    with pytest.raises(OSError, match=r"^cannot connect to 127.0.0.1:1: Connection refused$"):
        await SocketNetwork().connect("127.0.0.1", 1, 1000)
    with pytest.raises(OSError, match=r"^cannot connect to no-such-host.invalid:1: [A-Z]"):
        await SocketNetwork().connect("no-such-host.invalid", 1, 20_000)


async def test_a_connection_that_ends_as_it_comes_up_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    def gone(sock: socket.socket) -> None:
        made.append(sock)
        raise OSError("not connected")

    network = SocketNetwork()
    (listener,) = await network.listen("127.0.0.1", 0, 8)
    monkeypatch.setattr("kproxy.net.socket_network.SocketIO", gone)
    with pytest.raises(OSError, match="not connected"):
        await network.connect("127.0.0.1", listener.port, 1000)
    assert [sock.fileno() for sock in made] == [-1]
    listener.close()


async def test_nobody_who_answers_is_an_os_error_in_time() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        with pytest.raises(OSError, match="within 50 ms"):
            await SocketNetwork().connect("127.0.0.1", port, 50)
        for sock in waiting:
            sock.close()


async def test_a_closed_listener_wakes_who_waits() -> None:
    (listener,) = await SocketNetwork().listen("127.0.0.1", 0, 8)
    async with trio.open_nursery() as nursery:

        async def accept() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await listener.accept()

        nursery.start_soon(accept)
        await trio.testing.wait_all_tasks_blocked()
        listener.close()


async def test_a_port_in_use_is_an_os_error() -> None:
    network = SocketNetwork()
    (listener,) = await network.listen("127.0.0.1", 0, 8)
    with pytest.raises(OSError):
        await network.listen("127.0.0.1", listener.port, 8)
    listener.close()


async def test_the_time_of_day_is_the_machines() -> None:
    before = time.time() - 1
    assert before < SocketNetwork().wall() < before + 60
