import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.varint import VARINTS, encode_varint, read_varint
from kproxy.errors import RemoteProtocolError

LIMIT = 1 << 63


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        *((0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f")),
        *((LIMIT - 1, "feffffffffffffffff01"), (-LIMIT, "ffffffffffffffffff01")),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == VARINTS[value].hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@settings(max_examples=100, deadline=None)
@given(st.integers(-LIMIT, LIMIT - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_what_is_written_is_read(value: int, before: bytes, behind: bytes) -> None:
    encoded = encode_varint(value)
    assert VARINTS[value] == encoded
    assert read_varint(before + encoded + behind, len(before)) == (value, len(before) + len(encoded))
    with pytest.raises(RemoteProtocolError):
        read_varint(encoded[:-1], 0)


def test_the_table_does_not_grow() -> None:
    size = len(VARINTS)
    assert VARINTS[10**12] == encode_varint(10**12)
    assert len(VARINTS) == size


def test_eleven_bytes_are_too_many() -> None:
    with pytest.raises(RemoteProtocolError):
        read_varint(b"\xff" * 10 + b"\x01", 0)
