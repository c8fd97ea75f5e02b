"""What the transaction log says of a group's offsets."""

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.txn.ids import Producer
from kproxy.txn.logged_group_offsets import Commit, is_other_generation, one_of_each_member, undecided, unmirrored
from tests.txn.offsets_log import PLACE, OffsetsLog


def test_offsets_count_once_they_are_committed_and_until_the_broker_has_them() -> None:
    log = OffsetsLog()
    log.announce("a", 0, 5)
    assert (undecided(log.views, "g"), log.offset()) == ({PLACE}, None)
    log.decide("a", 0)
    assert (undecided(log.views, "g"), log.offset()) == (set(), 5)
    assert unmirrored(log.views, "g").commits == (Commit("a", Producer(log.producer("a"), 0)),)
    log.mirrored("a", 0)
    assert unmirrored(log.views, "g") == ({}, (), None)


def test_an_abort_changes_nothing() -> None:
    log = OffsetsLog()
    log.commit("a", 0, 5)
    log.announce("a", 1, 9)
    log.decide("a", 1, committed=False)
    assert (undecided(log.views, "g"), log.offset()) == (set(), 5)


def test_within_an_id_the_later_transaction_counts_also_if_it_goes_back() -> None:
    log = OffsetsLog()
    log.commit("a", 0, 5)
    log.commit("a", 1, 3)
    assert log.offset() == 3
    assert len(unmirrored(log.views, "g").commits) == 2
    log.mirrored("a", 0)
    assert log.offset() == 3


def test_of_two_ids_the_later_generation_counts_and_within_one_the_larger_offset() -> None:
    for first, second in (("a", "b"), ("b", "a")):
        log = OffsetsLog()
        log.commit(first, 0, 9, generation=4)
        log.commit(second, 0, 7, generation=5)
        assert log.offset() == 7
        newest = unmirrored(log.views, "g").newest
        assert newest is not None
        assert newest.generation_id == 5
        log.commit(first, 1, 8, generation=5)
        assert log.offset() == 8


def test_of_one_generation_the_last_record_names_the_member_that_the_broker_may_still_know() -> None:
    log = OffsetsLog()
    log.commit("a", 0, 5, generation=4)
    log.commit("a", 1, 6, generation=4)
    newest = unmirrored(log.views, "g").newest
    assert newest is not None
    assert newest.epoch == 1


def test_of_other_groups_nothing_is_said() -> None:
    log = OffsetsLog()
    log.announce("a", 0, 5, group="other")
    assert undecided(log.views, "g") == set()
    log.decide("a", 0)
    assert log.offset() is None


def test_each_member_is_checked_once_and_a_transaction_has_one() -> None:
    def said(generation: int, member: str = "m", group: str = "g") -> TransactionOffsets:
        return TransactionOffsets(group_id=group, generation_id=generation, member_id=member)

    assert one_of_each_member([said(1), said(1), said(1, "n"), said(1, group="h")]) == [
        said(1),
        said(1, "n"),
        said(1, group="h"),
    ]
    assert is_other_generation(said(2), [said(1)])
    assert is_other_generation(said(1), [said(1, "n")])
    assert not is_other_generation(said(1), [said(1), said(2, group="h"), said(2, group="f")])
    assert is_other_generation(said(1, ""), [said(0, "")])
    assert is_other_generation(said(-1, "m"), [said(-1, "n")])
    assert not is_other_generation(said(-1, ""), [said(1)])
    assert not is_other_generation(said(1), [said(-1, "")])
    assert is_other_generation(said(2), [said(-1, ""), said(1)])
