import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.zstd_frame import content_bound, declared_size
from kproxy.errors import RemoteProtocolError
from tests.codec.compressible import TEXT

BLOCK = 1 << 17
#: A magic number, a descriptor without a content size, and a window of 1 KiB.
START = b"\x28\xb5\x2f\xfd\0\0"
SKIPPED = b"\x5f\x2a\x4d\x18\x03\0\0\0abc"


def streamed(*parts: bytes) -> bytes:
    """A frame that declares no content size, with a block for each part."""
    writer = cramjam.zstd.Compressor(3)
    out = b""
    for part in parts:
        writer.compress(part)
        out += bytes(writer.flush())
    return out + bytes(writer.finish())


def block(kind: int, size: int, content: bytes = b"", *, last: bool = True) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + content


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=500), max_size=5), st.integers(1, 2000))
def test_content_is_within_the_bound(parts: list[bytes], times: int) -> None:
    whole = b"".join(parts) * times
    packed = bytes(cramjam.zstd.compress(whole, 3))
    assert content_bound(packed) == declared_size(packed) == len(whole)
    assert sum(map(len, parts)) <= content_bound(streamed(*parts)) <= BLOCK * (len(parts) + 1)


def test_frames_are_added_and_skipped() -> None:
    packed = bytes(cramjam.zstd.compress(TEXT, 3))
    assert content_bound(SKIPPED + packed + SKIPPED + packed) == 2 * len(TEXT)
    assert declared_size(SKIPPED + packed) is None
    assert content_bound(b"") == content_bound(SKIPPED) == 0


def test_blocks_hold_what_their_headers_say() -> None:
    assert content_bound(START + block(0, 5, b"12345", last=False) + block(1, 1000, b"x")) == 1005
    assert content_bound(START + block(2, 3, b"abc")) == BLOCK


@pytest.mark.parametrize(
    "damage", [block(3, 1, b"x"), block(0, BLOCK + 1, bytes(BLOCK + 1)), block(0, 5, b"1234"), b""]
)
def test_blocks_that_there_are_not(damage: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        content_bound(START + damage)


@pytest.mark.parametrize("packed", [bytes(cramjam.zstd.compress(TEXT[:300], 3)), streamed(b"abc", TEXT[:300]), SKIPPED])
def test_cut_anywhere_or_followed_by_more(packed: bytes) -> None:
    for end in range(1, len(packed)):
        with pytest.raises(RemoteProtocolError):
            content_bound(packed[:end])
    with pytest.raises(RemoteProtocolError):
        content_bound(packed + b"\x01")
