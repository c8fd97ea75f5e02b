"""Group offsets until the broker has them: each partition's newest."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.codec._generated.transaction_offsets import TransactionOffsets, TransactionOffsetsPartition
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.unmirrored_offsets import UnmirroredOffsets, offsets_bytes, places_of, superseded, with_newest
from tests.txn.bodies import offsets, producer

SMALL = offsets(1, producer(100, 0), "g", {("t", 0): 1})
A, B, C = ("t", 0), ("t", 1), ("u", 0)


def of(epoch: int, moved: Mapping[TopicPartition, int], group: str = "g") -> TransactionOffsets:
    return offsets(1, producer(100, epoch), group, moved)


def kept(*records: TransactionOffsets) -> UnmirroredOffsets:
    found = UnmirroredOffsets()
    for record in records:
        found.add(Producer(record.producer_id, record.epoch), record)
    return found


def newest(found: UnmirroredOffsets, group: str = "g") -> dict[TopicPartition, int]:
    """By partition, as a reader of all records in their order finds it."""
    return {
        (topic.name, row.index): row.offset
        for (_, name), records in found.items()
        for record in records
        for topic in record.topics
        for row in topic.partitions
        if name == group
    }


def test_a_later_commit_supersedes_the_earlier_ones_of_the_same_partitions() -> None:
    found = kept(of(0, {A: 1, B: 2, C: 3}), of(1, {A: 4}), of(2, {B: 5, A: 6}))
    assert newest(found) == {C: 3, B: 5, A: 6}
    assert [sum(len(places_of(record)) for record in records) for records in found.values()] == [1, 0, 2]
    assert list(found) == [(producer(100, epoch), "g") for epoch in range(3)], "each is to be named by MIRRORED"


def test_groups_are_apart() -> None:
    found = kept(of(0, {A: 1}), of(1, {A: 2}, "h"))
    assert (newest(found), newest(found, "h")) == ({A: 1}, {A: 2})


def test_what_one_transaction_says_twice_counts_as_said_last() -> None:
    first = of(0, {A: 1, B: 2})
    assert newest(kept(first, of(0, {A: 3}))) == {A: 3, B: 2}
    assert with_newest([first], of(0, {A: 3})) == [of(0, {B: 2}), of(0, {A: 3})]
    assert with_newest([first], of(0, {B: 3, A: 4})) == [of(0, {B: 3, A: 4})]
    assert with_newest([first], of(0, {A: 3}, "h")) == [first, of(0, {A: 3}, "h")]


def test_what_the_broker_has_is_forgotten() -> None:
    found = kept(of(0, {A: 1}), of(1, {A: 2, B: 3}))
    assert found.remove(producer(100, 1), "g")
    assert not found.remove(producer(100, 1), "g")
    assert not found.remove(producer(100, 0), "h")
    found.add(producer(100, 2), of(2, {A: 4}))
    assert newest(found) == {A: 4}
    for epoch in (0, 2):
        assert found.remove(producer(100, epoch), "g")
    assert (len(found), found.size) == (0, 0)


def test_what_is_written_leaves_the_newest_offsets_of_other_partitions_to_be_superseded() -> None:
    found = kept(of(0, {A: 1}), of(1, {B: 1}))
    assert found.remove(producer(100, 0), "g")
    found.add(producer(100, 2), of(2, {B: 3}))
    assert newest(found) == {B: 3}
    assert found[producer(100, 1), "g"] == [of(1, {})]


def test_offsets_of_another_group_are_not_superseded_whatever_its_name() -> None:
    for former, later in ("gh", "hg"):
        records = [of(0, {A: 1}, former), of(0, {A: 3}, later)]
        assert with_newest(records[:1], records[1]) == records


@pytest.mark.parametrize(
    "longer",
    [
        SMALL.replaced(group_id="g" + 100 * "x"),
        SMALL.replaced(member_id=100 * "x"),
        SMALL.replaced(group_instance_id=100 * "x"),
        SMALL.replaced(topics=[SMALL.topics[0].replaced(name="t" + 100 * "x")]),
        SMALL.replaced(
            topics=[SMALL.topics[0].replaced(partitions=[TransactionOffsetsPartition(0, 1, -1, 100 * "x")])]
        ),
    ],
    ids=["group", "member", "static member", "topic", "metadata"],
)
def test_the_size_counts_what_a_client_chooses(longer: TransactionOffsets) -> None:
    assert offsets_bytes(longer) == offsets_bytes(SMALL) + 100


def test_offsets_without_metadata_take_no_more_room() -> None:
    row = TransactionOffsetsPartition(0, 1, -1, None)
    assert offsets_bytes(SMALL.replaced(topics=[SMALL.topics[0].replaced(partitions=[row])])) == offsets_bytes(SMALL)


def test_each_partition_takes_room() -> None:
    assert offsets_bytes(of(0, {A: 1, B: 1})) - offsets_bytes(of(0, {A: 1})) >= 100


def test_a_record_is_not_changed_by_what_supersedes_it() -> None:
    record = of(0, {A: 1, C: 2})
    assert superseded(record, {A}) == of(0, {C: 2})
    assert record == of(0, {A: 1, C: 2})


def test_of_a_group_that_is_never_written_the_partitions_count_not_the_commits() -> None:
    wide = {("t", index): 1 for index in range(1_000)}
    found = kept(*(of(epoch, wide) for epoch in range(20)))
    assert found.size < offsets_bytes(of(0, wide)) + 20 * offsets_bytes(of(0, {}))


_records = st.builds(
    of,
    st.integers(0, 4),
    st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 9), max_size=3),
    st.sampled_from("gh"),
)


@given(st.lists(st.one_of(_records, st.tuples(st.integers(0, 4), st.sampled_from("gh"))), max_size=20))
def test_to_supersede_changes_no_newest_offset_and_the_size_is_that_of_what_is_kept(
    steps: list[TransactionOffsets | tuple[int, str]],
) -> None:
    """As if all records were kept, unless what supersedes others is written first, as no mirror does."""
    found, all_records = UnmirroredOffsets(), dict[tuple[Producer, str], list[TransactionOffsets]]()
    for step in steps:
        if isinstance(step, TransactionOffsets):
            part = Producer(step.producer_id, step.epoch)
            if any(one > part and group == step.group_id for one, group in all_records):
                continue  # epochs are committed in their order
            found.add(part, step)
            all_records.setdefault((part, step.group_id), []).append(step)
        else:
            part, group = producer(100, step[0]), step[1]
            for one in sorted(one for one, name in all_records if name == group and one <= part):
                del all_records[one, group]
                assert found.remove(one, group)
        assert list(found) == list(all_records)
        assert found.size == sum(offsets_bytes(record) for records in found.values() for record in records)
        for group in "gh":
            whole = {
                (topic.name, row.index): row.offset
                for (_, name), records in all_records.items()
                for record in records
                for topic in record.topics
                for row in topic.partitions
                if name == group
            }
            assert newest(found, group) == whole
