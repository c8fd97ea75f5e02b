"""Batches of a log, and its tail."""

import struct

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_batches import Batch, Depth, holds, last_batches, split_batches, tail_of

PID = 1 << 62 | 7


def data_of(offset: int, *, pid: int = PID, sequence: int = 0, count: int = 1, at_ms: int = 0) -> bytes:
    records = [Record(offset + n, at_ms, None, b"x", ()) for n in range(count)]
    return bytes(build_batch(records, base_offset=offset, producer_id=pid, producer_epoch=0, base_sequence=sequence))


def old_message(offset: int) -> bytes:
    body = struct.pack(">Ibbii", 0, 1, 0, -1, -1)
    return struct.pack(">qi", offset, len(body)) + body


def batches_at(*times_ms: int, pid: int = PID) -> list[Batch]:
    data = b"".join(data_of(n, pid=pid, sequence=n, at_ms=at_ms) for n, at_ms in enumerate(times_ms))
    return split_batches(data, 0)[0]


class TestSplit:
    def test_nothing(self) -> None:
        assert split_batches(b"", 5) == ([], 5)

    def test_whole_batches_and_where_to_continue(self) -> None:
        data = data_of(3, count=2) + data_of(9)
        batches, following = split_batches(data, 4)
        assert [(batch.header.base_offset, batch.next_offset) for batch in batches] == [(3, 5), (9, 10)]
        assert b"".join(batch.data for batch in batches) == data
        assert following == 10

    @pytest.mark.parametrize("cut", range(1, 62, 5))
    def test_what_is_cut_at_the_end_is_left_out(self, cut: int) -> None:
        batches, following = split_batches(data_of(0) + data_of(1)[:-cut], 0)
        assert (len(batches), following) == (1, 1)

    def test_old_messages_are_passed_over(self) -> None:
        batches, following = split_batches(old_message(0) + data_of(1) + old_message(2), 0)
        assert ([batch.header.base_offset for batch in batches], following) == ([1], 3)

    def test_what_lies_before_is_left_out(self) -> None:
        assert split_batches(data_of(0), 7) == ([], 7)

    def test_no_record_set(self) -> None:
        with pytest.raises(RemoteProtocolError):
            split_batches(bytes(40), 0)


class TestTail:
    def test_five_batches_if_they_are_old(self) -> None:
        kept, enough = tail_of(batches_at(*range(0, 70_000, 10_000)), {PID: None})
        assert ([batch.header.base_sequence for batch in kept], enough) == ([2, 3, 4, 5, 6], True)

    def test_two_seconds_if_they_are_many(self) -> None:
        kept, enough = tail_of(batches_at(*range(0, 10_000, 250)), {PID: None})
        assert ([batch.header.base_sequence for batch in kept], enough) == (list(range(31, 40)), True)

    def test_there_may_be_older_ones_until_one_is_seen_that_does_not_count(self) -> None:
        kept, enough = tail_of(batches_at(0, 0, 0), {PID: None})
        assert (len(kept), enough) == (3, False)
        assert not tail_of(batches_at(*range(0, 70_000, 10_000)), {PID: None, 5: None})[1], "nothing of 5 was seen"

    def test_there_are_none_before_the_first(self) -> None:
        assert tail_of(batches_at(0, 0, 0), {PID: 0})[1]
        assert tail_of(batches_at(0, 0, 0), {PID: 33})[1], "what is of an earlier lease lies before all of this one"
        assert not tail_of(batches_at(0, 0, 0)[1:], {PID: 0})[1]

    def test_others_do_not_count(self) -> None:
        assert tail_of(batches_at(*range(0, 70_000, 10_000)), {}) == ([], True)


class TestDepth:
    def test_all_within_the_window_of_the_newest_one(self) -> None:
        batches = batches_at(*range(0, 300_000, 10_000))
        kept, enough = tail_of(batches, {PID: None}, Depth(120_000, 290_000))
        assert ([batch.header.base_sequence for batch in kept], enough) == (list(range(17, 30)), True)

    @pytest.mark.parametrize("now_ms", [10_000_000, -10_000_000])
    def test_of_records_of_another_time_the_age_says_nothing(self, now_ms: int) -> None:
        batches = batches_at(*range(0, 300_000, 10_000))
        assert tail_of(batches, {PID: None}, Depth(120_000, now_ms)) == (batches, False)

    def test_the_last_ones_are_those_of_each_producer(self) -> None:
        mine, others = batches_at(*range(0, 70_000, 10_000)), batches_at(*[0] * 9, pid=5)
        assert last_batches(mine) == {2, 3, 4, 5, 6}
        assert last_batches(others) == set(range(9))
        assert last_batches(mine + batches_at(0, pid=6)) == {0, 2, 3, 4, 5, 6}


def test_a_batch_is_known_by_its_last_sequence() -> None:
    batches = split_batches(data_of(0, sequence=2**31 - 1, count=3), 0)[0]
    assert holds(batches, PID, 0, 1)
    assert not holds(batches, PID, 0, 2)
    assert not holds(batches, PID, 1, 1)
    assert holds([], PID, 0, -1), "nothing was written"
