"""What ways write, before any broker has it."""

from collections.abc import Callable

from bench.homes_ways import Write, many, one_each


def _written(write: Callable[[Write], None]) -> list[tuple[bytes, int]]:
    found: list[tuple[bytes, int]] = []
    write(lambda value, partition: found.append((value, partition)))
    return found


def test_a_transaction_has_its_name_in_each_partition() -> None:
    name, write = one_each(3)
    assert _written(write) == [(name, 0), (name, 1), (name, 2)]
    assert one_each(3)[0] != name


def test_many_records_go_to_the_partitions_in_turn() -> None:
    assert _written(many(3, 2, b"x")) == [(b"x", 0), (b"x", 1), (b"x", 0)]
