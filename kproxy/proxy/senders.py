"""By which address clients are counted that have no other name."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

#: The part of an IPv6 address that names a network: a host has 2^64 addresses in one.
_NETWORK_BITS: Final = 64


@lru_cache(maxsize=1024)
def sender_of(host: str) -> str:
    """The address, or the IPv6 network, that limits for a sender count for ``host``.

    An IPv4 address is itself, also where it is mapped into IPv6. An IPv6 address is its /64 network, since one host
    may use any address of it; a link-local one is itself, as all neighbours share one network.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address) or address.is_link_local or address.is_loopback:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address), _NETWORK_BITS), strict=False))
