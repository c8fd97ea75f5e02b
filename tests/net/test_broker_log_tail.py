"""What is read of one partition's log, without any broker: a log is a list of batches here."""

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.net.broker_log_batches import Depth
from kproxy.net.broker_log_questions import ActiveProducer
from kproxy.net.broker_log_tail import LogRange, OffsetReads, Reader, Tail, Wanted

PID, OTHER = 1 << 62 | 7, 3
MIB = 1 << 20


class Log:
    """Batches of one record each; notes which offsets were asked for."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.asked: list[int] = []
        self.counts: dict[int, int] = {}
        self.start = 0

    def write(self, pid: int, count: int = 1, *, epoch: int = 0, size: int = 1, every_ms: int = 10_000) -> None:
        for _ in range(count):
            sequence = self.counts.get((pid << 16) + epoch, 0)
            self.counts[(pid << 16) + epoch] = sequence + 1
            offset = len(self.batches)
            rows = [Record(offset, sequence * every_ms, None, bytes(size), ())]
            data = build_batch(rows, base_offset=offset, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
            self.batches.append(bytes(data))

    def row(self, pid: int, epoch: int = 0) -> ActiveProducer:
        return ActiveProducer(pid, epoch, self.counts.get((pid << 16) + epoch, 0) - 1, 0)

    def run(self, reader: Reader, *, most: int = 1 << 30, rounds: int = 10_000) -> None:
        """Gives the first batch whole and cuts after it, as brokers do."""
        for _ in range(rounds):
            wish = reader.wish
            if wish is None:
                return
            offset, size = wish
            self.asked.append(offset)
            if offset < self.start:
                reader.cut(self.start)
                continue
            data = b"".join(self.batches[offset : offset + 1 + size // 70])
            first = len(self.batches[offset]) if offset < len(self.batches) else 0
            reader.take(data[: max(first, min(size, most))])


def offsets(reader: LogRange | Tail) -> list[int]:
    return [batch.header.base_offset for batch in reader.batches]


@pytest.fixture
def log() -> Log:
    return Log()


class TestStretch:
    def test_all_of_it_in_pieces_that_grow(self, log: Log) -> None:
        log.write(PID, 2000, size=100)
        stretch = LogRange(10, 2000, MIB)
        log.run(stretch)
        assert offsets(stretch) == list(range(10, 2000))
        assert len(log.asked) <= 4

    def test_no_more_than_the_bytes_and_a_batch(self, log: Log) -> None:
        log.write(PID, 10, size=1000)
        stretch = LogRange(0, 10, 1)
        log.run(stretch)
        assert offsets(stretch) == [0]

    def test_what_is_deleted_is_passed_over(self, log: Log) -> None:
        log.write(PID, 10)
        log.start = 4
        stretch = LogRange(0, 10, MIB)
        log.run(stretch)
        assert offsets(stretch) == list(range(4, 10))
        stretch.cut(2)
        assert stretch.following == 10


class TestSpots:
    @pytest.mark.parametrize("most", [1, 100, 1000, MIB])
    def test_the_batches_that_hold_the_offsets_each_once(self, log: Log, most: int) -> None:
        log.write(PID, 3000)
        found: list[int] = []
        wanted = [2999, 5, 7, 8, 9, 1500, 5]
        log.run(OffsetReads(wanted, lambda batch: found.append(batch.header.base_offset)), most=most)
        assert found == sorted(set(wanted))
        assert len(log.asked) <= len(set(wanted))

    def test_what_is_deleted_is_passed_over(self, log: Log) -> None:
        log.write(PID, 20)
        log.start = 8
        found: list[int] = []
        log.run(OffsetReads([2, 3, 9], lambda batch: found.append(batch.header.base_offset)))
        assert found == [9]

    def test_no_offset_is_no_wish(self) -> None:
        assert OffsetReads([], lambda _: None).wish is None


class TestTail:
    def test_no_producer_is_no_wish(self) -> None:
        assert Tail([], 0, 100, MIB).wish is None

    def test_the_last_ones_wherever_they_are(self, log: Log) -> None:
        log.write(PID, 20)
        log.write(OTHER, 3000)
        tail = Tail([Wanted(log.row(PID))], 0, 3020, MIB)
        log.run(tail)
        assert offsets(tail) == list(range(15, 20))
        assert not tail.too_long

    def test_as_deep_as_wanted(self, log: Log) -> None:
        log.write(PID, 100)
        log.write(OTHER, 300)
        tail = Tail([Wanted(log.row(PID))], 0, 400, MIB, Depth(500_000))
        log.run(tail)
        assert offsets(tail) == list(range(49, 100))

    def test_no_deeper_than_the_bytes_which_suffice_for_the_last_ones(self, log: Log) -> None:
        log.write(PID, 1000, size=1000)
        tail = Tail([Wanted(log.row(PID))], 0, 1000, 100_000, Depth(1 << 60))
        log.run(tail)
        assert 50 < len(offsets(tail)) < 110
        assert not tail.too_long

    def test_no_deeper_than_the_memory_that_records_take(self, log: Log) -> None:
        log.write(PID, 2000)
        tail = Tail([Wanted(log.row(PID))], 0, 2000, 100_000, Depth(1 << 60))
        log.run(tail)
        assert 400 < len(offsets(tail)) < 1500
        assert not tail.too_long

    def test_a_producers_first_batch_ends_the_search(self, log: Log) -> None:
        log.write(OTHER, 1000)
        log.write(PID)
        tail = Tail([Wanted(log.row(PID), 0)], 0, 1001, MIB)
        log.run(tail)
        assert (offsets(tail), len(log.asked)) == ([1000], 1)

    def test_so_does_a_batch_of_an_earlier_lease(self, log: Log) -> None:
        log.write(OTHER, 1000)
        log.write(PID)
        tail = Tail([Wanted(ActiveProducer(PID, 66, -1, 0), 33)], 0, 1001, MIB)
        log.run(tail)
        assert len(log.asked) == 1

    def test_what_was_not_known_at_an_offset_is_not_looked_for_below(self, log: Log) -> None:
        log.write(OTHER, 1000)
        log.write(PID, 2)
        log.write(OTHER, 10)
        tail = Tail([Wanted(log.row(PID), None, 1000)], 0, 1012, MIB)
        log.run(tail)
        assert offsets(tail) == [1000, 1001]
        assert min(log.asked) == 1000

    def test_but_others_are(self, log: Log) -> None:
        log.write(OTHER, 7)
        log.write(5, 1000)
        log.write(PID, 2)
        tail = Tail([Wanted(log.row(PID), None, 1007), Wanted(log.row(OTHER), 0)], 0, 1009, MIB)
        log.run(tail)
        assert offsets(tail) == [2, 3, 4, 5, 6, 1007, 1008]

    def test_no_more_than_the_bytes_are_looked_through(self, log: Log) -> None:
        log.write(PID, 20)
        log.write(OTHER, 3000)
        tail = Tail([Wanted(ActiveProducer(PID, 1, -1, 0), 0)], 0, 3020, 10_000)
        log.run(tail)
        assert (offsets(tail), tail.too_long) == ([], True)
        assert min(log.asked) > 2500

    @pytest.mark.parametrize("most", [1, 100, 1000])
    def test_pieces_may_be_small(self, log: Log, most: int) -> None:
        log.write(PID, 20)
        log.write(OTHER, 100)
        tail = Tail([Wanted(log.row(PID))], 0, 120, MIB)
        log.run(tail, most=most)
        assert offsets(tail) == list(range(15, 20))

    def test_deletion_meanwhile_ends_it(self, log: Log) -> None:
        log.write(PID, 4)
        log.write(OTHER, 1000)
        log.start = 1003
        tail = Tail([Wanted(ActiveProducer(PID, 1, -1, 0), 0)], 0, 1004, MIB)
        log.run(tail)
        assert (offsets(tail), tail.too_long, tail.wish) == ([], False, None)

    def test_what_cannot_be_read_yet_is_waited_for(self, log: Log) -> None:
        log.write(PID, 3)
        tail = Tail([Wanted(log.row(PID), 0)], 0, 1, MIB)
        late = log.batches.pop()
        del log.batches[1:]
        log.run(tail, rounds=5)
        assert tail.may_wait
        log.write(OTHER)
        log.batches.append(late)
        log.run(tail, rounds=5)
        assert (len(tail.batches), tail.wish) == (2, None)
