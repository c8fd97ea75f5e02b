import socket
import subprocess
import sys

import pytest

from kproxy.testing.ports import free_ports


def test_ports_are_in_a_row_free_and_given_once() -> None:
    first, second = free_ports(3), free_ports(2)
    assert (len(first), len(second)) == (3, 2)
    assert not {*first} & {*second}
    with socket.create_server(("127.0.0.1", first[0])):
        assert first[0] < 32_768  # from here on Linux gives ports to clients


def test_a_port_in_use_is_left_out() -> None:
    first = free_ports(1)[0]
    with socket.create_server(("127.0.0.1", first + 2)):
        assert first + 2 not in free_ports(2)


def test_another_process_gets_others() -> None:
    ours = free_ports(1)
    script = "from kproxy.testing.ports import free_ports; print(*free_ports(250))"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not {*ours, *free_ports(1)} & {int(port) for port in printed.split()}


def test_too_many_are_an_error() -> None:
    with pytest.raises(OSError, match="no 251 free ports in a row"):
        free_ports(251)
