"""A producer, across connections: the same principal, client id and host (retries come from the same three)."""

from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

_LOCAL = "localhost"


class Identity(NamedTuple):
    """One producer, as far as kproxy can recognize it without its help."""

    principal: str
    client_id: str
    host: str


def counted_host(host: str, *, by_address: bool) -> str:
    """The host by which a client is distinguished; empty where addresses do not count (``identity.by``)."""
    return normal_host(host) if by_address else ""


def normal_host(host: str) -> str:
    """One spelling for the addresses of one host: ``::1`` is ``127.0.0.1``, ``::ffff:10.0.0.1`` is ``10.0.0.1``."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return _LOCAL if address.is_loopback else str(address)
