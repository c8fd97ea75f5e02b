from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.spark.fetching import Range
from kproxy.spark.kafka_cluster import TopicPartition
from kproxy.spark.offsets import Offsets, begun_in, from_json, limited, ranges, split, to_json

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
_PARTITIONS = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 20))
_STARTS = st.dictionaries(_PARTITIONS, st.integers(0, 10**6), min_size=1, max_size=12)


def test_the_json_form_is_that_of_sparks_kafka_source() -> None:
    assert to_json({B0: 3, A1: 2, A0: 1}) == {"a": {"0": 1, "1": 2}, "b": {"0": 3}}


@settings(deadline=None, max_examples=60)
@given(_STARTS)
def test_json_there_and_back(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(offsets)) == offsets
    assert begun_in(to_json(offsets)) == {}


@settings(deadline=None, max_examples=60)
@given(_STARTS, _STARTS)
def test_beginnings_stand_beside_the_offsets(offsets: Offsets, begun: Offsets) -> None:
    written = to_json(offsets, begun)
    assert (from_json(written), begun_in(written)) == (offsets, begun)


def test_empty_and_inverted_ranges_are_left_out() -> None:
    assert ranges({A0: 0, A1: 5, B0: 7}, {A0: 3, A1: 5, B0: 2}) == [Range(A0, 0, 3)]


def test_big_partitions_are_cut_small_ones_stay_whole() -> None:
    cut = split([Range(A0, 0, 900), Range(A1, 10, 20)], 4)
    assert cut == [
        Range(A0, 0, 225),
        Range(A0, 225, 450),
        Range(A0, 450, 675),
        Range(A0, 675, 900),
        Range(A1, 10, 20),
    ]
    assert split([Range(A0, 0, 900), Range(A1, 10, 20)], 2) == [Range(A0, 0, 900), Range(A1, 10, 20)]
    assert split([], 5) == []


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=9), st.integers(1, 40))
def test_pieces_follow_each_other_and_none_is_empty(sizes: list[int], at_least: int) -> None:
    whole = [Range(TopicPartition("t", index), 3, 3 + size) for index, size in enumerate(sizes)]
    pieces = split(whole, at_least)
    for one in whole:
        mine = [piece for piece in pieces if piece.partition == one.partition]
        assert mine[0].start == one.start and mine[-1].end == one.end
        assert all(left.end == right.start for left, right in pairwise(mine))
        assert all(piece.size > 0 for piece in mine)


@settings(deadline=None, max_examples=60)
@given(_STARTS, st.data(), st.integers(1, 10**6))
def test_a_limit_is_used_up_and_never_exceeded(
    start: dict[TopicPartition, int], data: st.DataObject, most: int
) -> None:
    end = {each: at + data.draw(st.integers(0, 10**6)) for each, at in start.items()}
    there = sum(end[each] - start[each] for each in end)
    taken = limited(start, end, most)
    assert taken.keys() == end.keys()
    assert all(start[each] <= taken[each] <= end[each] for each in end)
    assert sum(taken[each] - start[each] for each in end) == min(there, most)


@settings(deadline=None, max_examples=60)
@given(_STARTS, st.data(), st.integers(1, 50))
def test_under_a_limit_all_is_read_in_the_end(start: dict[TopicPartition, int], data: st.DataObject, most: int) -> None:
    end = {each: at + data.draw(st.integers(0, 300)) for each, at in start.items()}
    rounds = -(-sum(end[each] - start[each] for each in end) // most)
    for _ in range(rounds):
        start = limited(start, end, most)
    assert start == end


def test_a_partition_that_became_shorter_ends_where_it_ends() -> None:
    assert limited({A0: 50, A1: 0}, {A0: 20, A1: 100}, 10) == {A0: 20, A1: 10}
