import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.crc32c import crc32c, mend, shift


def test_the_check_value_of_the_catalogue() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("length", [0, 1, 3, 4095, 4096, 4097, 8191, 12288, 100_000, (1 << 20) + 17])
def test_a_shift_is_what_equal_bytes_make_of_a_difference(length: int) -> None:
    before, after, rest = b"some header", b"more header", bytes(range(251)) * (length // 251 + 1)
    delta = crc32c(before) ^ crc32c(after)
    assert shift(delta, length) == crc32c(before + rest[:length]) ^ crc32c(after + rest[:length])


def test_a_shift_far_beyond_any_buffer_is_the_sum_of_its_halves() -> None:
    assert shift(0x12345678, (1 << 31) - 1) == shift(shift(0x12345678, 1 << 30), (1 << 30) - 1)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=9000), st.data())
def test_mending_equals_computing_from_scratch(prefix: bytes, rest: bytes, data: st.DataObject) -> None:
    old = data.draw(st.binary(min_size=14, max_size=14))
    new = data.draw(st.binary(min_size=14, max_size=14))
    assert mend(crc32c(prefix + old + rest), old, new, len(rest)) == crc32c(prefix + new + rest)
