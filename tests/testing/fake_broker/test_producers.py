"""The sequence rules of one partition: duplicates, gaps, epochs, expiry."""

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.producers import MAX_SEQUENCE, ProducerStates, SentBatch, Verdict, advance

ID = 7
DAY_MS = 86_400_000
MINUTE_MS = 60_000
IN_ORDER = Verdict()
GAP = Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
OLD_EPOCH = Verdict(ErrorCode.INVALID_PRODUCER_EPOCH)


def single(sequence: int, offset: int | None = None) -> SentBatch:
    at = sequence if offset is None else offset
    return SentBatch(sequence, sequence, at, at, -1)


def written(count: int, epoch: int = 0) -> ProducerStates:
    """A partition that holds ``count`` batches of one record each."""
    states = ProducerStates()
    for sequence in range(count):
        states.record(ID, epoch, single(sequence), max_timestamp=0)
    return states


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStates().check(ID, 3, 1000, 1004) == IN_ORDER


def test_only_the_next_sequence_is_in_order() -> None:
    states = written(3)
    assert states.check(ID, 0, 3, 9) == IN_ORDER
    assert states.check(ID, 0, 4, 9) == GAP


def test_the_last_five_batches_are_known_as_duplicates_with_their_offsets() -> None:
    states = written(6)
    assert [states.check(ID, 0, number, number).duplicate for number in range(1, 6)] == [
        single(number) for number in range(1, 6)
    ]
    assert states.check(ID, 0, 0, 0) == GAP


def test_a_batch_that_only_overlaps_is_no_duplicate() -> None:
    states = ProducerStates()
    states.record(ID, 0, SentBatch(0, 4, 0, 4, -1), max_timestamp=0)
    assert states.check(ID, 0, 0, 3) == GAP
    assert states.check(ID, 0, 3, 7) == GAP


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    states = written(3, epoch=5)
    assert states.check(ID, 4, 3, 3) == OLD_EPOCH
    assert states.check(ID, 6, 3, 3) == GAP
    assert states.check(ID, 6, 0, 0) == IN_ORDER


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    states = written(3)
    states.record(ID, 1, single(0, offset=3), max_timestamp=0)
    assert states.check(ID, 1, 0, 0).duplicate == single(0, offset=3)
    assert states.check(ID, 1, 2, 2) == GAP


def test_checking_changes_nothing() -> None:
    states = written(1)
    states.check(ID, 9, 0, 0)
    assert states.check(ID, 0, 1, 1) == IN_ORDER


@pytest.mark.parametrize(("sequence", "count", "then"), [(0, 5, 5), (MAX_SEQUENCE, 1, 0), (MAX_SEQUENCE - 1, 4, 2)])
def test_sequences_wrap_to_zero(sequence: int, count: int, then: int) -> None:
    assert advance(sequence, count) == then


def test_zero_follows_the_largest_sequence() -> None:
    states = ProducerStates()
    states.record(ID, 0, single(2**31 - 1, offset=0), max_timestamp=0)
    assert states.check(ID, 0, 0, 0) == IN_ORDER
    assert states.check(ID, 0, 1, 1) == GAP


def test_a_marker_raises_the_epoch_also_of_an_unknown_producer() -> None:
    states = ProducerStates()
    assert states.marker(ID, 2, coordinator_epoch=0, timestamp=0) is ErrorCode.NONE
    assert states.check(ID, 1, 0, 0) == OLD_EPOCH
    assert states.check(ID, 2, 0, 0) == IN_ORDER


def test_a_marker_of_an_older_epoch_or_coordinator_is_refused() -> None:
    states = ProducerStates()
    states.marker(ID, 2, coordinator_epoch=4, timestamp=0)
    assert states.marker(ID, 1, coordinator_epoch=4, timestamp=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.marker(ID, 2, coordinator_epoch=3, timestamp=0) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_only_producers_that_end_below_an_offset_are_kept() -> None:
    states = written(3)
    states.keep_before(3)
    assert [producer_id for producer_id, _ in states.items()] == [ID]
    states.keep_before(2)
    assert states.items() == []


def test_producers_expire_by_their_last_timestamp_at_the_ten_minute_check() -> None:
    states = ProducerStates(DAY_MS)
    states.expire(now=2 * DAY_MS)
    states.record(1, 0, single(0), max_timestamp=0)
    states.record(2, 0, single(0, offset=1), max_timestamp=2 * DAY_MS)
    states.expire(now=2 * DAY_MS + 9 * MINUTE_MS)
    assert [producer_id for producer_id, _ in states.items()] == [1, 2]
    states.expire(now=2 * DAY_MS + 10 * MINUTE_MS)
    assert [producer_id for producer_id, _ in states.items()] == [2]


def test_a_restart_knows_the_last_batch_of_each_producer_that_has_not_expired() -> None:
    states = ProducerStates(DAY_MS)
    for sequence in range(3):
        states.record(1, 0, single(sequence), max_timestamp=DAY_MS)
    states.record(2, 0, single(0, offset=3), max_timestamp=0)
    states.reload(now=DAY_MS)
    assert [producer_id for producer_id, _ in states.items()] == [1]
    assert states.check(1, 0, 2, 2).duplicate == single(2)
    assert states.check(1, 0, 1, 1) == GAP
    assert states.check(1, 0, 3, 3) == IN_ORDER
