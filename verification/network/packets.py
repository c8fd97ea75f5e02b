"""TCP segments in IPv4 packets: what the wire must know of them, and the resets that it makes up."""

import socket
import struct
from dataclasses import dataclass
from typing import Final

__all__ = ["ACK", "FIN", "RST", "SYN", "Place", "Segment", "make_reset", "parse"]

Place = tuple[str, int]
"""An IPv4 address and a port."""
FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
ACK: Final = 0x10
_IP: Final = struct.Struct(">BBHHHBBH4s4s")
_TCP: Final = struct.Struct(">HHIIBBHHH")
_IPV4_WITHOUT_OPTIONS: Final = 0x45
_TTL: Final = 64
_WRAP: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Segment:
    """One TCP segment (RFC 9293), without its payload."""

    source: Place
    target: Place
    sequence: int
    acknowledged: int
    """The next byte that the sender's kernel expects; only with ``ACK`` in ``flags``."""
    flags: int
    payload: int
    """Bytes of payload."""

    @property
    def end(self) -> int:
        """The sequence number after this segment: SYN and FIN count as one byte each."""
        return (self.sequence + self.payload + bool(self.flags & SYN) + bool(self.flags & FIN)) % _WRAP


def parse(packet: bytes) -> Segment | None:
    """Return the TCP segment in an IPv4 packet; None if it has no whole one."""
    if len(packet) < _IP.size or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
        return None
    start = (packet[0] & 15) * 4
    if len(packet) < start + _TCP.size:
        return None
    length = struct.unpack_from(">H", packet, 2)[0]
    source, target = (socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16))
    source_port, target_port, sequence, acknowledged, offset, flags, *_ = _TCP.unpack_from(packet, start)
    payload = max(0, length - start - (offset >> 4) * 4)
    return Segment((source, source_port), (target, target_port), sequence, acknowledged, flags, payload)


def make_reset(source: Place, target: Place, sequence: int) -> bytes:
    """Return the packet by which ``source`` seems to reset its connection.

    :param sequence: what the target expects next: with another number it only sends a challenge (RFC 5961).
    """
    ends = socket.inet_aton(source[0]) + socket.inet_aton(target[0])
    tcp = _TCP.pack(source[1], target[1], sequence % _WRAP, 0, (_TCP.size // 4) << 4, RST, 0, 0, 0)
    pseudo = ends + struct.pack(">HH", socket.IPPROTO_TCP, len(tcp))
    tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp)) + tcp[18:]
    fields = (_IPV4_WITHOUT_OPTIONS, 0, _IP.size + len(tcp), 0, 0, _TTL, socket.IPPROTO_TCP)
    ip = _IP.pack(*fields, 0, ends[:4], ends[4:])
    return _IP.pack(*fields, checksum(ip), ends[:4], ends[4:]) + tcp


def checksum(data: bytes) -> int:
    """Return the Internet checksum of RFC 1071 of data whose length is even; 0 if the data include a right one."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
