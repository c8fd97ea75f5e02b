import pytest

from kproxy.codec.batch import Record, build_batch, crc_ok, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.dedup.lanes import SERVER_ERROR_PATIENCE, SILENCE_S, Lane, LanePool, Send, Track
from kproxy.dedup.produce_outcome import ProduceOutcome
from kproxy.dedup.producer_ids import KPROXY_BIT, LAST_EPOCH, LEASE_EPOCHS
from kproxy.errors import LocalProtocolError
from tests.dedup.broker_model import NOW_S, Partition, batch_of

PRODUCER = KPROXY_BIT | 5


def stamped(send: Send) -> tuple[int, int, int]:
    header = read_header(bytes(send.batch))
    assert crc_ok(send.batch, 0, len(send.batch))
    assert header.base_sequence == send.sequence
    return header.producer_id, header.producer_epoch, header.base_sequence


def track_with(*counts: int, epoch: int = 0) -> tuple[Track, list[Send]]:
    track = Track((b"t", 0), PRODUCER, epoch, established=True)
    return track, [track.accept(batch_of(number, count), count, NOW_S) for number, count in enumerate(counts)]


class TestTrack:
    def test_nothing_is_known_of_a_new_batch(self) -> None:
        track, (send,) = track_with(1)
        assert (send.settled, send.attempts, send.outcome, send.error_code) == (False, 0, None, 0)
        assert (track.ever_open, track.may_be_written) == (False, False)
        track.refuse(send, ErrorCode.MESSAGE_TOO_LARGE)
        assert (send.base_offset, send.log_append_time_ms) == (-1, -1)

    def test_batches_are_stamped_one_after_another(self) -> None:
        _, sends = track_with(3, 1, 2)
        assert [stamped(send) for send in sends] == [(PRODUCER, 0, 0), (PRODUCER, 0, 3), (PRODUCER, 0, 4)]

    def test_the_first_batch_is_alone_in_flight_until_it_is_written(self) -> None:
        track = Track((b"t", 0), PRODUCER, 0)
        assert track.has_room(5)
        first = track.accept(batch_of(0), 1, NOW_S)
        assert not track.has_room(5)
        assert not track.answered(first, ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1)
        assert not track.has_room(5)
        assert track.answered(first, 0, 10, -1)
        for number in range(5):
            assert track.has_room(5)
            track.accept(batch_of(number), 1, NOW_S)
        assert not track.has_room(5)

    @pytest.mark.parametrize("later", [SILENCE_S, 3 * 86_400.0, -3_600.0])
    def test_after_a_silence_a_batch_is_alone_in_flight_since_the_broker_may_have_forgotten_the_producer(
        self, later: float
    ) -> None:
        """It would take a batch that overtakes a refused one at any sequence. Clocks may have been set back."""
        track, (first,) = track_with(1)
        track.answered(first, 0, 5, -1)
        second = track.accept(batch_of(1), 1, NOW_S + later)
        assert not track.has_room(5)
        track.answered(second, ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1)
        assert not track.has_room(5)
        track.answered(second, 0, 6, -1)
        track.accept(batch_of(2), 1, NOW_S + later)
        assert track.has_room(5)

    def test_a_batch_soon_after_another_may_be_followed_at_once(self) -> None:
        track, (first,) = track_with(1)
        track.answered(first, 0, 5, -1)
        track.accept(batch_of(1), 1, NOW_S + SILENCE_S - 0.001)
        assert track.has_room(5)

    def test_a_batch_after_one_in_flight_may_be_followed_at_once_however_long_that_takes(self) -> None:
        track, (first, _) = track_with(1, 1)
        track.answered(first, 0, 5, -1)
        track.accept(batch_of(2), 1, NOW_S + 10 * SILENCE_S)
        assert track.has_room(5)

    def test_a_written_batch_is_settled_with_what_the_broker_said(self) -> None:
        track, (send,) = track_with(2)
        assert track.answered(send, 0, 77, 1234)
        assert (send.settled, send.base_offset, send.log_append_time_ms, send.error_code) == (True, 77, 1234, 0)
        assert not track.sends
        assert len(send.batch) == 0, "its bytes are held no more"

    def test_it_is_known_up_to_where_the_log_holds_what_came_before(self) -> None:
        track, (first, second, third) = track_with(2, 3, 1)
        assert track.written_to == -1
        track.answered(first, 0, 77, -1)
        assert track.written_to == 79
        track.answered(third, 0, 90, -1)
        assert track.written_to == 79, "the second is not there yet"
        track.answered(second, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1, -1)
        assert track.written_to == 79

    def test_a_duplicate_is_written(self) -> None:
        track, (send,) = track_with(2)
        track.lost(send)
        assert track.answered(send, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1, -1)
        assert send.error_code == 0

    @pytest.mark.parametrize("error", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
    def test_out_of_sequence_after_another_says_nothing(self, error: ErrorCode) -> None:
        track, (first, second) = track_with(1, 1)
        track.answered(first, ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1)
        assert not track.answered(second, error, -1, -1)
        assert (first.outcome, second.outcome, second.ever_open) == (ProduceOutcome.NOT_NOW, None, False)

    def test_a_time_out_after_another_failure_leaves_it_open(self) -> None:
        track, (first, second) = track_with(1, 1)
        track.answered(first, ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1)
        track.answered(second, ErrorCode.REQUEST_TIMED_OUT, -1, -1)
        assert (second.outcome, second.ever_open) == (ProduceOutcome.OPEN, True)

    def test_a_batch_that_answers_for_itself_is_out_of_sequence(self) -> None:
        track, (send,) = track_with(1)
        track.answered(send, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1)
        assert send.outcome is ProduceOutcome.OUT_OF_SEQUENCE

    @pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, 30_000])
    def test_an_open_answer_is_remembered(self, error: int) -> None:
        track, (send,) = track_with(1)
        track.answered(send, error, -1, -1)
        track.answered(send, ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1)
        assert send.ever_open
        assert send.outcome is ProduceOutcome.NOT_NOW

    def test_a_broker_that_never_can_say_what_is_wrong_is_believed_in_the_end(self) -> None:
        track, (send,) = track_with(1)
        answers = 0
        while send.outcome is not ProduceOutcome.REFUSED:
            track.answered(send, ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)
            answers += 1
            assert answers < 100
        assert answers == SERVER_ERROR_PATIENCE
        assert send.ever_open, "an earlier attempt may have written it"
        assert send.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


class TestRefuse:
    def test_an_error_that_says_what_is_wrong_is_never_believed_for_its_number(self) -> None:
        """A partition may be without a leader for minutes."""
        track, (send,) = track_with(1)
        for _ in range(10 * SERVER_ERROR_PATIENCE):
            track.answered(send, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
            assert send.outcome is not ProduceOutcome.REFUSED

    def test_what_was_written_first_in_a_log_is_known_to_be_there(self) -> None:
        track, (send,) = track_with(2)
        track.answered(send, 0, 0, -1)
        assert track.written_to == 2

    def test_a_refusal_in_a_new_epoch_costs_no_other(self) -> None:
        track, (first, second) = track_with(1, 1)
        track.answered(first, 0, 5, -1)
        track.bump()
        track.refuse(second, ErrorCode.MESSAGE_TOO_LARGE)
        assert (track.epoch, track.next_sequence) == (1, 0)

    def test_a_fence_of_a_track_that_holds_nothing_begins_the_next_epoch(self) -> None:
        track, _ = track_with()
        track.fenced({}, NOW_S)
        assert (track.epoch, track.next_sequence, track.fenced_at) == (1, 0, NOW_S)

    def test_of_a_batch_that_is_found_after_a_fence_no_log_append_time_is_known(self) -> None:
        track, (send,) = track_with(1)
        track.lost(send)
        track.fenced({(0, 0): 7}, NOW_S)
        assert (send.base_offset, send.log_append_time_ms) == (7, -1)

    def test_what_follows_gets_the_sequence(self) -> None:
        track, (first, second, third) = track_with(3, 1, 2)
        track.refuse(first, ErrorCode.MESSAGE_TOO_LARGE)
        assert (first.settled, first.error_code) == (True, ErrorCode.MESSAGE_TOO_LARGE)
        assert [stamped(second), stamped(third)] == [(PRODUCER, 0, 0), (PRODUCER, 0, 1)]
        assert track.next_sequence == 3

    def test_what_follows_gets_the_sequence_after_what_was_written(self) -> None:
        track, (first, second, third) = track_with(3, 1, 2)
        track.answered(first, 0, 5, -1)
        track.refuse(second, ErrorCode.MESSAGE_TOO_LARGE)
        assert (stamped(third), track.next_sequence) == ((PRODUCER, 0, 3), 5)

    def test_unless_the_broker_expects_another_one(self) -> None:
        track, (first, second, third) = track_with(1, 1, 1)
        track.answered(third, 0, 5, -1)
        track.refuse(first, ErrorCode.MESSAGE_TOO_LARGE)
        assert (stamped(second), track.next_sequence) == ((PRODUCER, 1, 0), 1)
        track, (first, second, third) = track_with(1, 1, 1)
        for send in (second, first):
            track.answered(send, 0, 5, -1)
        track.refuse(third, ErrorCode.MESSAGE_TOO_LARGE)
        assert (track.epoch, track.next_sequence) == (1, 0)

    def test_after_a_fence_what_was_found_is_written_and_the_rest_is_sent_again(self) -> None:
        track, (refused, found, refused_later, missing) = track_with(1, 2, 1, 3)
        for send in (refused, refused_later):
            track.answered(send, ErrorCode.MESSAGE_TOO_LARGE, -1, -1)
        for send in (found, missing):
            track.lost(send)
        track.fenced({(0, 1): 9}, NOW_S)
        assert (refused.settled, refused.error_code) == (True, ErrorCode.MESSAGE_TOO_LARGE)
        assert (found.settled, found.base_offset, found.error_code) == (True, 9, 0)
        assert [stamped(send) for send in track.sends] == [(PRODUCER, 1, 0), (PRODUCER, 1, 1)]
        assert [send.outcome for send in track.sends] == [ProduceOutcome.REFUSED, ProduceOutcome.FENCED]
        assert (track.may_be_written, missing.ever_open) == (False, False)

    def test_what_is_held_is_in_doubt_once_an_attempt_was_open(self) -> None:
        track, (_, second) = track_with(3, 1)
        assert not track.may_be_written
        track.lost(second)
        assert track.may_be_written
        track.answered(second, 0, 7, -1)
        assert not track.may_be_written
        assert track.ever_open, "a copy of it may still come"

    def test_all_is_given_up_where_the_partition_was_deleted(self) -> None:
        track, sends = track_with(3, 1)
        track.lost(sends[0])
        assert track.give_up(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == {(0, 0)}
        assert [send.error_code for send in sends] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        assert not track.sends
        assert (track.epoch, track.next_sequence) == (1, 0), "a marker of this epoch fences the copy"

    def test_what_was_never_open_is_given_up_without_a_copy(self) -> None:
        track, _ = track_with(3, 1)
        assert not track.give_up(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (track.epoch, track.left_copies) == (0, False)

    def test_nothing_is_given_up_where_no_epoch_is_left_for_the_fence(self) -> None:
        track, (send,) = track_with(3)
        track.lost(send)
        track.last_epoch = 0
        with pytest.raises(LocalProtocolError):
            track.give_up(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (list(track.sends), send.settled) == ([send], False)

    def test_a_lane_of_which_a_copy_may_arrive_is_not_used_again(self) -> None:
        pool = LanePool()
        lane = pool.adopt(42)
        track = lane.track((b"t", 0))
        track.lost(track.accept(batch_of(0), 1, NOW_S))
        track.give_up(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert not lane.unsettled()
        assert not lane.has_ended
        pool.give_back(lane)
        assert pool.lease() is None

    def test_a_sequence_after_which_a_batch_was_written_is_not_given_away(self) -> None:
        # A broker that lost the producer's state takes the second batch at any sequence. Were the first one's sequence
        # given to another, the fourth would get the second's: taken for its repeat, and lost.
        broker = Partition()
        track, (first, second) = track_with(1, 1)
        track.answered(first, ErrorCode.MESSAGE_TOO_LARGE, -1, -1)
        assert track.answered(second, *broker.append(bytes(second.batch)), -1)
        track.refuse(first, first.error_code)
        for number in (3, 4):
            send = track.accept(batch_of(number), 1, NOW_S)
            assert track.answered(send, *broker.append(bytes(send.batch)), -1)
        assert [written.number for written in broker.log] == [1, 3, 4]


class TestShowsItsLog:
    """What was written up to offset 79 is the log's, if a batch of the track ends there that is not held."""

    @pytest.mark.parametrize(
        ("base_offset", "records", "sequence", "epoch", "shown"),
        [(77, 2, 0, 0, True), (77, 3, 0, 0, False), (78, 2, 0, 0, False), (77, 2, 2, 0, False), (77, 2, 2, 1, True)],
    )
    def test_by_the_end_of_a_batch(
        self, base_offset: int, records: int, sequence: int, epoch: int, shown: bool
    ) -> None:
        track, (first, _) = track_with(2, 2)
        track.answered(first, 0, 77, -1)
        rows = [Record(n, 0, None, b"v") for n in range(records)]
        batch = build_batch(
            rows, base_offset=base_offset, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence
        )
        assert track.shows_its_log([read_header(batch)]) is shown

    def test_any_log_will_do_where_nothing_was_written(self) -> None:
        track, (send,) = track_with(1)
        assert track.shows_its_log([])
        track.answered(send, 0, 0, -1)
        assert not track.shows_its_log([])


class TestEpochs:
    def test_the_first_batch_of_the_next_one_is_alone_in_flight(self) -> None:
        track, (send,) = track_with(1)
        track.lost(send)
        track.bump()
        assert (track.has_room(5), track.ever_open) == (False, False)

    def test_a_bump_stamps_all_again_in_order(self) -> None:
        track, sends = track_with(3, 1, 2, epoch=4)
        track.bump()
        assert [stamped(send) for send in sends] == [(PRODUCER, 5, 0), (PRODUCER, 5, 3), (PRODUCER, 5, 4)]
        assert track.next_sequence == 6

    def test_the_last_epoch_can_be_reached_but_not_passed(self) -> None:
        track, (send,) = track_with(1, epoch=LAST_EPOCH - 1)
        track.bump()
        assert stamped(send) == (PRODUCER, LAST_EPOCH, 0)
        with pytest.raises(LocalProtocolError, match="no epoch left"):
            track.bump()
        assert stamped(send) == (PRODUCER, LAST_EPOCH, 0)


class TestLane:
    def test_partitions_have_sequences_of_their_own(self) -> None:
        lane = Lane(PRODUCER, 7)
        one, two = lane.track((b"t", 0)), lane.track((b"t", 1))
        assert lane.track((b"t", 0)) is one is not two
        one.accept(batch_of(0), 1, NOW_S)
        assert (one.next_sequence, two.next_sequence, two.epoch) == (1, 0, 7)
        assert lane.unsettled() == [one]

    def test_a_lease_reserves_epochs_and_no_partition_leaves_them(self) -> None:
        lane = Lane(PRODUCER, 7)
        assert lane.last_epoch == 7 + LEASE_EPOCHS - 1
        track = lane.track((b"t", 0))
        for _ in range(LEASE_EPOCHS - 1):
            track.bump()
        assert track.epoch == lane.last_epoch
        with pytest.raises(LocalProtocolError):
            track.bump()


class TestLanePool:
    def test_a_lane_of_an_earlier_process_reserves_what_that_noted(self) -> None:
        assert Lane(PRODUCER, 5, 9).track((b"t", 0)).last_epoch == Lane(PRODUCER, 5, 9).last_epoch == 9

    def test_only_a_track_under_which_nothing_can_be_in_the_log_is_forgotten(self) -> None:
        """Its next batch would have the same epoch and sequence as one before: a broker would treat it as a repeat."""
        lane = Lane(PRODUCER)
        unused, held, given_up, written, bumped = (lane.track((b"t", number)) for number in range(5))
        for track in (held, given_up, written):
            track.accept(batch_of(0), 1, NOW_S)
        given_up.give_up(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        written.answered(written.sends[0], 0, 5, -1)
        bumped.bump()
        tracks = (unused, held, given_up, written, bumped)
        assert [lane.forget_unused(track) for track in tracks] == [True, False, False, False, False]
        assert [lane.track(track.key) is track for track in tracks] == [False, True, True, True, True]

    def test_a_new_lane_bears_kproxys_bit(self) -> None:
        pool = LanePool()
        assert pool.lease() is None
        lane = pool.adopt(42)
        assert (lane.producer_id, lane.epoch, pool.leased) == (KPROXY_BIT | 42, 0, 1)

    def test_each_lease_has_an_epoch_of_its_own(self) -> None:
        pool = LanePool()
        first = pool.adopt(42)
        first.track((b"t", 0)).bump()
        pool.give_back(first)
        assert pool.leased == 0
        second = pool.lease()
        assert second is not None
        assert (second.producer_id, second.tracks) == (first.producer_id, {})
        assert second.epoch > first.last_epoch + 1, "a marker of the epoch between fences the first and not the second"
        assert pool.leased == 1
        assert pool.lease() is None, "a lane is leased to one connection at a time"

    def test_a_late_copy_of_an_earlier_lease_is_fenced_once_the_next_one_wrote(self) -> None:
        pool, broker = LanePool(), Partition()
        lane = pool.adopt(42)
        track = lane.track((b"t", 0))
        send = track.accept(batch_of(0), 1, NOW_S)
        copy = bytes(send.batch)
        track.answered(send, *broker.append(copy), -1)
        pool.give_back(lane)
        again = pool.lease()
        assert again is not None
        following = again.track((b"t", 0)).accept(batch_of(1), 1, NOW_S)
        assert broker.append(bytes(following.batch))[0] == 0
        assert broker.append(copy)[0] == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_lane_with_something_unsettled_is_not_used_again(self) -> None:
        pool = LanePool()
        lane = pool.adopt(42)
        lane.track((b"t", 0)).accept(batch_of(0), 1, NOW_S)
        pool.give_back(lane)
        assert (pool.lease(), pool.leased) == (None, 0)

    def test_a_lane_is_leased_until_its_epochs_are_used_up(self) -> None:
        pool = LanePool()
        lane: Lane | None = pool.adopt(42)
        leases = 0
        while lane is not None:
            assert lane.last_epoch < LAST_EPOCH, "one is left to fence it"
            leases += 1
            pool.give_back(lane)
            lane = pool.lease()
        assert leases == LAST_EPOCH // (LEASE_EPOCHS + 1)
