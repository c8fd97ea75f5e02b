"""TLS beside none, with little to carry: both are measured, and what a connection takes stays bounded."""

from bench import tls
from bench.processes import raise_file_limit

_CONNECTIONS, _BUSY = 250, 10
#: Of a kproxy with nobody connected, and what it may grow by in any case.
_IDLE_MEGABYTES = 80.0
_CONNECTION_MEGABYTES = 0.064


def test_both_ways_carry_records() -> None:
    figures = tls.tls(4_000_000)
    assert [figure.case for figure in figures] == [
        f"v2 {way}, 1 KB, {how}: CPU" for way in ("produce", "fetch") for how in ("in the clear", "over TLS")
    ]


def test_idle_connections_over_tls_take_little() -> None:
    raise_file_limit()
    clear, _, secured, handshake = tls.connections(_CONNECTIONS, _BUSY)
    assert secured.case == "250 connections over TLS, 240 idle: memory"
    assert clear.kproxy is not None
    assert secured.kproxy is not None
    assert clear.kproxy < secured.kproxy * 1.5
    assert secured.kproxy < _IDLE_MEGABYTES + _CONNECTIONS * _CONNECTION_MEGABYTES
    assert handshake.unit == "ms"
