import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.frame import FrameSplitter
from kproxy.errors import RemoteProtocolError

LIMIT = 1 << 20
SHARED = 64 * 1024


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def payloads(seed: int) -> list[bytes]:
    chance = random.Random(seed)
    sizes = [0, 1, 3, 4, 5, 100, 65_531, 65_532, 65_533, 70_000, 200_000]
    return [chance.randbytes(chance.choice(sizes)) for _ in range(chance.randint(1, 8))]


def cuts(data: bytes, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    pos = 0
    while pos < len(data):
        size = chance.choice([1, 2, 3, 4, 5, 7, 1000, 65_536, chance.randint(1, 200_000)])
        yield data[pos : pos + size]
        pos += size


class Reader:
    """Reads as a connection does: into the rest of a begun frame first, what follows it into a shared buffer."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.splitter = FrameSplitter(limit)
        self.shared = memoryview(bytearray(SHARED))

    def receive(self, data: bytes) -> list[bytearray]:
        frames: list[bytearray] = []
        while data:
            room = self.splitter.room()
            direct = 0
            if room is not None:
                direct = min(len(room), len(data))
                room[:direct] = data[:direct]
                room.release()
            rest = data[direct : direct + SHARED]
            self.shared[: len(rest)] = rest
            data = data[direct + len(rest) :]
            if room is not None:
                whole = self.splitter.filled(direct)
                if whole is not None:
                    frames.append(whole)
            if rest:
                frames += self.splitter.feed(self.shared[: len(rest)])
        return frames


def test_whole_frames_in_one_piece() -> None:
    splitter = FrameSplitter(LIMIT)
    data = [framed(b"one"), framed(b""), framed(b"three")]
    assert splitter.feed(memoryview(b"".join(data))) == data
    assert (splitter.held, splitter.room()) == (0, None)


def test_byte_by_byte() -> None:
    splitter = FrameSplitter(LIMIT)
    data = b"".join(framed(payload) for payload in (b"one", b"", b"three" * 20))
    frames = []
    for place in range(len(data)):
        frames += splitter.feed(memoryview(data)[place : place + 1])
    assert b"".join(frames) == data
    assert len(frames) == 3


@pytest.mark.parametrize("seed", range(40))
def test_however_it_is_cut_the_frames_are_the_same(seed: int) -> None:
    whole = [framed(payload) for payload in payloads(seed)]
    splitter, reader = FrameSplitter(LIMIT), Reader()
    fed: list[bytearray] = []
    received: list[bytearray] = []
    for piece in cuts(b"".join(whole), seed):
        fed += splitter.feed(memoryview(piece))
        received += reader.receive(piece)
        assert fed == received
        assert bool(splitter.held) == bool(reader.splitter.held)
    assert fed == whole
    assert received == whole
    assert not splitter.held
    assert not reader.splitter.held


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_any_cut(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, parts))
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader, frames = Reader(), []
    for start, end in zip([0, *places], [*places, len(stream)], strict=True):
        frames += reader.receive(stream[start:end])
    assert frames == [framed(part) for part in parts]


def test_frames_are_independent_of_the_buffer_and_of_each_other() -> None:
    buffer = bytearray(framed(b"one") + framed(b"two") + framed(b"x" * 100)[:50])
    splitter = FrameSplitter(LIMIT)
    one, two = splitter.feed(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    one[4:] = b"ONE"
    assert (one, two) == (framed(b"ONE"), framed(b"two"))
    (third,) = splitter.feed(memoryview(b"x" * 54))
    assert third == framed(b"x" * 100)


@pytest.mark.parametrize("length", [-1, -(1 << 31), 101, (1 << 31) - 1])
@pytest.mark.parametrize("before", [b"", framed(b"fine")])
def test_lengths_out_of_range_are_refused(length: int, before: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="at most 100"):
        FrameSplitter(100).feed(memoryview(before + length.to_bytes(4, "big", signed=True)))
    splitter = FrameSplitter(100)
    with pytest.raises(RemoteProtocolError):
        for byte in before + length.to_bytes(4, "big", signed=True):
            splitter.feed(memoryview(bytes([byte])))


def test_the_longest_frame_is_taken() -> None:
    assert FrameSplitter(100).feed(memoryview(framed(b"x" * 100))) == [framed(b"x" * 100)]


def test_a_claimed_length_alone_costs_little() -> None:
    splitter = FrameSplitter(100 << 20)
    splitter.feed(memoryview((100 << 20).to_bytes(4, "big")))
    assert 0 < splitter.held <= 4096


def test_what_is_held_stays_near_to_what_has_come() -> None:
    reader = Reader(100 << 20)
    reader.receive((100 << 20).to_bytes(4, "big"))
    come = 0
    for size in (1, 1000, 65_536, 100_000, 500_000, 1_000_000, 1_000_000):
        reader.receive(bytes(size))
        come += size
        assert come <= reader.splitter.held <= 2 * come + (1 << 21)


def test_a_part_of_a_prefix_is_held_and_counts_as_a_frame() -> None:
    splitter = FrameSplitter(LIMIT)
    assert splitter.feed(memoryview(b"\0\0")) == []
    assert (splitter.held, splitter.room()) == (2, None)
    assert splitter.feed(memoryview(b"\0\x01x")) == [framed(b"x")]
    assert splitter.held == 0


def test_what_has_come_of_a_frame_is_freed_when_it_is_dropped() -> None:
    splitter = FrameSplitter(LIMIT)
    splitter.feed(memoryview(framed(bytes(1000))[:500]))
    splitter.drop()
    assert not splitter.held


@pytest.mark.parametrize("size", [1, 4, 5, 6, 100])
def test_only_produce_requests_may_be_longer_than_others(size: int) -> None:
    produce, metadata = framed(b"\0\0" + bytes(200)), framed(b"\0\3" + bytes(200))

    def feed(data: bytes) -> list[bytearray]:
        splitter, found = FrameSplitter(LIMIT, 100), list[bytearray]()
        for at in range(0, len(data), size):
            found += splitter.feed(memoryview(data[at : at + size]))
        return found

    assert feed(produce) == [produce]
    assert feed(framed(b"\0\3" + bytes(98)) + produce) == [framed(b"\0\3" + bytes(98)), produce]
    with pytest.raises(RemoteProtocolError, match=r"request\.max\.bytes"):
        feed(metadata)


def test_a_client_of_tls_is_named_as_one() -> None:
    with pytest.raises(RemoteProtocolError, match="the first bytes are those of TLS"):
        FrameSplitter(100).feed(memoryview(b"\x16\x03\x01\x02\x00\x01"))
