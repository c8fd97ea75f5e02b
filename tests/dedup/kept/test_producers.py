"""What is known of kept producers."""

from typing import Any

import pytest

from kproxy.codec.sequence import SEQUENCE_SPACE
from kproxy.dedup.kept.producers import MOST_REFUSED, Arrival, Flow, KeptPartition, KeptProducers, Missing

KEY = (b"t", 0)


def test_what_a_client_has_a_success_for_rises_with_its_epoch_and_sequence() -> None:
    partition = KeptPartition()
    for sequence in 0, 3:
        assert partition.sends(5, sequence, 1) is Arrival.SENT
    assert partition.open == [0, 3]
    assert partition.written(5, 3, 2, 13) is None
    assert partition.written(5, 0, 3, 10) is None  # its response was the later one
    assert (partition.told, partition.told_to) == (4, 15)
    partition.ends(3)
    partition.ends(9)
    assert partition.open == [0]
    assert partition.sends(6, 0, 1) is Arrival.SENT
    assert (partition.epoch, partition.told, partition.told_to) == (6, -1, 15)


def test_what_a_client_has_a_success_for_is_known_without_gaps() -> None:
    partition = KeptPartition(epoch=0)
    assert not partition.was_told(0, 0)
    partition.written(0, 4, 2, 14)
    assert [partition.was_told(0, at) for at in range(3, 7)] == [False, True, True, False]
    partition.written(0, 2, 2, 12)  # its response was the later one
    assert [partition.was_told(0, at) for at in range(1, 4)] == [False, True, True]
    partition.written(0, 6, 1, 16)
    assert partition.was_told(0, 2)
    partition.written(0, 9, 1, 19)
    assert [partition.was_told(0, at) for at in (6, 8, 9)] == [False, False, True]
    assert not partition.was_told(1, 9)


def test_an_offset_below_the_end_shows_that_the_log_was_cut() -> None:
    partition = KeptPartition()
    partition.sends(0, 0, 1)
    partition.written(0, 0, 10, 100)
    partition.sends(0, 10, 1)
    assert partition.written(0, 10, 1, 104) == Missing(6, 110, start=104)
    assert partition.written(0, 11, 1, 105) is None


def test_a_retry_with_its_old_offset_shows_nothing() -> None:
    partition = KeptPartition()
    partition.sends(0, 0, 1)
    partition.written(0, 0, 10, 100)
    assert partition.written(0, 0, 10, 100) is None
    partition.sends(1, 0, 1)
    assert partition.written(0, 5, 5, 95) is None
    assert partition.written(1, 0, 1, -1) is None


def test_what_was_left_out_comes_too_late() -> None:
    partition = KeptPartition(epoch=0, first=7)
    assert partition.sends(0, 5, 1) is Arrival.LATE
    assert partition.sends(0, 7, 1) is Arrival.SENT
    assert partition.open == [7]


def test_what_was_left_out_long_ago_is_forgotten() -> None:
    partition = KeptPartition(epoch=0, first=7)
    partition.written(0, 7 + SEQUENCE_SPACE // 4, 1, 0)
    assert partition.first == 0


def test_while_no_batch_is_in_the_log_none_follows_a_refused_one_unless_it_insists() -> None:
    partition = KeptPartition()
    for sequence in 3, 0:
        partition.sends(0, sequence, 1)
        partition.ends(sequence, refused=True)
    assert partition.missing == 0
    assert partition.sends(0, 3, 1) is Arrival.EARLY
    assert partition.sends(0, 0, 1) is Arrival.SENT
    partition.ends(0, refused=True)
    assert [partition.sends(0, 3, 1) for _ in range(2)] == [Arrival.EARLY, Arrival.SENT]
    assert partition.sends(0, 0, 1) is Arrival.LATE
    assert partition.open == [3]


def test_it_insists_over_the_connection_on_which_it_was_refused() -> None:
    partition = KeptPartition()
    partition.sends(0, 0, 1)
    partition.ends(0, refused=True)
    assert [partition.sends(0, 3, by) for by in (1, 2, 1, 1)] == [Arrival.EARLY] * 3 + [Arrival.SENT]


def test_it_does_not_insist_if_one_before_it_was_in_flight_when_it_was_refused() -> None:
    """Its client reads the refusal of the later one first, and repeats that first."""
    partition = KeptPartition(epoch=0, told=3)
    partition.sends(0, 8, 1)
    partition.gap_at, partition.gap_by = 9, 1
    partition.ends(8, refused=True)
    assert not partition.insists(9, 1)


def test_nor_if_one_before_it_came_after_it_and_was_refused_sooner() -> None:
    partition = KeptPartition(epoch=0, told=3)
    partition.sends(0, 9, 1)
    came = partition.arrivals
    partition.sends(0, 8, 1)
    assert not partition.is_followed(9, came)
    partition.ends(8, refused=True, arrival=partition.arrivals)
    assert partition.is_followed(9, came)
    assert not partition.is_followed(9, partition.arrivals)
    partition.written(0, 4, 5, 14)
    assert not partition.is_followed(9, came)


def test_once_one_is_the_broker_judges() -> None:
    partition = KeptPartition()
    partition.sends(0, 0, 1)
    partition.ends(0, refused=True)
    partition.written(0, 0, 3, 10)
    partition.ends(3, refused=True)
    assert partition.missing == -1
    assert partition.sends(0, 6, 1) is Arrival.SENT


def test_a_predecessor_ends_a_gap() -> None:
    partition = KeptPartition(epoch=0, gap_at=9, gap_by=1)
    partition.sends(0, 9, 1)
    assert partition.gap_at == 9
    partition.sends(0, 8, 1)
    assert partition.gap_at == -1


def test_what_is_left_of_lost_records() -> None:
    partition = KeptPartition(epoch=0, told=9, told_to=50)
    assert partition.lost_from(6) == Missing(3, 50)
    assert (partition.told, partition.told_to) == (6, -1)
    assert KeptPartition(epoch=0, told=9, told_to=50).lost_from(-1) == Missing(10, 50)


def test_producers_that_were_new_the_longest_ago_are_forgotten_unless_they_wait() -> None:
    producers = KeptProducers(most=3)
    waits = producers.partition(1, KEY)
    waits.sends(0, 0, 1)
    producers.partition(2, KEY)
    producers.partition(3, KEY)
    producers.partition(4, KEY)
    assert len(producers) == 3
    assert producers.partition(1, KEY) is waits
    for one in range(5, 20):
        producers.partition(one, KEY).sends(0, 0, 1)
    assert len(producers) == 16


def test_nor_if_another_was_refused_before_that_its_client_has_given_up() -> None:
    partition = KeptPartition(epoch=0, told=2)
    for sequence in 3, 7, 6:
        partition.sends(0, sequence, 1)
    partition.ends(3, refused=True, arrival=1)
    assert not partition.is_followed(7, 2)
    partition.ends(6, refused=True, arrival=3)
    assert partition.is_followed(7, 2)
    assert not partition.is_followed(7, 3)
    assert not partition.is_followed(6, 2)
    partition.written(0, 6, 1, 3)
    assert not partition.is_followed(7, 2)


def test_of_refused_batches_those_that_came_last_count() -> None:
    partition = KeptPartition(epoch=0, told=2)
    for at in range(20):
        partition.ends(3 + at, refused=True, arrival=1 + at)
    assert len(partition.refused) == MOST_REFUSED
    assert partition.is_followed(30, 19)
    partition.ends(4, refused=True, arrival=30)
    assert partition.refused == ((4, 30),)


def test_what_may_be_in_the_log_is_repeated() -> None:
    partition = KeptPartition()
    assert not partition.is_repeated(0, 0)
    partition.sends(0, 0, 1)
    assert partition.is_repeated(0, 0)
    partition.ends(0, refused=True)
    assert not partition.is_repeated(0, 0)
    partition.doubts(0, 2)
    partition.doubts(0, 1)
    assert [partition.is_repeated(0, at) for at in range(4)] == [True, True, True, False]
    partition.written(0, 4, 2, 10)
    assert [partition.is_repeated(0, at) for at in (3, 5, 6)] == [True, True, False]
    partition.sends(1, 0, 1)
    partition.ends(0)
    assert not partition.is_repeated(1, 0)
    partition.doubts(0, 7)
    assert not partition.is_repeated(1, 0)


def test_the_places_of_the_last_batches_are_known() -> None:
    partition = KeptPartition(epoch=0)
    for at in range(12):
        partition.written(0, at, 1, 10 + at)
    partition.written(0, 11, 1, 21)  # again
    assert [partition.place(at) for at in range(13)] == [-1, -1, *range(12, 22), -1]
    partition.written(0, 11, 1, 16)  # the log has lost it meanwhile
    assert partition.place(11) == 16
    partition.written(0, 12, 1, 5)
    assert [partition.place(at) for at in (11, 12)] == [-1, 5]
    partition.sends(1, 0, 1)
    assert partition.place(12) == -1


def test_a_batch_is_preceded_by_those_that_came_and_had_no_success() -> None:
    partition = KeptPartition()
    for at in 0, 2, 4:
        partition.sends(0, at, 1)
    assert [partition.is_preceded(at) for at in (0, 2, 4)] == [False, True, True]
    partition.written(0, 0, 2, 10)
    partition.ends(0)
    assert [partition.is_preceded(at) for at in (2, 4)] == [False, True]
    partition.ends(2, refused=True)
    partition.ends(4)
    assert [partition.is_preceded(at) for at in (2, 4)] == [False, True]
    partition.written(0, 2, 4, 12)
    assert not partition.is_preceded(6)


def raised(partition: KeptPartition, epoch: int = 1) -> KeptPartition:
    """The same after its client has raised its epoch."""
    assert partition.may_be_older(epoch)
    partition.sends(epoch, 0, 2)
    return partition


def test_what_may_be_in_the_log_under_an_earlier_epoch_is_known_until_one_is_written_under_the_new_one() -> None:
    partition = KeptPartition()
    assert not partition.may_be_older(0)
    partition.sends(0, 0, 1)
    assert not partition.may_be_older(0)
    raised(partition)
    assert (partition.older_from, partition.older_arrive) == (0, True)
    assert partition.may_be_older(1)
    partition.begins(0)
    assert partition.may_be_older(1)
    partition.begins(1)
    assert not partition.may_be_older(1)


def test_of_a_producer_that_is_first_seen_under_a_later_epoch_nothing_is_known() -> None:
    partition = KeptPartition()
    assert partition.may_be_older(3)
    assert partition.sends(3, 70, 1) is Arrival.SENT
    assert (partition.older_from, partition.older_arrive) == (0, True)


def test_a_batch_of_an_epoch_that_its_client_has_left_comes_too_late() -> None:
    partition = KeptPartition(epoch=1, told=3)
    assert partition.sends(0, 4, 1) is Arrival.OLD
    assert partition.open == []


def test_what_a_client_may_send_again_begins_with_the_last_ten_batches() -> None:
    partition = KeptPartition()
    for at in range(12):
        partition.sends(0, at, 1)
        partition.written(0, at, 1, 100 + at)
        partition.ends(at)
    partition.doubts(0, 12)
    assert raised(partition).older_from == 102


def test_or_with_the_first_one() -> None:
    partition = KeptPartition()
    partition.sends(0, 0, 1)
    partition.written(0, 0, 1, 100)
    assert raised(partition).older_from == 100
    assert raised(partition, 2).older_from == 100


def test_a_batch_that_was_found_under_an_earlier_epoch_shows_no_loss_and_has_no_place() -> None:
    partition = KeptPartition(epoch=1, told_to=50)
    assert partition.written(1, 0, 2, 40, is_found=True) is None
    assert (partition.told, partition.told_to, partition.place(0)) == (1, 50, -1)


def test_the_last_record_is_known_if_its_batch_has_a_place_at_the_end() -> None:
    partition = KeptPartition(epoch=0)
    assert partition.last_record == -1
    partition.written(0, 0, 2, 10)
    assert partition.last_record == 1
    partition.written(0, 2, 2, 20)
    assert partition.last_record == 3
    partition.written(0, 4, 2, -1)
    assert partition.last_record == -1
    partition.sends(1, 0, 1)
    assert partition.last_record == -1


def test_a_batch_whose_records_are_not_next_to_each_other_has_no_place() -> None:
    partition = KeptPartition(epoch=0)
    partition.written(0, 6, 1, 11)
    partition.written(0, 6, 2, -1)
    assert partition.place(6) == -1


def test_what_is_learnt_of_an_epoch_that_its_client_has_left_says_nothing_of_the_next_one() -> None:
    partition, known = KeptPartition(epoch=0), []
    for epoch in 1, 2:
        raised(partition, epoch)
        partition.finds(1, 40)
        partition.fences(1, 2)
        known.append((partition.older_from, partition.fenced))
    assert known == [(40, 2), (0, -1)]


def answered(flow: Flow | None) -> KeptPartition:
    """A partition with a success for the third request over a connection."""
    partition = KeptPartition(epoch=0)
    partition.written(0, 0, 1, 10)
    partition.answers(0, flow, 3)
    return partition


def test_where_a_client_has_received_all_nothing_is_sent_again_under_a_raised_epoch() -> None:
    flow = Flow(3)
    partition = answered(flow)
    flow.requests += 4
    assert partition.may_be_older(1)
    flow.requests += 1
    assert not partition.may_be_older(1)
    partition.sends(1, 0, 2)
    assert partition.older_from == -1
    partition.written(1, 0, 1, 11)
    partition.answers(0, flow, 3)  # late
    assert not partition.is_received
    assert not answered(None).is_received


@pytest.mark.parametrize("more", [{"open": [1]}, {"doubted": 1}, {"older_from": 5}])
def test_unless_something_is_in_doubt(more: dict[str, Any]) -> None:
    partition = answered(Flow(9))
    for name, value in more.items():
        setattr(partition, name, value)
    assert partition.may_be_older(1)
