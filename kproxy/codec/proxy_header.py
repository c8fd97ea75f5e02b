"""The header that a load balancer writes before a connection's first byte: the PROXY protocol, versions 1 and 2.

Specification: haproxy.org, doc/proxy-protocol.txt. The Python packages for it are tied to asyncio.
"""

import re
import struct
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple, TypeAlias

from kproxy.errors import RemoteProtocolError

#: The bytes to read first; no header of either version is shorter.
START: Final = 12
#: The longest line of version 1, with its CR LF.
MOST_LINE: Final = 107
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_LOCAL, _PROXY = 0x20, 0x21
#: Addresses with what follows them (TLS details, checksums): balancers send some hundred bytes.
_MOST_BODY: Final = 4096
_TCP4, _TCP6 = 0x11, 0x21
_Family: TypeAlias = type[IPv4Address] | type[IPv6Address]
_FAMILIES: Final[Mapping[str, _Family]] = {"TCP4": IPv4Address, "TCP6": IPv6Address}
_PORT: Final = re.compile("[0-9]{1,5}")
_MOST_PORT: Final = 65_535


class Ends(NamedTuple):
    """Both ends of the connection between a client and its load balancer."""

    client: str
    client_port: int
    #: The balancer's address, as the client reached it.
    balancer: str


def is_line(start: bytes) -> bool:
    """Whether a header is of version 1 (a line) rather than 2.

    :param start: the first ``START`` bytes of a connection.
    :raises RemoteProtocolError: it is none of both.
    """
    if start == _SIGNATURE:
        return False
    if start.startswith(b"PROXY "):
        return True
    raise RemoteProtocolError("the connection does not begin with a PROXY protocol header")


def read_line(line: bytes) -> Ends | None:
    """Read a whole line of version 1; None if it names no client (UNKNOWN).

    :raises RemoteProtocolError: it is malformed.
    """
    words = line.decode("latin-1").removesuffix("\r\n").split(" ")
    is_whole = line.endswith(b"\r\n")
    if is_whole and words[1:2] == ["UNKNOWN"]:
        return None
    if not is_whole or len(words) != 6 or words[1] not in _FAMILIES or not _PORT.fullmatch(words[4]):
        raise RemoteProtocolError(f"malformed PROXY protocol line {line[:MOST_LINE]!r}")
    return _ends(words[2], int(words[4]), words[3], _FAMILIES[words[1]])


def body_size(fixed: bytes) -> int:
    """The bytes that follow the 4 bytes after the signature of version 2.

    :raises RemoteProtocolError: another version or command, or more than 4,096 bytes.
    """
    command, _, size = struct.unpack(">BBH", fixed)
    if command not in (_LOCAL, _PROXY) or size > _MOST_BODY:
        raise RemoteProtocolError(f"PROXY protocol header of version and command {command:#x} with {size} bytes")
    return int(size)


def read_binary(fixed: bytes, body: bytes) -> Ends | None:
    """Read a header of version 2; None if the balancer speaks for itself (LOCAL) or names no TCP client.

    :param fixed: the 4 bytes after the signature.
    :param body: ``body_size`` bytes.
    :raises RemoteProtocolError: it is malformed.
    """
    command, family, _ = struct.unpack(">BBH", fixed)
    size = {_TCP4: 4, _TCP6: 16}.get(family)
    if command == _LOCAL or size is None:
        return None
    if len(body) < 2 * size + 4:
        raise RemoteProtocolError(f"PROXY protocol header with {len(body)} bytes of addresses")
    (port,) = struct.unpack_from(">H", body, 2 * size)
    return _ends(body[:size], port, body[size : 2 * size], IPv4Address if family == _TCP4 else IPv6Address)


def _ends(client: str | bytes, port: int, balancer: str | bytes, family: type[IPv4Address] | type[IPv6Address]) -> Ends:
    if port > _MOST_PORT:
        raise RemoteProtocolError(f"PROXY protocol header with port {port}")
    try:
        return Ends(str(family(client)), port, str(family(balancer)))
    except ValueError as error:
        raise RemoteProtocolError(f"PROXY protocol header: {error}") from None
