"""Scripts of repairs: what is asked, and what the client receives."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.codec.sequence import SEQUENCE_SPACE
from kproxy.dedup.kept.ids import successor
from kproxy.dedup.kept.producers import Arrival, Flow, KeptPartition, Missing
from kproxy.dedup.kept.raised import Matched
from kproxy.dedup.kept.repair import repair
from kproxy.dedup.kept.steps import (
    FOUND_OLDER,
    Check,
    FenceOff,
    Find,
    FindRecords,
    FoundRecords,
    KeptBatch,
    LeaderView,
    Look,
    Remembered,
    Send,
    Step,
    Told,
)

ID = 1 << 40 | 4711
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
WRITTEN = Told(0, 77, -1)


class Log:
    """A partition's leader: what it remembers, and what it says to each step."""

    def __init__(
        self,
        remembers: Mapping[int, Remembered] | None = None,
        *,
        found: int | None = None,
        gone: bool = False,
        sends: Sequence[Told] = (WRITTEN,),
        older: Sequence[Matched] = (),
        own: int = 0,
    ) -> None:
        """``remembers``: by how many ids were used before."""
        self.remembers = {successor(ID, nth): state for nth, state in (remembers or {}).items()}
        self.found, self.gone, self.sends, self.older = found, gone, list(sends), list(older)
        self.own = own
        self.steps: list[Step] = []

    def run(self, batch: KeptBatch, partition: KeptPartition, error: int = OUT_OF_ORDER, connection: int = 1) -> Told:
        """What the client receives."""
        steps = repair(batch, partition, Told(error), connection)
        answer: Any = None
        try:
            while True:
                answer = self._answer(steps.send(answer))
        except StopIteration as done:
            told: Told = done.value
            return told

    def _answer(self, step: Step) -> object:
        if not isinstance(step, Look):
            self.steps.append(step._replace(seen=LeaderView({})) if isinstance(step, FindRecords) else step)
        match step:
            case Look(producer_ids):
                return LeaderView({one: state for one, state in self.remembers.items() if one in producer_ids}, 1000)
            case Find():
                return self.found
            case FindRecords():
                return FoundRecords(self.own, self.older.pop(0) if self.older else Matched())
            case Check():
                return self.gone
            case FenceOff():
                return None
            case Send():
                return self.sends.pop(0)


def batch(sequence: int, records: int = 2, epoch: int = 0) -> KeptBatch:
    return KeptBatch(ID, epoch, sequence, records)


def test_a_batch_whose_predecessor_has_arrived_meanwhile_is_sent_again() -> None:
    log = Log({0: Remembered(0, 9)})
    assert log.run(batch(10), KeptPartition(epoch=0)) == WRITTEN._replace(cause="out_of_order")
    assert log.steps == [Send(ID)]


def test_a_batch_that_is_in_the_log_is_written() -> None:
    log = Log({0: Remembered(0, 9)}, found=70)
    assert log.run(batch(4), KeptPartition(epoch=0)) == Told(0, 70, cause="written")
    assert log.steps == [Find((ID,))]


def test_a_broker_that_has_forgotten_the_producer_takes_its_next_batch() -> None:
    log = Log()
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=50)
    assert log.run(batch(10), partition, UNKNOWN) == WRITTEN._replace(cause="forgotten")
    assert log.steps == [Check(49, (ID,), 0), Send(ID)]
    unknown = Log()
    assert unknown.run(batch(10), KeptPartition(epoch=0), UNKNOWN).cause == "forgotten"
    assert unknown.steps == [Send(ID)]


def test_a_broker_that_takes_no_other_sequence_than_0_is_believed() -> None:
    log = Log(sends=[Told(UNKNOWN)])
    assert log.run(batch(10), KeptPartition(epoch=0), UNKNOWN) == Told(UNKNOWN, cause="unsettled")


@pytest.mark.parametrize("remembers", [{0: Remembered(0, 5)}, {0: Remembered(0, -1)}, {}])
def test_lost_records_are_reported_once(remembers: dict[int, Remembered]) -> None:
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=50)
    told = Log(remembers, gone=True).run(batch(10), partition)
    lost = 4 if remembers and remembers[0].last == 5 else 10
    assert told == Told(OUT_OF_ORDER, lost=Missing(lost, 50), cause="lost")
    partition.sends(1, 0, 1)
    assert Log({0: Remembered(0, 5)}).run(batch(0, epoch=1), partition).error_code == 0


def test_records_are_lost_unless_the_last_one_that_the_client_has_a_success_for_is_at_its_place() -> None:
    partition = KeptPartition(epoch=0)
    partition.written(0, 8, 2, 48)
    log = Log({0: Remembered(0, 5)}, gone=True)
    assert log.run(batch(10), partition).cause == "lost"
    assert log.steps == [Check(49, (ID,), 0, 9, 9)]


def test_records_that_were_deleted_are_not_lost() -> None:
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=50)
    assert Log({0: Remembered(0, 5)}).run(batch(10), partition).error_code == 0


def test_a_batch_that_comes_before_its_predecessors_is_to_be_sent_again() -> None:
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=50)
    log = Log({0: Remembered(0, 9)})
    assert log.run(batch(12), partition) == Told(AGAIN, cause="waits_for_others")
    assert not log.steps
    partition.sends(0, 10, 1)
    assert log.run(batch(12), partition) == Told(AGAIN, cause="waits_for_others")


def test_what_a_client_has_left_out_is_waited_for_once_and_fenced_off() -> None:
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=50)
    log = Log({0: Remembered(0, 9)})
    for at in range(2):
        partition.sends(0, 12, 1)
        told = log.run(batch(12), partition)
        partition.ends(12)
        assert (told.error_code == 0) == bool(at)
    assert log.steps == [FenceOff(ID, 1), Send(successor(ID, 1))]
    assert partition.sends(0, 10, 1) is Arrival.LATE
    assert partition.sends(0, 14, 1) is Arrival.SENT


def test_what_insisted_before_any_was_in_the_log_need_not_insist_again() -> None:
    partition = KeptPartition(epoch=0, first=12)
    log = Log({0: Remembered(0, 9)})
    assert log.run(batch(12), partition).error_code == 0
    assert log.steps == [FenceOff(ID, 1), Send(successor(ID, 1))]


def test_not_while_a_predecessor_is_in_flight() -> None:
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=50, gap_at=12, gap_by=1, open=[10, 12])
    log = Log({0: Remembered(0, 9)})
    assert log.run(batch(12), partition).cause == "waits_for_others"


def test_the_first_batches_of_an_epoch_may_be_left_out_as_well() -> None:
    partition = KeptPartition(epoch=1, gap_at=4, gap_by=1)
    log = Log({0: Remembered(0, 9)})
    assert log.run(batch(4, epoch=1), partition).error_code == 0
    assert log.steps == [FenceOff(ID, 2), Send(successor(ID, 1))]


def test_there_is_no_epoch_above_the_last_to_fence_with() -> None:
    partition = KeptPartition(epoch=32767, gap_at=4, gap_by=1)
    log = Log({0: Remembered(5, 9)})
    assert log.run(batch(4, epoch=32767), partition).error_code == 0
    assert log.steps == [Send(successor(ID, 1))]


def test_an_epoch_that_somebody_else_raised_is_left_for_another_id() -> None:
    partition = KeptPartition(epoch=0, told=9)
    log = Log({0: Remembered(7, -1)})
    assert log.run(batch(10), partition, FENCED) == Told(AGAIN, cause="outdated")
    assert log.run(batch(10), partition, FENCED) == WRITTEN._replace(cause="epoch_raised")
    assert log.steps == [Find((ID,)), Find((ID,)), Send(successor(ID, 1))]
    assert partition.generation == 1
    found = Log({0: Remembered(7, -1)}, found=60)
    assert found.run(batch(10), KeptPartition(epoch=0)) == Told(0, 60, cause="epoch_raised")


@pytest.mark.parametrize("older_from", [-1, 0])
def test_what_the_client_has_sent_before_it_raised_its_epoch_at_another_instance_is_not_written(
    older_from: int,
) -> None:
    """The other instance has fenced it off, and compares: the client does not repeat it under this epoch."""
    partition = KeptPartition(epoch=1, told=9 if older_from < 0 else -1, older_from=older_from)
    log = Log({0: Remembered(2, 29)}, sends=[])
    sequence = 10 if older_from < 0 else 0
    for connection in 1, 2, 3:
        told = log.run(batch(sequence, epoch=1), partition, FENCED, connection)
        assert told == Told(AGAIN, cause="outdated")
    assert partition.generation == 0


def test_a_batch_that_was_refused_under_an_epoch_that_was_newer_need_not_be_repeated_twice() -> None:
    partition = KeptPartition(epoch=0, told=9)
    fenced = Log({0: Remembered(7, -1)})
    for sequence in 10, 12:
        partition.is_current(sequence, 1)
    assert fenced.run(batch(10), partition).error_code == 0
    partition.written(0, 10, 2, 77)
    assert partition.outdated == ((12, 1),)
    partition.sends(1, 0, 1)
    assert not partition.outdated


def test_the_log_is_searched_from_the_last_success_on() -> None:
    log = Log({0: Remembered(0, 15)}, found=60)
    assert log.run(batch(12), KeptPartition(epoch=0, told=9, told_from=0, told_to=50)).base_offset == 60
    assert log.run(batch(8), KeptPartition(epoch=0, told=9, told_from=0, told_to=50)).base_offset == 60
    assert log.steps == [Find((ID,), 50), Find((ID,), 0)]


def test_a_batch_that_others_followed_and_nobody_knows_of_is_not_called_written() -> None:
    told = Log({0: Remembered(0, 15)}).run(batch(12), KeptPartition(epoch=0))
    assert told == Told(OUT_OF_ORDER, cause="unsettled")
    known = KeptPartition(epoch=0, told=13, told_from=10)
    assert Log({0: Remembered(0, 15)}).run(batch(12), known).error_code == 0
    early = Log({0: Remembered(0, 15)}).run(batch(8), known)
    assert early == Told(OUT_OF_ORDER, cause="unsettled")  # its successes begin after it


def test_a_new_id_is_in_use_only_when_a_batch_is_in_the_log_under_it() -> None:
    partition = KeptPartition(epoch=0, told=9)
    partition.is_current(10, 1)
    log = Log({0: Remembered(7, -1)}, sends=[Told(ErrorCode.NOT_LEADER_OR_FOLLOWER), WRITTEN])
    assert log.run(batch(10), partition).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.generation == 0
    assert log.run(batch(10), partition).error_code == 0
    assert partition.generation == 1


def test_what_was_left_out_before_somebody_raised_the_epoch_is_waited_for_as_well() -> None:
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=50)
    log = Log({0: Remembered(7, -1)})
    assert log.run(batch(12), partition) == Told(AGAIN, cause="waits_for_others")
    assert log.run(batch(12), partition) == Told(AGAIN, cause="outdated")
    assert log.run(batch(12), partition).error_code == 0
    assert log.steps == [Find((ID,), 50)] * 3 + [Send(successor(ID, 1))]


def test_a_late_batch_of_an_epoch_that_its_client_has_left_is_refused() -> None:
    log = Log({0: Remembered(1, 4)})
    told = log.run(batch(10), KeptPartition(epoch=1), ErrorCode.INVALID_PRODUCER_EPOCH)
    assert told == Told(ErrorCode.INVALID_PRODUCER_EPOCH, cause="old_epoch")
    assert not log.steps


def test_the_id_that_another_process_continued_with_is_found_even_if_others_were_forgotten() -> None:
    partition = KeptPartition(epoch=0)
    log = Log({0: Remembered(1, -1), 3: Remembered(0, 9)})
    assert log.run(batch(10), partition).error_code == 0
    assert partition.generation == 3
    assert log.steps == [Send(successor(ID, 3))]
    far = Log({nth: Remembered(1, -1) for nth in range(8)} | {11: Remembered(0, 9)})
    assert far.run(batch(10), KeptPartition(epoch=0)).error_code == 0
    assert far.steps == [Send(successor(ID, 11))]


def test_a_sequence_that_begins_again_is_the_next_one() -> None:
    log = Log({0: Remembered(0, SEQUENCE_SPACE - 1)})
    assert log.run(batch(0), KeptPartition(epoch=0, told=SEQUENCE_SPACE - 1, told_to=5)).error_code == 0
    assert log.steps == [Send(ID)]


def test_after_some_attempts_the_client_receives_what_the_broker_says() -> None:
    log = Log({0: Remembered(0, 9)}, sends=[Told(OUT_OF_ORDER)] * 3)
    assert log.run(batch(10), KeptPartition(epoch=0)) == Told(OUT_OF_ORDER, cause="unsettled")
    assert Log({0: Remembered(0, 9)}, sends=[Told(3)]).run(batch(10), KeptPartition(epoch=0)).error_code == 3


def test_a_batch_that_may_be_in_the_log_is_searched_where_the_broker_has_forgotten_its_producer() -> None:
    partition = KeptPartition(epoch=0, told=3, told_from=0, told_to=14)
    partition.doubts(0, 4)
    log = Log(found=14)
    assert log.run(batch(4), partition, AGAIN) == Told(0, 14, cause="written")
    assert log.steps == [Check(13, (ID,), 0), Find((ID,), 14)]
    log = Log()
    assert log.run(batch(4), partition, AGAIN).error_code == 0
    assert log.steps[-1] == Send(ID)


def test_a_repeated_batch_that_is_not_found_is_for_the_broker_to_decide_if_it_knows_the_producer() -> None:
    log = Log({0: Remembered(0, 9)})
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=20)
    assert log.run(batch(4), partition, AGAIN).base_offset == WRITTEN.base_offset
    assert log.steps == [Find((ID,)), FindRecords((ID,), 5), Send(ID)]
    log = Log({0: Remembered(0, 9)}, sends=[Told(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)])
    assert log.run(batch(4), partition, AGAIN) == Told(0, cause="written")


def test_a_batch_that_the_broker_expects_is_sent_though_its_client_has_a_success_for_it() -> None:
    """The log has lost it: what its client repeats is written again."""
    log = Log({0: Remembered(0, 3)})
    partition = KeptPartition(epoch=0, told=5, told_from=0, told_to=16)
    assert log.run(batch(4), partition, AGAIN).error_code == 0
    assert log.steps == [Send(ID)]


def test_a_repeated_batch_whose_place_is_known_is_checked_there() -> None:
    partition = KeptPartition(epoch=0)
    partition.written(0, 4, 2, 50)
    log = Log()
    assert log.run(batch(4), partition, AGAIN) == Told(0, 50, cause="written")
    assert log.steps == [Check(50, (ID,), 0, 4, 5)]
    log = Log({0: Remembered(0, 3)}, gone=True)
    assert log.run(batch(4), partition, AGAIN).error_code == 0
    assert log.steps == [Check(50, (ID,), 0, 4, 5), Send(ID)]


def raised(**more: Any) -> KeptPartition:
    """A partition whose client has raised its epoch to 1."""
    known = {"epoch": 1, "older_from": 40, "older_arrive": True, "told_to": 44, "floor": 30, "told_by": Flow()}
    return KeptPartition(**{**known, **more})


def older(last: int = 1, since: int = 40, floor: int = 30) -> FindRecords:
    """The search for a batch that may be in the log under an earlier epoch."""
    return FindRecords((ID,), last, since, floor)


def test_under_a_raised_epoch_earlier_ones_are_fenced_off_and_then_compared() -> None:
    partition = raised()
    log = Log({0: Remembered(0, 9)}, older=[Matched(2, 42, 44)])
    steps = [FenceOff(ID, 1), older()]
    assert log.run(batch(0, epoch=1), partition, AGAIN) == Told(0, 42, cause=FOUND_OLDER, end=44)
    assert log.steps == steps
    assert partition.fenced == 0


def test_what_was_found_is_searched_again_if_its_client_was_not_told() -> None:
    partition, log = raised(), Log({0: Remembered(0, 1)}, older=[Matched(2, 42, 44)] * 2)
    for _ in range(2):
        assert log.run(batch(0, epoch=1), partition, AGAIN).base_offset == 42
    searched = [step for step in log.steps if isinstance(step, FindRecords)]
    assert searched[0] == searched[1]


def test_what_is_not_in_the_log_is_sent_under_the_same_id_if_it_is_the_first_of_its_epoch() -> None:
    partition = raised()
    log = Log({0: Remembered(0, 9)})
    assert log.run(batch(0, epoch=1), partition, AGAIN) == WRITTEN._replace(cause="sent_alone")
    assert log.steps == [FenceOff(ID, 1), older(), Send(ID)]
    assert (partition.older_from, partition.generation) == (-1, 0)


@pytest.mark.parametrize("state", [Remembered(1, -1), Remembered(3, -1)])
def test_what_is_fenced_already_is_not_fenced_again(state: Remembered) -> None:
    log = Log({0: state})
    log.run(batch(0, epoch=1), raised(told_to=-1, outdated=((0, 1),)), AGAIN)
    assert log.steps[1:] == [Send(successor(ID, int(state.epoch > 1)))]


def test_nor_is_it_where_nothing_may_arrive() -> None:
    log = Log({0: Remembered(0, 9)}, older=[Matched(2, 42, 44)])
    log.run(batch(0, epoch=1), raised(older_arrive=False), AGAIN)
    assert log.steps == [older()]


def test_the_rest_of_a_batch_goes_under_another_id() -> None:
    partition = raised()
    log = Log({0: Remembered(0, 9)}, older=[Matched(1, 42, 43)])
    assert log.run(batch(0, epoch=1), partition, AGAIN) == Told(0, cause="sent_alone")
    assert log.steps[2:] == [Send(successor(ID, 1), 1)]
    assert (partition.older_from, partition.generation) == (-1, 1)


def test_but_not_before_its_predecessors() -> None:
    partition = raised()
    log = Log({0: Remembered(0, 9)}, older=[Matched(1, 42, 43)] * 2)
    assert log.run(batch(4, epoch=1), partition, AGAIN) == Told(AGAIN, cause="waits_for_others")
    assert log.run(batch(4, epoch=1), partition, AGAIN) == Told(0, cause="sent_alone")
    assert log.steps[-2:] == [FenceOff(ID, 2), Send(successor(ID, 1), 1)]


def test_nor_is_what_is_in_the_log_a_success_before_a_batch_that_came_before_it_and_had_none() -> None:
    partition = raised(told=1, told_from=0, refused=((2, 0),))
    log = Log({0: Remembered(0, 9)}, older=[Matched(2, 42, 44)] * 2)
    assert log.run(batch(4, epoch=1), partition, AGAIN) == Told(AGAIN, cause="waits_for_others")
    assert log.run(batch(4, epoch=1), partition, AGAIN).base_offset == 42
    assert log.steps[-1] == FenceOff(ID, 2)


def test_so_does_what_follows_a_batch_that_was_in_the_log() -> None:
    partition = raised(told=1, told_from=0, older_arrive=False)
    log = Log({0: Remembered(1, -1)})
    assert log.run(batch(2, epoch=1), partition, AGAIN).error_code == 0
    assert log.steps[1:] == [Send(successor(ID, 1))]


def test_until_one_is_written_all_are_compared() -> None:
    partition = raised()
    log = Log({0: Remembered(0, 9)}, older=[Matched(), Matched()], sends=[Told(AGAIN), WRITTEN])
    for error in AGAIN, 0:
        assert log.run(batch(0, epoch=1), partition, AGAIN).error_code == error
    assert log.steps == [FenceOff(ID, 1), *[older(), Send(ID)] * 2]


def test_a_batch_before_its_predecessors_waits_for_them_under_a_raised_epoch_too() -> None:
    partition = raised()
    log = Log({0: Remembered(0, 9)})
    assert log.run(batch(4, epoch=1), partition, AGAIN) == Told(AGAIN, cause="waits_for_others")


def test_unless_it_is_in_the_log() -> None:
    """Another process found what precedes it there, and wrote nothing under the new epoch."""
    log = Log({0: Remembered(1, -1)}, older=[Matched(2, 42, 44)])
    assert log.run(batch(4, epoch=1), raised(), AGAIN).base_offset == 42


def test_what_is_repeated_is_searched_from_the_floor_since_others_were_found_after_it() -> None:
    partition = raised(told=3, told_from=0, older_from=43, fenced=0)
    log = Log({0: Remembered(1, -1)}, older=[Matched(2, -1, 43)])
    assert log.run(batch(0, epoch=1), partition, AGAIN) == Told(0, cause=FOUND_OLDER, end=43)
    assert log.steps == [older(since=30)]
    assert partition.older_from == 43


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_repeated_and_not_there_was_deleted_or_is_lost(gone: bool) -> None:
    told = Log({0: Remembered(1, -1)}, gone=gone).run(batch(0, epoch=1), raised(told=3, told_from=0), AGAIN)
    assert (told.error_code, told.cause) == ((OUT_OF_ORDER, "lost") if gone else (0, "written"))


def test_where_nobody_knows_of_the_producer_only_what_is_written_from_now_on_is_compared() -> None:
    partition = KeptPartition(epoch=1, older_from=0, older_arrive=True)
    log = Log()
    assert log.run(batch(0, epoch=1), partition, AGAIN).error_code == 0
    fences = [FenceOff(ID, 1), FenceOff(successor(ID, 1), 1)]
    assert log.steps == [*fences, older(1, 1000, 1000), Send(ID)]


def test_once_another_process_has_written_under_the_epoch_nothing_older_is_repeated() -> None:
    partition = raised()
    log = Log({2: Remembered(1, 5)})
    assert log.run(batch(6, epoch=1), partition, AGAIN).error_code == 0
    assert log.steps == [FenceOff(ID, 1), Send(successor(ID, 2))]
    assert partition.older_from == -1


def test_a_batch_whose_records_were_all_in_the_log_is_found_there_after_a_restart() -> None:
    log = Log({1: Remembered(1, 9)}, older=[Matched(2, 42, 44)])
    assert log.run(batch(0, epoch=1), KeptPartition(epoch=1), AGAIN) == Told(0, 42, cause=FOUND_OLDER)
    ids = ID, successor(ID, 1)
    assert log.steps == [Find(ids), FindRecords(ids, 1)]


def test_of_a_batch_whose_first_records_are_written_the_rest_is_sent() -> None:
    """librdkafka forms other batches after it has given records up."""
    log = Log({0: Remembered(0, 9)}, own=3)
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=50)
    assert log.run(batch(7, 10), partition) == Told(0, cause="out_of_order")
    assert log.steps == [FindRecords((ID,), 9), Send(ID, 3)]


def test_but_not_if_other_records_have_their_numbers() -> None:
    log = Log({0: Remembered(0, 9)}, own=2)
    assert log.run(batch(7, 10), KeptPartition(epoch=0)) == Told(AGAIN, cause="waits_for_others")


def test_equal_records_under_other_numbers_are_no_copies_while_the_client_has_raised_no_epoch() -> None:
    begun = Log({0: Remembered(0, 9)}, older=[Matched(3, 42, 45)])
    assert begun.run(batch(7, 10), KeptPartition(epoch=0)).cause == "waits_for_others"
    followed = Log({0: Remembered(0, 9)}, older=[Matched(2, 42, 44)])
    assert followed.run(batch(4), KeptPartition(epoch=0)) == Told(OUT_OF_ORDER, cause="unsettled")


def test_of_a_batch_that_is_longer_than_what_was_written_at_its_place_the_rest_is_sent() -> None:
    partition = KeptPartition(epoch=0)
    partition.written(0, 4, 2, 50)
    log = Log({0: Remembered(0, 5)}, own=2)
    assert log.run(batch(4, 3), partition, AGAIN) == Told(0, cause="sent_alone")
    assert log.steps == [FindRecords((ID,), 5), Send(ID, 2)]


def test_a_shorter_one_is_written() -> None:
    log = Log({0: Remembered(0, 9)}, own=2)
    assert log.run(batch(4), KeptPartition(epoch=0), AGAIN) == Told(0, cause="written")


def test_the_newest_id_is_fenced_off_where_another_process_has_begun_it() -> None:
    log = Log({0: Remembered(1, -1), 1: Remembered(0, 9)}, older=[Matched(2, 42, 44)])
    assert log.run(batch(0, epoch=1), raised(), AGAIN).base_offset == 42
    assert log.steps[:2] == [FenceOff(ID, 1), FenceOff(successor(ID, 1), 1)]


def test_a_batch_of_an_epoch_that_its_client_leaves_during_its_repair_ends_nothing_of_the_next_one() -> None:
    partition = KeptPartition(epoch=0, told=9, told_from=0, told_to=50)
    steps = repair(batch(10), partition, Told(OUT_OF_ORDER), 1)
    next(steps)
    assert steps.send(LeaderView({ID: Remembered(0, 9)})) == Send(ID)
    partition.sends(1, 0, 1)
    with pytest.raises(StopIteration):
        steps.send(WRITTEN)
    assert partition.older_from == 0


def test_what_was_found_is_left_out_of_a_longer_batch_and_the_rest_is_sent() -> None:
    """librdkafka regroups records into other batches after it has given some up."""
    partition = raised(told=3, told_from=0, older_from=43, fenced=0)
    log = Log({0: Remembered(1, -1)}, older=[Matched(2, 41, 43)])
    assert log.run(batch(2, 5, epoch=1), partition, AGAIN) == Told(0, cause="sent_alone")
    assert log.steps == [older(6, 30), Send(successor(ID, 1), 2)]


def test_of_records_that_are_written_some_may_be_under_an_earlier_epoch() -> None:
    log = Log({1: Remembered(1, 9)}, older=[Matched(3, -1, 60)])
    partition = KeptPartition(epoch=1, told=9, told_from=0, told_to=60)
    assert log.run(batch(7, 5, epoch=1), partition, AGAIN) == Told(0, cause="sent_alone")
    assert log.steps[1:] == [Send(successor(ID, 1), 3)]


def test_a_batch_of_which_only_the_last_records_are_in_the_log_is_not_called_written() -> None:
    """Its client left the others out, another instance wrote what followed, and records were regrouped since."""
    log = Log({0: Remembered(0, 3), 1: Remembered(0, 9)}, found=-1)
    told = log.run(batch(6, 4), KeptPartition(epoch=0), ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert told == Told(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, cause="unsettled")
    fenced = Log({0: Remembered(7, -1)}, found=-1)
    assert fenced.run(batch(6, 4), KeptPartition(epoch=0, outdated=((6, 1),))).cause == "epoch_raised"
    assert fenced.steps[-1] == Send(successor(ID, 1))


@pytest.mark.parametrize("there", [{"own": 4}, {"older": [Matched(4, -1, 60)]}])
def test_it_is_if_the_others_are_there_as_well(there: dict[str, Any]) -> None:
    log = Log({1: Remembered(1, 9)}, found=-1, **there)
    assert log.run(batch(6, 4, epoch=1), KeptPartition(epoch=1)) == Told(0, cause="written")


def test_nor_is_a_batch_for_whose_last_records_the_client_has_no_success() -> None:
    log = Log({0: Remembered(0, 9)}, own=2)
    told = log.run(batch(4, 6), KeptPartition(epoch=0, told=5, told_from=4))
    assert told == Told(OUT_OF_ORDER, cause="unsettled")


def test_what_may_be_in_flight_under_the_next_id_is_fenced_off_as_well() -> None:
    """An id is in use once a batch is in the log under it."""
    partition = raised(fenced=0)
    lost = Log({0: Remembered(1, -1)}, older=[Matched(1, 42, 43)], sends=[Told(ErrorCode.REQUEST_TIMED_OUT)])
    assert lost.run(batch(0, epoch=1), partition, AGAIN).error_code == ErrorCode.REQUEST_TIMED_OUT
    partition.doubts(1, 0)
    partition.sends(2, 0, 1)
    log = Log({0: Remembered(1, -1)})
    assert log.run(batch(0, epoch=2), partition, AGAIN).error_code == 0
    assert log.steps[:2] == [FenceOff(ID, 2), FenceOff(successor(ID, 1), 2)]


def test_so_is_what_another_process_may_have_in_flight_under_the_next_id() -> None:
    partition = raised(told_by=None)
    log = Log({0: Remembered(0, 9)})
    log.run(batch(0, epoch=1), partition, AGAIN)
    assert [step for step in log.steps if isinstance(step, FenceOff)] == [
        FenceOff(ID, 1),
        FenceOff(successor(ID, 1), 1),
    ]


def test_an_id_that_was_only_fenced_off_is_not_the_newest_where_another_has_batches_of_that_epoch() -> None:
    """Another instance has begun the epoch before this one fenced off what it had sent itself."""
    log = Log({0: Remembered(2, 4), 1: Remembered(2, -1)})
    partition = raised(epoch=2, sent_under=1)
    assert log.run(batch(5, epoch=2), partition, AGAIN) == WRITTEN._replace(cause="sent_alone")
    assert log.steps[-1] == Send(ID)
    assert partition.generation == 0


def test_a_batch_whose_client_raises_its_epoch_before_it_is_compared_is_not_sent() -> None:
    partition = raised(fenced=0)
    steps = repair(batch(0, epoch=1), partition, Told(AGAIN), 1)
    next(steps)
    partition.sends(2, 0, 1)
    with pytest.raises(StopIteration) as ended:
        steps.send(LeaderView({ID: Remembered(1, -1)}))
    assert ended.value.value.cause == "old_epoch"
