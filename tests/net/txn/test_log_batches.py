"""Batches of the transaction log out of a Fetch response."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.codec.batch import Record, build_batch
from kproxy.net.txn.log_batches import LogBatch, read_batches


def batch(first: int, *values: bytes, codec: int = 0, control: bool = False) -> bytes:
    rows = [Record(n, 0, b"k", value) for n, value in enumerate(values)]
    return bytes(build_batch(rows, base_offset=first, codec=codec, is_control=control, is_transactional=control))


def values(batches: list[LogBatch]) -> list[bytes | None]:
    return [row.value for found in batches for row in found.records]


@given(
    st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=4), max_size=6),
    st.integers(0, 30),
    st.integers(0, 2000),
    st.sampled_from([0, 1]),
)
def test_whole_batches_from_an_offset_on(groups: list[list[bytes]], position: int, cut: int, codec: int) -> None:
    data, expected, offset, size = b"", [], 0, 0
    for group in groups:
        data += batch(offset, *group, codec=codec)
        if len(data) <= cut:
            expected += [value for n, value in enumerate(group, offset) if n >= position]
            size = offset + len(group)
        offset += len(group)
    found, damage = read_batches(memoryview(data[:cut]), position)
    assert damage is None
    assert values(found) == expected
    assert not found or found[-1].next_offset == size


def test_a_batch_that_ends_before_the_offset_is_left_out() -> None:
    found, _ = read_batches(memoryview(batch(0, b"a") + batch(1, b"b")), 1)
    assert [one.header.base_offset for one in found] == [1]


def test_a_marker_has_an_end_and_no_records() -> None:
    found, damage = read_batches(memoryview(batch(0, b"a") + batch(1, b"marker", control=True)), 0)
    assert values(found) == [b"a"]
    assert found[-1].next_offset == 2
    assert damage is None


@pytest.mark.parametrize("at", [8, 16, 20, 30, -1])
def test_what_lies_after_damage_is_left_out(at: int) -> None:
    broken = bytearray(batch(1, b"b"))
    broken[at] ^= 0x80
    found, damage = read_batches(memoryview(batch(0, b"a") + bytes(broken) + batch(2, b"c")), 0)
    assert values(found) == [b"a"]
    assert damage is not None
