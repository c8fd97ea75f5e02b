import socket
import struct

from verification.network.packets import ACK, FIN, RST, SYN, checksum, make_reset, parse

CLIENT, SERVER = ("198.18.0.2", 4000), ("198.18.0.1", 9092)


def packet(
    source: tuple[str, int] = CLIENT,
    target: tuple[str, int] = SERVER,
    *,
    sequence: int = 0,
    acknowledged: int = 0,
    flags: int = ACK,
    payload: bytes = b"",
) -> bytes:
    """An IPv4 packet without checksums."""
    ends = socket.inet_aton(source[0]) + socket.inet_aton(target[0])
    tcp = struct.pack(">HHIIBBHHH", source[1], target[1], sequence, acknowledged, 5 << 4, flags, 0, 0, 0) + payload
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0) + ends + tcp


def test_a_segment_is_read() -> None:
    segment = parse(packet(sequence=7, acknowledged=9, payload=b"abc"))
    assert segment is not None
    assert (segment.source, segment.target) == (CLIENT, SERVER)
    assert (segment.sequence, segment.acknowledged, segment.flags, segment.payload) == (7, 9, ACK, 3)
    assert segment.end == 10


def test_syn_and_fin_count_as_a_byte_and_sequence_numbers_wrap() -> None:
    ends = [parse(packet(sequence=(1 << 32) - 1, flags=flags)) for flags in (SYN, FIN, ACK)]
    assert [segment and segment.end for segment in ends] == [0, 0, (1 << 32) - 1]


def test_other_packets_are_no_segments() -> None:
    whole = packet()
    udp = whole[:9] + bytes([socket.IPPROTO_UDP]) + whole[10:]
    six = b"\x60" + whole[1:]
    assert [parse(each) for each in (b"", whole[:19], whole[:39], udp, six)] == [None] * 5


def test_a_reset_has_the_right_checksums() -> None:
    made = make_reset(SERVER, CLIENT, (1 << 32) + 5)
    segment = parse(made)
    assert segment is not None
    assert (segment.source, segment.target, segment.sequence, segment.flags) == (SERVER, CLIENT, 5, RST)
    assert checksum(made[:20]) == 0
    assert checksum(made[12:20] + struct.pack(">HH", socket.IPPROTO_TCP, len(made) - 20) + made[20:]) == 0
