"""What a restarted kproxy makes of the entries of its former self."""

import pytest

from kproxy.codec.batch import Record
from kproxy.dedup.former_lanes import MOST_BYTES, FormerLanes
from kproxy.dedup.identity import Identity
from kproxy.dedup.lane_record import LaneRecord, encode_key, encode_value
from kproxy.dedup.listed import InDoubt, ListedBatch
from kproxy.dedup.producer_ids import KPROXY_BIT

ONE, TWO = Identity("", "one", "localhost"), Identity("", "two", "localhost")


def lane(number: int, identity: Identity = ONE, *, epoch: int = 0, instance: str = "me") -> LaneRecord:
    return LaneRecord(instance, KPROXY_BIT | number, epoch, epoch + 31, identity, 1_000)


def entry(record: LaneRecord, value: bytes | None = b"", *, at_ms: int = 0) -> Record:
    return Record(0, at_ms, encode_key(record.key), encode_value(record) if value == b"" else value)


def test_of_each_producer_id_the_last_entry_counts() -> None:
    former = FormerLanes("me".__eq__)
    former.apply([entry(lane(1)), entry(lane(2)), entry(lane(1, TWO, epoch=32))])
    assert former.of(ONE) == [lane(2)]
    assert former.of(TWO) == [lane(1, TWO, epoch=32)]
    assert former.of(Identity("", "three", "localhost")) == []
    assert len(former) == 2


def test_a_tombstone_ends_a_lane() -> None:
    former = FormerLanes("me".__eq__)
    former.apply([entry(lane(1)), entry(lane(2)), entry(lane(1), None), entry(lane(3), None)])
    assert former.of(ONE) == [lane(2)]
    assert (former.newer, former.damaged) == (0, 0)


def test_other_instances_share_the_log() -> None:
    former = FormerLanes("me".__eq__)
    former.apply([entry(lane(1, instance="other")), entry(lane(1)), entry(lane(1, instance="other"), None)])
    assert former.of(ONE) == [lane(1)]


def test_nothing_that_is_written_later_is_of_the_former_process() -> None:
    former = FormerLanes("me".__eq__)
    former.apply([entry(lane(1))])
    former.complete()
    former.apply([entry(lane(1), None), entry(lane(2)), Record(0, 0, None, None)])
    assert former.of(ONE) == [lane(1)]
    assert (former.newer, former.damaged) == (0, 0)


def test_other_entries_of_the_topic_are_taken_elsewhere_also_later() -> None:
    other = entry(lane(2))
    taken: list[Record] = []

    def take(record: Record) -> bool:
        taken.append(record)
        return record is other

    former = FormerLanes("me".__eq__, others=take)
    former.apply([other, entry(lane(1))])
    assert former.of(ONE) == [lane(1)]
    former.complete()
    former.apply([other])
    assert taken.count(other) == 2


def test_entries_of_newer_versions_and_damaged_ones_are_counted_and_never_an_error() -> None:
    former = FormerLanes("me".__eq__)
    newer = b"\0\7what the future holds"
    former.apply([entry(lane(1)), entry(lane(2), newer), Record(0, 0, newer, b""), Record(0, 0, None, None)])
    former.apply([entry(lane(3), b"\0\0x")])
    assert former.of(ONE) == [lane(1)]
    assert (former.newer, former.damaged) == (2, 2)


def test_an_entry_that_a_newer_kproxy_replaced_does_not_count() -> None:
    former = FormerLanes("me".__eq__)
    former.apply([entry(lane(1)), entry(lane(1), b"\0\7more epochs")])
    assert former.of(ONE) == []


def test_memory_is_bounded_and_the_last_lanes_are_kept() -> None:
    former = FormerLanes("me".__eq__, most=3)
    former.apply(entry(lane(number)) for number in (1, 2, 3, 1, 4, 5))
    assert former.of(ONE) == [lane(1), lane(4), lane(5)]
    assert former.dropped == 2


def test_all_are_taken_once() -> None:
    former = FormerLanes("me".__eq__)
    former.apply([entry(lane(1)), entry(lane(2, TWO))])
    assert former.take_all() == [lane(1), lane(2, TWO)]
    assert former.take_all() == former.of(ONE) == former.of(TWO) == []


def test_entries_that_were_appended_before_a_time_do_not_count() -> None:
    former = FormerLanes("me".__eq__)
    former.apply([entry(lane(1), at_ms=10), entry(lane(2), at_ms=20), entry(lane(3), at_ms=30)])
    assert former.of(ONE) == [lane(1), lane(2), lane(3)]
    assert former.of(ONE, 20) == [lane(2), lane(3)]
    former.apply([entry(lane(1), at_ms=40)])  # written again: it is as old as that
    assert former.of(ONE, 30) == [lane(3), lane(1)]
    assert former.take_all(30) == [lane(3), lane(1)]
    assert len(former) == 0


def test_what_has_expired_is_freed() -> None:
    former = FormerLanes("me".__eq__)
    former.apply([entry(lane(1), at_ms=10), entry(lane(2), at_ms=20), entry(lane(3, TWO), at_ms=30)])
    former.expire(20)
    assert former.of(ONE) == [lane(2)]
    former.apply([entry(lane(4), at_ms=25)])  # from another partition
    former.expire(30)
    assert (len(former), former.of(ONE, 30), former.of(TWO)) == (2, [], [lane(3, TWO)])
    former.expire(31)
    assert len(former) == 0
    former.expire(31)


def test_identities_are_kept_within_a_bound_of_bytes() -> None:
    former = FormerLanes("me".__eq__)
    long = 30_000
    identity = Identity("User:a", "c" * long, "h")
    former.apply(entry(lane(number, identity)) for number in range(1000))
    assert former.dropped == 1000 - len(former)
    assert len(former) == MOST_BYTES // (long + len("User:a") + 1)
    taken = former.take_all()
    former.apply(map(entry, taken))
    assert len(former) == len(taken)


def listing(number: int, at_ms: int, batches: int, identity: Identity = ONE, instance: str = "me") -> LaneRecord:
    """The entry of a lane given back, when so many batches of its producer were in doubt."""
    rows = [ListedBatch((b"t", 0), KPROXY_BIT | number, 0, at, at, at_ms, False, ()) for at in range(batches)]
    return lane(number, identity, instance=instance)._replace(returned=True, in_doubt=InDoubt(at_ms, tuple(rows)))


def test_only_the_newest_list_of_a_producer_is_kept_so_that_no_lane_is_dropped_for_older_ones() -> None:
    former = FormerLanes(lambda instance: True)
    former.apply(entry(listing(number, number, 1000)) for number in range(1, 200))
    former.apply(
        [entry(listing(1000, 5, 3)), entry(listing(1001, 7, 2, TWO)), entry(listing(1002, 8, 1, ONE, "other"))]
    )
    assert (former.dropped, len(former)) == (0, 202)
    listed = {one.producer_id ^ KPROXY_BIT: one.in_doubt for one in (*former.of(ONE), *former.of(TWO))}
    assert all(row is not None for row in listed.values())
    assert {number: len(row.batches) for number, row in listed.items() if row and row.batches} == {
        199: 1000,
        1001: 2,
        1002: 1,
    }
    former.apply([entry(lane(199)), entry(listing(1, 300, 4))])
    assert [len(one.in_doubt.batches) for one in former.of(ONE) if one.in_doubt and one.in_doubt.batches] == [1, 4]


def test_lists_of_which_each_batch_is_too_old_for_a_retry_are_freed_and_still_count_as_complete() -> None:
    former = FormerLanes(lambda instance: True)
    partly = listing(2, 50, 2, TWO)
    assert partly.in_doubt is not None
    late = partly.in_doubt.batches[1]._replace(since_ms=90)
    partly = partly._replace(in_doubt=InDoubt(95, (partly.in_doubt.batches[0], late)))
    former.apply([entry(listing(1, 50, 3)), entry(partly), entry(listing(3, 60, 4, ONE, "other"))])
    assert former.listed > 0
    before = former.listed
    former.forget_lists(51)
    assert former.listed < before
    assert former.of(ONE)[0].in_doubt == InDoubt(50)
    assert former.of(ONE)[0].says_all
    assert [one.in_doubt for one in former.of(TWO)] == [InDoubt(95, (partly.in_doubt.batches[0], late))]
    former.forget_lists(91)
    assert former.listed == 0
    assert all(one.in_doubt is not None and not one.in_doubt.batches for one in (*former.of(ONE), *former.of(TWO)))
    former.apply([entry(listing(4, 40, 1)), entry(listing(5, 70, 2))])
    lists = [len(one.in_doubt.batches) for one in former.of(ONE) if one.in_doubt is not None]
    assert lists == [0, 0, 0, 2], "a list that is older than one that was freed says nothing"


def test_the_offsets_of_listed_records_take_memory_too() -> None:
    former = FormerLanes(lambda instance: True)
    one = listing(1, 50, 1)
    assert one.in_doubt is not None
    former.apply([entry(one)])
    whole = former.listed
    parted = InDoubt(50, (one.in_doubt.batches[0]._replace(offsets=tuple(range(100))),))
    former.apply([entry(one._replace(in_doubt=parted))])
    assert former.listed >= whole + 100 * 32
    former.apply([entry(one, None)])
    assert former.listed == 0


@pytest.mark.parametrize("other", ["before me", "other", "me, too"])
def test_lanes_of_another_instance_are_never_taken_for_own_ones(other: str) -> None:
    """They may be in use: to fence them would end another kproxy's connections."""
    former = FormerLanes("me".__eq__)
    former.apply([entry(lane(1, instance=other)), entry(lane(2))])
    assert former.of(ONE) == [lane(2)]
    assert former.take_all() == [lane(2)]


def test_what_a_process_had_that_has_ended_is_held_by_nobody() -> None:
    known = FormerLanes(lambda _: True)
    listed = entry(lane(1)._replace(in_doubt=InDoubt(5, (), False)))
    known.apply([listed, entry(lane(2, instance="other")), entry(lane(3, TWO))])
    known.leave("me")
    assert [one.is_held for one in known.of(ONE)] == [False, True]
    assert [one.is_held for one in known.of(TWO)] == [False]
    known.apply([entry(lane(1, epoch=32))])  # the next process uses it
    assert [(one.epoch, one.is_held) for one in known.of(ONE)] == [(0, True), (32, True)]
