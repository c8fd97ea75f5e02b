"""The verdict finds what is missing, doubled or torn, and finds nothing where all is well."""

import json
from collections import Counter

import pytest

from verification.spark_proof.verdict import Exactness, Outcome, Seen, TopicPartition, batch_of, exactness, torn_moments

# Two partitions of the input, two batches: numbers 0 to 3, then 4 to 7.
_ENDS = {0: [2, 4], 1: [2, 4]}
_A, _B = TopicPartition("a", 0), TopicPartition("b", 0)
_WHOLE = {_A: [0, 2, 1, 3, 4, 6, 5, 7], _B: [1, 0, 3, 2, 7, 6, 5, 4]}


def test_numbers_are_counted() -> None:
    assert exactness([2, 0, 1], 3) == Exactness(3, 0, 0)
    assert exactness([2, 0, 0], 3) == Exactness(3, 1, 1)
    assert exactness([0, 1, 2, 9, -1], 3) == Exactness(5, 0, 2)
    assert not exactness([], 1).holds


def test_a_number_knows_its_batch() -> None:
    assert [batch_of(number, _ENDS, 2) for number in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "looks",
    [
        [],
        [(_A, 0), (_B, 4), (_A, 4), (_B, 4), (_A, 8), (_B, 8)],
        [(_A, 8), (_B, 8)],
    ],
)
def test_whole_batches_are_well(looks: list[tuple[TopicPartition, int]]) -> None:
    assert torn_moments([Seen(*look) for look in looks], _WHOLE, _ENDS, 2) == []


def test_a_part_of_a_batch_is_torn() -> None:
    assert torn_moments([Seen(_A, 6)], _WHOLE, _ENDS, 2) == ["a-0 showed a part of batch 1"]


def test_a_topic_that_lags_another_is_torn() -> None:
    found = torn_moments([Seen(_A, 8), Seen(_B, 4)], _WHOLE, _ENDS, 2)
    assert found == ["b-0 showed 4 records when others showed batch 1, of which it has 8"]
    assert torn_moments([Seen(_A, 8), Seen(_A, 4)], _WHOLE, _ENDS, 2)


def test_batches_out_of_order_are_torn() -> None:
    assert torn_moments([], {_A: [4, 0]}, _ENDS, 2) == ["a-0 has batches out of order"]


def test_an_outcome_holds_if_all_of_it_does() -> None:
    outcome = Outcome("kproxy", 3, {"a": exactness([0, 1, 2], 3)}, torn=[])
    assert outcome.holds
    outcome.torn = ["a-0 showed a part of batch 1"]
    assert not outcome.holds
    assert not Outcome("kproxy", 3, {"a": exactness([0, 1, 2], 3)}, torn=[], bugs=["Traceback"]).holds
    assert not Outcome("kafka", 3, {"a": exactness([0, 1, 2, 2], 3)}).holds


def test_an_outcome_is_written_to_a_file() -> None:
    outcome = Outcome("kafka", 3, {"a": exactness([0, 1, 2, 2], 3)}, kills=Counter(driver=2))
    found = json.loads(json.dumps(outcome.as_json()))
    assert found["topics"] == {"a": {"records": 4, "missing": 0, "duplicates": 1}}
    assert (found["kills"], found["holds"], found["duplicates"]) == ({"driver": 2}, False, 1)
