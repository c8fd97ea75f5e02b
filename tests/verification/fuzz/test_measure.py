from collections.abc import Callable

import pytest

from verification.fuzz.measure import bounded, cost
from verification.fuzz.target import Bound, Finding, Target


def target(check: Callable[[bytes], None]) -> Target:
    return Target("some", check, list, Bound(steps=200, steps_of_byte=20, memory=5_000, memory_of_byte=10), ())


def linear(data: bytes) -> None:
    for _ in data:
        pass


def quadratic(data: bytes) -> None:
    for _ in data:
        linear(data)


def greedy(data: bytes) -> None:
    bytearray(100 * len(data))


def failing(data: bytes) -> None:
    raise ValueError


def test_what_grows_with_the_input_is_within_the_bound_and_what_grows_with_its_square_is_not() -> None:
    for size in (0, 10, 1000):
        bounded(target(linear), bytes(size))
    bounded(target(quadratic), bytes(3))
    with pytest.raises(Finding, match="instructions for 1000 bytes"):
        bounded(target(quadratic), bytes(1000))


def test_memory_beyond_the_bound() -> None:
    bounded(target(greedy), bytes(10))
    with pytest.raises(Finding, match="of memory for 1000 bytes"):
        bounded(target(greedy), bytes(1000))


def test_costs_are_the_same_each_time() -> None:
    assert cost(target(linear), bytes(500)).steps == cost(target(linear), bytes(500)).steps > 500


def test_what_the_check_raises_is_raised() -> None:
    with pytest.raises(ValueError):
        bounded(target(failing), b"")
