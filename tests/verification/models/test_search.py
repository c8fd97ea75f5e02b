"""The search itself, on a model that one can count."""

from collections.abc import Iterator

import pytest

from verification.models.search import Search


def moves(state: int) -> Iterator[tuple[str, int]]:
    if state < 50:
        yield "add one", state + 1
        yield "double", 2 * state


def broken(state: int) -> list[str]:
    return ["F1 forty"] if state == 40 else ["F2 large"] if state >= 60 else []


def test_the_first_trace_is_a_shortest_one() -> None:
    found = Search(moves, broken, 1000).run(1)
    assert not found.is_cut
    assert found.traces["F1 forty"] == ["add one", "double", "add one", *["double"] * 3]
    assert set(found.traces) == {"F1 forty", "F2 large"}


def test_it_ends_at_the_flaw_that_is_searched_for() -> None:
    found = Search(moves, broken, 1000).run(1, "F2")
    assert len(found.traces["F2 large"]) == 6  # 1, 2, 4, 8, 16, 32, 64
    assert found.states < Search(moves, broken, 1000).run(1).states


def test_nothing_is_explored_after_a_broken_invariant() -> None:
    assert Search(moves, lambda state: ["F0"] if state == 2 else [], 1000).run(1).states == 2


def test_it_ends_where_there_are_too_many_states() -> None:
    found = Search(lambda state: [("add one", state + 1)], lambda _: [], 10).run(0)
    assert found.is_cut
    assert found.states == 11


def _line(state: int) -> list[tuple[str, int]]:
    """Up to 3, where a fault leads to 9."""
    return [("next", state + 1)] if state < 3 else [("fault", 9)] if state == 3 else []


@pytest.mark.parametrize(
    ("ends", "faults", "found"),
    [
        ({9}, set[str](), {}),
        ({9}, {"fault"}, {"stuck": []}),
        ({3, 9}, {"fault"}, {}),
        ({3}, {"fault"}, {"stuck": ["next", "next", "next", "fault"]}),
    ],
)
def test_each_state_must_lead_to_an_end_without_faults(
    ends: set[int], faults: set[str], found: dict[str, list[str]]
) -> None:
    search: Search[int] = Search(_line, lambda _: (), 100)
    assert search.run_to_end(0, ends.__contains__, faults.__contains__, "stuck").traces == found


def test_what_is_cut_off_or_broken_is_not_said_to_be_stuck() -> None:
    cut: Search[int] = Search(lambda state: [("next", state + 1)], lambda _: (), 10)
    assert cut.run_to_end(0, lambda _: False, lambda _: False, "stuck").is_cut
    broken: Search[int] = Search(_line, lambda state: ["broken"] if state == 2 else [], 10)
    assert broken.run_to_end(0, lambda _: False, lambda _: False, "stuck").traces == {"broken": ["next", "next"]}
