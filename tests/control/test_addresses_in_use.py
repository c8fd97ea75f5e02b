"""Addresses that another process has when kproxy starts."""

import socket
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.config import Address, Config
from kproxy.control.addresses_in_use import until_free


def taken_port() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def options(listener: socket.socket, **changes: object) -> Config:
    here = Address("127.0.0.1", listener.getsockname()[1])
    return Config(**{"bootstrap_servers": (Address("kafka", 9092),), "listen": here, "http": None} | changes)  # type: ignore[arg-type]


async def test_a_process_that_drains_is_waited_for() -> None:
    listener = taken_port()

    async def drain() -> None:
        await trio.sleep(0.3)
        listener.close()

    with trio.fail_after(30), capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            await until_free(options(listener))
            assert listener.fileno() == -1
    [line] = logs
    assert (line["option"], line["seconds"]) == ("listen", 10.0)


async def test_a_process_that_stays_is_not_waited_for_longer_than_a_stop_takes() -> None:
    with taken_port() as listener, trio.fail_after(30), capture_logs() as logs:
        began = trio.current_time()
        await until_free(options(listener, shutdown_grace_ms=300, shutdown_delay_ms=200))
        assert trio.current_time() - began >= 0.5
    assert len(logs) == 1


async def test_nobody_waits_for_what_is_free_or_dead(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with taken_port() as listener:
        given = options(listener, control_socket=path)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # its process was killed
    with trio.fail_after(5), capture_logs() as logs:
        await until_free(given)
    assert logs == []


@pytest.mark.parametrize("option", ["control_socket", "handover_socket"])
async def test_a_socket_file_counts_as_well(tmp_path: Path, option: str) -> None:
    with taken_port() as listener:
        free = options(listener).listen
    kind = socket.SOCK_SEQPACKET if option == "handover_socket" else socket.SOCK_STREAM
    with socket.socket(socket.AF_UNIX, kind) as living:
        living.bind(str(tmp_path / "x.sock"))
        living.listen()
        given = Config(
            bootstrap_servers=(free,), listen=free, http=None, shutdown_grace_ms=100, **{option: tmp_path / "x.sock"}
        )
        with trio.fail_after(30), capture_logs() as logs:
            await until_free(given)
    assert [line["option"] for line in logs] == [option.replace("_", ".")]
