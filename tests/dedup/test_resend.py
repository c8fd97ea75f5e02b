import pytest

from kproxy.codec.batch import read_header
from kproxy.codec.messages import ErrorCode
from kproxy.dedup.lanes import Send, Track
from kproxy.dedup.producer_ids import KPROXY_BIT, LAST_EPOCH
from kproxy.dedup.resend import OLD_S, OLD_STAMP_S, Fence, Resend, next_step
from kproxy.errors import FencedByAnother, LocalProtocolError
from tests.dedup.broker_model import NOW_S, Partition, batch_of
from tests.dedup.simulation import Faults, Run

TOO_LARGE, NOT_NOW, GAP = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)


def in_flight(count: int, epoch: int = 0) -> tuple[Track, list[Send]]:
    track = Track((b"t", 0), KPROXY_BIT | 1, epoch, established=True)
    return track, [track.accept(batch_of(number), 1, NOW_S) for number in range(count)]


def step_of(track: Track, now: float = NOW_S) -> tuple[Send, str, bool]:
    step = next_step(track, now)
    assert isinstance(step, Resend)
    return step.send, step.reason, step.wait


class TestPlaybooks:
    def test_nothing_held_is_nothing_to_do(self) -> None:
        assert next_step(in_flight(0)[0], NOW_S) is None

    def test_a_lost_connection_is_made_good_one_batch_at_a_time(self) -> None:
        track, (first, second) = in_flight(2)
        track.lost(first)
        track.lost(second)
        assert step_of(track) == (first, "open", True)
        assert step_of(track) == (first, "open", True), "until it is answered"
        track.answered(first, 0, 5, -1)
        assert step_of(track) == (second, "open", True)
        track.answered(second, 0, 6, -1)
        assert next_step(track, NOW_S) is None

    def test_what_waits_after_a_failure_goes_at_once(self) -> None:
        track, (first, second) = in_flight(2)
        track.answered(first, NOT_NOW, -1, -1)
        track.answered(second, GAP, -1, -1)
        assert step_of(track) == (first, "not_now", True)
        track.answered(first, 0, 5, -1)
        assert step_of(track) == (second, "behind_a_failure", False)

    def test_a_refusal_is_settled_on_the_way_and_gives_its_sequence_back(self) -> None:
        track, (first, second) = in_flight(2)
        track.answered(first, TOO_LARGE, -1, -1)
        track.answered(second, GAP, -1, -1)
        assert step_of(track) == (second, "behind_a_failure", False)
        assert (first.settled, first.error_code) == (True, TOO_LARGE)
        assert (track.epoch, second.sequence) == (0, 0)

    def test_several_refusals_at_once(self) -> None:
        track, sends = in_flight(3)
        for send in sends:
            track.answered(send, TOO_LARGE, -1, -1)
        assert next_step(track, NOW_S) is None
        assert [send.error_code for send in sends] == [TOO_LARGE] * 3
        assert (track.epoch, track.next_sequence) == (0, 0)

    @pytest.mark.parametrize("error", [GAP, ErrorCode.UNKNOWN_PRODUCER_ID])
    def test_lost_state_begins_a_new_epoch_at_0(self, error: ErrorCode) -> None:
        track, (first, second) = in_flight(2)
        track.answered(first, error, -1, -1)
        track.answered(second, error, -1, -1)
        assert step_of(track) == (first, "state_lost", True)
        header = read_header(bytes(second.batch))
        assert (track.epoch, first.sequence) == (1, 0)
        assert (header.producer_epoch, header.base_sequence) == (1, 1)

    def test_lost_state_costs_one_epoch_also_if_the_step_is_asked_for_again(self) -> None:
        """The shell asks again where it could not send: a lease has few epochs."""
        track, (first,) = in_flight(1)
        track.answered(first, GAP, -1, -1)
        next_step(track, NOW_S)
        step = next_step(track, NOW_S)
        assert isinstance(step, Resend)
        assert (step.send, track.epoch) == (first, 1)

    def test_no_epoch_left(self) -> None:
        track, (first,) = in_flight(1, LAST_EPOCH)
        track.answered(first, GAP, -1, -1)
        with pytest.raises(LocalProtocolError):
            next_step(track, NOW_S)

    def test_a_higher_epoch_of_another_ends_it(self) -> None:
        track, (first, second) = in_flight(2)
        track.answered(first, ErrorCode.INVALID_PRODUCER_EPOCH, -1, -1)
        track.answered(second, ErrorCode.INVALID_PRODUCER_EPOCH, -1, -1)
        with pytest.raises(FencedByAnother):
            next_step(track, NOW_S)
        assert track.epoch == 0, "never bumped"


class TestFences:
    def test_lost_state_where_a_copy_may_be_in_the_log(self) -> None:
        track, (first, second) = in_flight(2)
        track.lost(first)
        track.answered(first, GAP, -1, -1)
        assert next_step(track, NOW_S) == Fence("state_lost")
        assert next_step(track, NOW_S) == Fence("state_lost"), "until it is done"
        track.fenced({(0, 0): 70}, NOW_S)
        assert (first.settled, first.error_code, first.base_offset) == (True, 0, 70)
        assert step_of(track) == (second, "fenced", False)
        assert (track.epoch, second.sequence) == (1, 0)

    def test_lost_state_where_a_copy_of_a_settled_batch_may_be_in_flight(self) -> None:
        track, (first, second) = in_flight(2)
        track.lost(first)
        track.answered(first, 0, 5, -1)
        track.answered(second, GAP, -1, -1)
        assert next_step(track, NOW_S) == Fence("state_lost")
        track.fenced({}, NOW_S)
        track.answered(second, GAP, -1, -1)
        assert step_of(track) == (second, "state_lost", True), "behind the fence nothing was open"

    def test_a_refusal_of_what_was_sent_twice(self) -> None:
        track, (first, second) = in_flight(2)
        track.lost(first)
        track.answered(first, TOO_LARGE, -1, -1)
        assert next_step(track, NOW_S) == Fence("refused")
        track.fenced({}, NOW_S)
        assert (first.settled, first.error_code) == (True, TOO_LARGE)
        assert step_of(track) == (second, "fenced", False)

    def test_a_refusal_that_an_earlier_attempt_forestalled(self) -> None:
        track, (first,) = in_flight(1)
        track.lost(first)
        track.answered(first, TOO_LARGE, -1, -1)
        track.fenced({(0, 0): 3}, NOW_S)
        assert (first.settled, first.error_code, first.base_offset) == (True, 0, 3)

    def test_a_refusal_before_a_batch_that_was_sent_twice(self) -> None:
        track, (first, second) = in_flight(2)
        track.lost(second)
        track.answered(first, TOO_LARGE, -1, -1)
        assert next_step(track, NOW_S) == Fence("refused")
        track.fenced({(0, 1): 9}, NOW_S)
        assert (first.error_code, second.error_code, second.base_offset) == (TOO_LARGE, 0, 9)
        assert next_step(track, NOW_S) is None

    def test_two_refusals_one_of_them_in_doubt(self) -> None:
        track, (first, second) = in_flight(2)
        track.lost(first)
        track.answered(first, TOO_LARGE, -1, -1)
        track.answered(second, TOO_LARGE, -1, -1)
        assert next_step(track, NOW_S) == Fence("refused")
        track.fenced({}, NOW_S)
        assert next_step(track, NOW_S) is None
        assert (first.error_code, second.error_code) == (TOO_LARGE, TOO_LARGE)

    @pytest.mark.parametrize(
        ("age_s", "stamp_age_s", "fences"),
        [(OLD_S, OLD_STAMP_S, False), (OLD_S + 1, 0, True), (0, OLD_STAMP_S + 1, True)],
    )
    def test_old_batches_if_they_were_ever_open(self, age_s: float, stamp_age_s: float, fences: bool) -> None:
        track = Track((b"t", 0), KPROXY_BIT | 1, 0, established=True)
        send = track.accept(batch_of(0, 1, stamp_age_s), 1, NOW_S - age_s)
        track.answered(send, NOT_NOW, -1, -1)
        assert isinstance(next_step(track, NOW_S), Resend)
        track.lost(send)
        assert isinstance(next_step(track, NOW_S), Fence) is fences

    def test_a_fence_makes_a_batch_young_again(self) -> None:
        track, (send,) = in_flight(1)
        track.lost(send)
        assert next_step(track, NOW_S + OLD_S + 1) == Fence("old")
        track.fenced({}, NOW_S + OLD_S + 1)
        track.lost(send)
        assert step_of(track, NOW_S + OLD_S + 2) == (send, "open", True)

    def test_the_lease_bounds_the_fences(self) -> None:
        track = Track((b"t", 0), KPROXY_BIT | 1, 7, 7)
        send = track.accept(batch_of(0), 1, NOW_S)
        track.lost(send)
        track.answered(send, TOO_LARGE, -1, -1)
        with pytest.raises(LocalProtocolError):
            track.fenced({}, NOW_S)
        assert (send.settled, track.epoch) == (True, 7)

    def test_a_batch_that_no_broker_can_read_does_not_hold_up_the_next_for_ever(self) -> None:
        broker = Partition()
        track, (first, second) = in_flight(2)
        for _ in range(100):
            step = next_step(track, NOW_S)
            if step is None:
                break
            if isinstance(step, Fence):
                broker.mark(track.producer_id, track.epoch + 1)
                track.fenced(broker.found(), NOW_S)
            elif step.send is first:
                track.answered(first, ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)
            else:
                track.answered(second, *broker.append(bytes(second.batch)), -1)
        assert first.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (second.settled, second.error_code) == (True, 0)


FAULTS = {
    "connections lost": Faults(lost=0.2),
    "answers of all kinds": Faults(lost=0.1, not_now=0.1, after_append=0.1),
    "refused by content": Faults(refused=0.2),
    "refused and lost": Faults(lost=0.1, not_now=0.1, after_append=0.1, refused=0.2),
    "state lost": Faults(state_lost=0.1),
    "state lost, and refused": Faults(state_lost=0.1, not_now=0.1, refused=0.1),
    "refused once": Faults(sometimes_refused=0.1, lost=0.1, after_append=0.1),
    "unreadable": Faults(unreadable=0.1),
    "unreadable, and lost": Faults(unreadable=0.1, refused=0.1, lost=0.1, not_now=0.1, after_append=0.1),
    "late copies": Faults(lost=0.15, late=True, not_now=0.1, after_append=0.1),
    "late copies, and refused": Faults(lost=0.15, late=True, not_now=0.1, after_append=0.1, refused=0.1),
    "late copies, and unreadable": Faults(lost=0.1, late=True, unreadable=0.1, after_append=0.1),
    "late copies, and state lost": Faults(lost=0.1, late=True, state_lost=0.1, refused=0.1),
    "late copies, and refused once": Faults(lost=0.15, late=True, sometimes_refused=0.1, after_append=0.1),
    "all at once": Faults(
        lost=0.1, late=True, sometimes_refused=0.1, after_append=0.1, not_now=0.1, refused=0.1, state_lost=0.05
    ),
    "forgotten with copies in doubt": Faults(lost=0.1, after_append=0.1, forgets=0.1),
    "forgotten, late copies, refused once": Faults(
        lost=0.1, late=True, after_append=0.1, forgets=0.1, sometimes_refused=0.05
    ),
    # Here order is not promised if a batch is refused: a broker that forgets the producer takes any that follows it.
    "old timestamps": Faults(lost=0.1, after_append=0.1, old=True),
}


@pytest.mark.parametrize("name", FAULTS)
def test_whatever_happens_each_batch_is_in_the_log_once_and_in_order(name: str) -> None:
    for seed in range(60):
        run = Run(seed, FAULTS[name])
        run.go()
        run.check()


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [Run(7, FAULTS["late copies, and refused"]) for _ in range(2)]
    for run in runs:
        run.go()
    assert runs[0].trace == runs[1].trace


@pytest.mark.parametrize("name", [name for name, faults in FAULTS.items() if faults.late])
def test_late_copies_do_arrive_in_these_runs(name: str) -> None:
    run = Run(3, FAULTS[name])
    run.go()
    assert any(" late " in line for line in run.trace)
