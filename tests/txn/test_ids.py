"""Producer ids with both bits, and the partition of an id: Java's numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.txn.ids import (
    BLOCK_EPOCHS,
    LAST_EPOCH,
    TXN_BITS,
    client_producer_id,
    is_transactional_producer_id,
    reject_partition,
)
from kproxy.txn.ids import log_partition as partition_of

#: As ``"…".hashCode()`` gives them in Java.
HASHES = {
    "": 0,
    "a": 97,
    "hello": 99162322,
    "my-transactional-id": -959806496,
    "polygenelubricants": -(1 << 31),
    "é": 233,
    "😀": 1772899,
}


def java_hash(text: str) -> int:
    """The sum that the Java documentation gives, without a loop that overflows."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    whole = sum(code * 31 ** (len(codes) - 1 - at) for at, code in enumerate(codes))
    return (whole + (1 << 31)) % (1 << 32) - (1 << 31)


@pytest.mark.parametrize(("text", "value"), HASHES.items())
def test_the_partition_is_that_of_javas_hash_code(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert partition_of(text, 50) == (value & 0x7FFF_FFFF) % 50  # Utils.toPositive


def test_known_partitions_never_change() -> None:
    assert [partition_of(name, 50) for name in ("", "a", "hello", "my-transactional-id")] == [0, 47, 22, 2]
    assert partition_of("polygenelubricants", 50) == 0  # the one whose absolute value is negative


@given(st.text(st.characters(), max_size=40), st.integers(1, 200))
def test_every_id_has_a_partition(name: str, partitions: int) -> None:
    assert partition_of(name, partitions) == (java_hash(name) & 0x7FFF_FFFF) % partitions


@given(st.integers(0, (1 << 61) - 1))
def test_clients_see_the_producer_id_that_brokers_gave(given_id: int) -> None:
    assert is_transactional_producer_id(given_id | TXN_BITS)
    assert client_producer_id(given_id | TXN_BITS) == given_id
    assert given_id | TXN_BITS < 1 << 63


@pytest.mark.parametrize("other", [-1, 0, 4000, 1 << 62, 1 << 62 | 4000, 1 << 61, -1 << 61, -(1 << 63)])
def test_other_producer_ids_are_not_taken_for_transactional_ones(other: int) -> None:
    assert not is_transactional_producer_id(other)


def test_blocks_end_below_the_last_epoch_that_brokers_take() -> None:
    assert LAST_EPOCH < 32_767
    assert BLOCK_EPOCHS > 1


@given(st.integers(1, (1 << 61) - 1), st.integers(1, 100))
def test_a_producer_id_is_rejected_in_one_partition(number: int, partitions: int) -> None:
    assert reject_partition(TXN_BITS | number, partitions) == number % partitions
