"""Digests of many records in one block."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.dedup.digest import UNTIMED, Digest, Digests, have_same_time

rows = st.lists(st.builds(Digest, st.sampled_from([bytes([n]) * 16 for n in range(5)]), st.integers(-1, 3)), max_size=9)


def test_only_a_time_of_the_client_is_the_same() -> None:
    one, later, untimed = (Digest(b"a", time) for time in (7, 8, UNTIMED))
    assert have_same_time(one, one)
    assert not have_same_time(one, later)
    assert not have_same_time(untimed, untimed)


@given(rows, rows)
def test_they_are_as_a_list_of_them(some: list[Digest], others: list[Digest]) -> None:
    held = Digests.of(some)
    assert list(held) == some
    assert [held[at] for at in range(-len(some), len(some))] == some * 2
    assert (len(held), bool(held)) == (len(some), bool(some))
    assert list(held.contents()) == [row.content for row in some]
    assert list(held.times) == [row.timestamp_ms for row in some]
    assert (held == Digests.of(others)) == (some == others)
    assert list(held[1:3]) == some[1:3]
    assert list(held.chosen([0, *range(len(some))][len(some) < 1 :])) == some[:1] + some
    assert held != some


@pytest.mark.parametrize("at", [2, -3])
def test_there_is_none_beyond_the_last(at: int) -> None:
    held = Digests.of([Digest(b"a" * 16, 1)] * 2)
    with pytest.raises(IndexError):
        held[at]


@pytest.mark.parametrize("number", [3, 3_000])
@pytest.mark.parametrize("made", [Digests.of, lambda rows: Digests.of(rows).chosen(range(len(rows)))])
def test_whether_one_is_among_them_is_known_by_few_or_many(
    number: int, made: Callable[[list[Digest]], Digests]
) -> None:
    """Of many records a sorted part of each content is kept once few are searched."""
    contents = [at.to_bytes(16, "little") for at in range(number)]
    held = made([Digest(content, 1) for content in contents])
    first_size = held.size
    for content in contents[:: max(number // 5, 1)]:
        assert held.has_any(Digests.of([Digest(content, 2)]).keys)
    strange = Digests.of(Digest((number + at).to_bytes(16, "little"), 1) for at in range(number))
    assert not held.has_any(strange[:1].keys)
    assert not held.has_any(strange.keys)
    assert held.has_any(strange.keys | held[:1].keys)
    assert held.size == first_size + (8 * number if number > 16 else 0)
