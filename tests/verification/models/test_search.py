"""The search itself, on a model that one can count."""

from collections.abc import Iterator

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
