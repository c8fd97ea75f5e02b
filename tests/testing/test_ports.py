import socket

from kproxy.testing.ports import free_ports


def test_ports_are_in_a_row_free_and_given_once() -> None:
    first, second = free_ports(3), free_ports(2)
    assert (len(first), len(second)) == (3, 2)
    assert not {*first} & {*second}
    with socket.create_server(("127.0.0.1", first[0])):
        assert first[0] < 32_768  # from here on Linux gives ports to clients
