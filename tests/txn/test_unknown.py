"""What readers have met and the log does not know: bounded, the lowest offset of each partition."""

from hypothesis import given
from hypothesis import strategies as st

from kproxy.txn.unknown import Met, UnknownProducers


def test_each_id_is_reported_with_where_it_was_met_first() -> None:
    unknown = UnknownProducers()
    unknown.note(7, "t", 0, 5)
    unknown.note(8, "t", 0, 3)
    unknown.note(7, "u", 1, 9)
    unknown.note(7, "t", 0, 4)
    unknown.note(7, "t", 0, 6)
    assert list(unknown) == [Met(7, "t", 0, 4), Met(8, "t", 0, 3)]
    assert [unknown.bound("t", 0), unknown.bound("u", 1), unknown.bound("u", 0)] == [3, 9, None]
    unknown.forget(8)
    unknown.forget(9)
    assert 8 not in unknown
    assert unknown.bound("t", 0) == 4
    unknown.forget(7)
    assert [unknown.bound("t", 0), unknown.bound("u", 1)] == [None, None]


def test_no_more_are_noted_than_may_be() -> None:
    unknown = UnknownProducers(most=2, most_places=3)
    for producer_id in (1, 2, 3):
        unknown.note(producer_id, "t", 0, producer_id)
    assert [one.producer_id for one in unknown] == [1, 2]
    unknown.note(2, "t", 1, 7)
    unknown.note(2, "t", 2, 7)
    unknown.note(2, "t", 1, 6)
    assert [unknown.bound("t", index) for index in range(3)] == [1, 6, None]
    unknown.forget(2)
    unknown.note(3, "t", 2, 7)
    assert [one.producer_id for one in unknown] == [1, 3]
    for index in range(9):
        unknown.note(3, "u", index, 7)
    assert sum(unknown.bound("u", index) is not None for index in range(9)) == 1


_notes = st.tuples(st.integers(1, 4), st.sampled_from("tu"), st.integers(0, 1), st.integers(0, 9))


@given(st.lists(_notes | st.integers(1, 4)))
def test_the_bound_is_the_lowest_of_all_that_are_noted(steps: list[tuple[int, str, int, int] | int]) -> None:
    unknown, noted = UnknownProducers(), dict[tuple[int, str, int], int]()
    for step in steps:
        if isinstance(step, int):
            unknown.forget(step)
            noted = {key: offset for key, offset in noted.items() if key[0] != step}
        else:
            unknown.note(*step)
            noted[step[:3]] = min(step[3], noted.get(step[:3], 99))
    assert {one.producer_id for one in unknown} == {key[0] for key in noted}
    for topic in "tu":
        for index in range(2):
            offsets = [offset for key, offset in noted.items() if key[1:] == (topic, index)]
            assert unknown.bound(topic, index) == min(offsets, default=None)
