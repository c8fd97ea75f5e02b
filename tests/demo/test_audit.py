"""The demo's verdict is only worth something if it sees what is wrong."""

from kproxy.codec.batch import build_batch
from kproxy.codec.records import Record
from kproxy.demo.audit import LogTally, judge
from kproxy.demo.demo_clients import record_value


def batch(numbers: list[int], base_offset: int = 0, *, stamped: bool = True) -> bytes:
    records = [Record(base_offset + at, 1_000, None, record_value(number), ()) for at, number in enumerate(numbers)]
    stamp = {"producer_id": 7, "producer_epoch": 0, "base_sequence": base_offset} if stamped else {}
    return bytes(build_batch(records, base_offset=base_offset, **stamp))


def tally(*batches: bytes) -> LogTally:
    log = LogTally()
    log.add(b"".join(batches))
    return log


def test_everything_once_and_stamped_is_good() -> None:
    verdict = judge(4, range(4), range(4), tally(batch([0, 1]), batch([2, 3], 2)))
    assert verdict.good
    assert (verdict.in_log, verdict.stamped, verdict.batches, verdict.stamped_batches) == (4, 4, 2, 2)


def test_a_record_that_is_not_in_the_log_is_lost() -> None:
    verdict = judge(3, range(3), range(3), tally(batch([0, 1])))
    assert (verdict.lost, verdict.good) == (1, False)


def test_a_record_that_was_never_consumed_is_lost() -> None:
    verdict = judge(2, range(2), [0], tally(batch([0, 1])))
    assert (verdict.lost, verdict.good) == (1, False)


def test_a_record_that_was_not_acknowledged_is_not_lost_but_not_good_either() -> None:
    verdict = judge(2, [0], [0], tally(batch([0])))
    assert (verdict.lost, verdict.good) == (0, False)


def test_copies_count_in_the_log_and_in_what_was_consumed() -> None:
    log = tally(batch([0, 1]), batch([1], 2))
    assert judge(2, range(2), [0, 1], log).duplicate == 1
    assert judge(2, range(2), [0, 0, 1], tally(batch([0, 1]))).duplicate == 1
    assert not judge(2, range(2), [0, 1], log).good


def test_a_batch_without_producer_id_is_not_stamped() -> None:
    verdict = judge(2, range(2), range(2), tally(batch([0]), batch([1], 1, stamped=False)))
    assert (verdict.stamped, verdict.stamped_batches, verdict.good) == (1, 1, False)
