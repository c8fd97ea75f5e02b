"""One partition's log: offsets, checks, reads, look-ups, truncation."""

import pytest

from kproxy.codec.batch import HEADER_SIZE, Record, build_batch, crc_ok, iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.partition_log import Appended, FoundOffset, PartitionLog, replay
from kproxy.testing.fake_broker.producers import ProducerStates
from kproxy.testing.fake_broker.stored_batches import StoredBatch, is_transactional, marker_batch

NOW = 50_000
TEN_MINUTES_MS = 600_000


def batch(*times: int, producer_id: int = -1, sequence: int = -1, epoch: int = 0, **flags: bool) -> bytearray:
    """A batch with one record per time (ms)."""
    records = [Record(at, time, None, b"v") for at, time in enumerate(times)]
    stamped = producer_id >= 0
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch if stamped else -1, base_sequence=sequence, **flags
    )


def put(log: PartitionLog, data: bytearray, leader_epoch: int = 0, now: int = NOW) -> Appended:
    return log.append(memoryview(data), leader_epoch, now)


def filled(*batches: tuple[int, ...], leader_epochs: tuple[int, ...] = ()) -> PartitionLog:
    log = PartitionLog({})
    for number, times in enumerate(batches):
        assert put(log, batch(*times), leader_epochs[number] if leader_epochs else 0).error is ErrorCode.NONE
    return log


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in iter_records(data, max_decompressed_bytes=1 << 20)]


def test_each_batch_begins_where_the_last_one_ended() -> None:
    log = PartitionLog({})
    assert [put(log, batch(1, 2, 3)), put(log, batch(4)), put(log, batch(5, 6))] == [
        Appended(ErrorCode.NONE, 0, end_offset=3),
        Appended(ErrorCode.NONE, 3, end_offset=4),
        Appended(ErrorCode.NONE, 4, end_offset=6),
    ]
    assert (log.start_offset, log.end_offset) == (0, 6)
    assert offsets(log.read(0, 1 << 20, whole_first_batch=True)) == [0, 1, 2, 3, 4, 5]


def test_a_stored_batch_tells_offset_and_leader_epoch_and_the_sent_one_is_left_alone() -> None:
    log = filled((1,))
    sent = batch(2)
    copy = bytes(sent)
    put(log, sent, leader_epoch=4)
    header = read_header(log.read(1, 1 << 20, whole_first_batch=True))
    assert (header.base_offset, header.partition_leader_epoch) == (1, 4)
    assert sent == copy


def test_damage_is_found_and_nothing_is_written() -> None:
    log = PartitionLog({"max.message.bytes": "200"})
    flipped = batch(1)
    flipped[-1] ^= 1
    old_magic = batch(1)
    old_magic[16] = 1
    assert put(log, flipped).error is ErrorCode.CORRUPT_MESSAGE
    assert put(log, old_magic).error is ErrorCode.INVALID_RECORD
    assert put(log, batch(1) + batch(2)).error is ErrorCode.INVALID_RECORD
    assert put(log, batch(1)[: HEADER_SIZE - 1]).error is ErrorCode.INVALID_RECORD
    assert put(log, batch(1, is_control=True)).error is ErrorCode.INVALID_RECORD
    assert put(log, batch(*range(40))).error is ErrorCode.MESSAGE_TOO_LARGE
    assert log.end_offset == 0


def test_a_stamped_batch_sent_again_is_answered_with_its_first_offset() -> None:
    log = filled((1,))
    first = put(log, batch(2, 3, producer_id=7, sequence=0))
    assert put(log, batch(4, producer_id=7, sequence=2)).base_offset == 3
    assert put(log, batch(2, 3, producer_id=7, sequence=0)) == first == Appended(ErrorCode.NONE, 1, end_offset=3)
    assert put(log, batch(5, producer_id=7, sequence=4)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 4


@pytest.mark.parametrize(("sequence", "epoch"), [(-1, 0), (0, -1)])
def test_a_producer_id_needs_epoch_and_sequence(sequence: int, epoch: int) -> None:
    assert put(PartitionLog({}), batch(1, producer_id=7, sequence=sequence, epoch=epoch)).error is (
        ErrorCode.INVALID_RECORD
    )


def test_a_producer_expires_at_the_append_ten_minutes_on() -> None:
    log = PartitionLog({}, expiration_ms=1000)
    assert put(log, batch(NOW, producer_id=7, sequence=0)).base_offset == 0
    assert put(log, batch(NOW, producer_id=7, sequence=0)).base_offset == 0
    assert put(log, batch(NOW, producer_id=7, sequence=0), now=NOW + TEN_MINUTES_MS).base_offset == 1


def test_append_time_replaces_the_producers_time() -> None:
    log = PartitionLog({"message.timestamp.type": "LogAppendTime"})
    assert put(log, batch(1, 2)).append_time == NOW
    data = log.read(0, 1 << 20, whole_first_batch=True)
    assert crc_ok(data, 0, len(data))
    assert [record.timestamp for record in iter_records(data, max_decompressed_bytes=1 << 20)] == [NOW, NOW]
    assert log.max_timestamp() == FoundOffset(0, NOW, 0)


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    log = filled((1, 2), (3, 4), (5,))
    assert offsets(log.read(3, 1 << 20, whole_first_batch=True)) == [2, 3, 4]
    assert log.read(5, 1 << 20, whole_first_batch=True) == b""


def test_a_read_is_cut_by_bytes_but_for_the_first_batch() -> None:
    log = filled((1,), (2,))
    whole = log.read(0, 1 << 20, whole_first_batch=True)
    first = whole[: len(whole) // 2]
    assert log.read(0, len(first) + 5, whole_first_batch=False) == whole[: len(first) + 5]
    assert log.read(0, 10, whole_first_batch=True) == first
    assert log.read(0, 10, whole_first_batch=False) == b""


def test_times_are_looked_up_record_by_record() -> None:
    log = filled((10, 30), (20, 40), leader_epochs=(0, 1))
    assert log.find_timestamp(0) == FoundOffset(0, 10, 0)
    assert log.find_timestamp(11) == FoundOffset(1, 30, 0)
    assert log.find_timestamp(31) == FoundOffset(3, 40, 1)
    assert log.find_timestamp(41) is None


def test_the_newest_time_is_returned_with_its_first_record() -> None:
    assert filled((10, 40), (40, 20)).max_timestamp() == FoundOffset(1, 40, 0)
    assert PartitionLog({}).max_timestamp() is None


def test_deleted_records_disappear_from_reads_and_look_ups() -> None:
    log = filled((10, 20), (30, 40))
    log.delete_before(3)
    assert (log.start_offset, log.end_offset) == (3, 4)
    assert log.find_timestamp(0) == FoundOffset(3, 40, 0)
    assert offsets(log.read(0, 1 << 20, whole_first_batch=True)) == [2, 3]
    log.delete_before(1)
    assert log.start_offset == 3
    log.delete_before(4)
    assert log.read(4, 1 << 20, whole_first_batch=True) == b""
    assert put(log, batch(50)).base_offset == 4


def test_deleted_records_leave_their_producer_behind() -> None:
    log = PartitionLog({})
    put(log, batch(1, producer_id=7, sequence=0))
    log.delete_before(1)
    assert put(log, batch(1, producer_id=7, sequence=0)) == Appended(ErrorCode.NONE, 0, end_offset=1)


def test_leader_epochs_and_where_they_end() -> None:
    log = filled((1,), (2,), (3,), leader_epochs=(0, 0, 2))
    assert [log.leader_epoch_at(offset) for offset in (0, 1, 2, 3)] == [0, 0, 2, 2]
    assert [log.end_of_epoch(epoch) for epoch in (0, 1, 2, 9)] == [(0, 2), (0, 2), (2, 3), (2, 3)]
    assert log.end_of_epoch(-1) == (-1, -1)
    assert PartitionLog({}).leader_epoch_at(0) == -1


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_a_control_batch_of_one_record(commit: bool) -> None:
    log = filled((1,))
    error = log.append_marker(7, 3, commit, coordinator_epoch=5, leader_epoch=2, now=NOW)
    assert (error, log.end_offset) == (ErrorCode.NONE, 2)
    data = log.read(1, 1 << 20, whole_first_batch=True)
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_offset) == (7, 3, 1)
    assert header.attributes & 0x30 == 0x30
    assert crc_ok(data, 0, len(data))
    key, value = bytes([0, 0, 0, commit]), bytes([0, 0, 0, 0, 0, 5])
    assert header.record_count == 1
    assert data.endswith(bytes([2 * len(key)]) + key + bytes([2 * len(value)]) + value + b"\0")


def test_a_refused_marker_writes_nothing() -> None:
    log = PartitionLog({})
    log.append_marker(7, 3, True, coordinator_epoch=0, leader_epoch=0, now=NOW)
    assert log.append_marker(7, 2, True, 0, 0, NOW) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.end_offset == 1


def test_transactional_means_the_flag_and_a_producer_id() -> None:
    assert is_transactional(memoryview(batch(1, producer_id=7, sequence=0, is_transactional=True)))
    assert not is_transactional(memoryview(batch(1, is_transactional=True)))
    assert not is_transactional(memoryview(batch(1, producer_id=7, sequence=0)))
    assert not is_transactional(memoryview(b""))


def test_a_cut_log_knows_the_producers_that_it_still_holds() -> None:
    log = PartitionLog({})
    put(log, batch(1, producer_id=7, sequence=0))
    log.append_marker(8, 2, False, coordinator_epoch=5, leader_epoch=0, now=NOW)
    put(log, batch(2, producer_id=7, sequence=1))
    put(log, batch(3, producer_id=9, sequence=0))
    log.truncate(2)
    assert (log.end_offset, [(pid, entry.last_sequence) for pid, entry in log.producers.items()]) == (
        2,
        [(7, 0), (8, -1)],
    )
    assert dict(log.producers.items())[8].coordinator_epoch == 5
    assert put(log, batch(2, producer_id=7, sequence=1)).base_offset == 2


def test_a_cut_log_still_knows_producers_whose_records_were_deleted() -> None:
    log = PartitionLog({})
    put(log, batch(1, producer_id=7, sequence=0))
    put(log, batch(1, producer_id=8, sequence=0))
    log.delete_before(1)
    log.truncate(1)
    assert [producer_id for producer_id, _ in log.producers.items()] == [7]
    log.forget_producers(NOW)
    assert log.producers.items() == []


def test_a_replica_knows_the_producers_of_what_it_has_copied() -> None:
    log = PartitionLog({})
    put(log, batch(1, producer_id=7, sequence=0))
    put(log, batch(2, producer_id=7, sequence=1))
    assert [entry.last_sequence for _, entry in log.producers_before(1).items()] == [0]
    assert [entry.last_sequence for _, entry in log.producers.items()] == [1]


def test_recompressed_and_read_below_the_high_watermark() -> None:
    log = PartitionLog({"compression.type": "zstd"})
    put(log, batch(1, 2))
    put(log, batch(3))
    data = log.read(0, 1 << 20, whole_first_batch=True, end=2)
    assert read_header(data).codec == 4
    assert offsets(data) == [0, 1]
    assert log.read(2, 1 << 20, whole_first_batch=True, end=2) == b""


def test_a_compacted_log_takes_no_record_without_a_key() -> None:
    log = PartitionLog({"cleanup.policy": "compact"})
    assert put(log, batch(1)).error is ErrorCode.INVALID_RECORD
    keyed = [build_batch([Record(0, 1, key, value)]) for key, value in ((b"a", b"1"), (b"a", b"2"), (b"b", b"3"))]
    for data in keyed:
        assert put(log, data).error is ErrorCode.NONE
    log.compact()
    assert offsets(log.read(0, 1 << 20, whole_first_batch=True)) == [1, 2]
    assert (log.start_offset, log.end_offset) == (0, 3)


def test_compaction_drops_what_was_aborted_and_leaves_alone_what_is_undecided() -> None:
    log = PartitionLog({"cleanup.policy": "compact"})

    def write(value: bytes, producer_id: int) -> None:
        rows = [Record(0, NOW, b"k", value)]
        data = build_batch(
            rows, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=producer_id >= 0
        )
        assert put(log, data).error is ErrorCode.NONE

    def left() -> list[bytes | None]:
        data = log.read(0, 1 << 20, whole_first_batch=True)
        return [record.value for record in iter_records(data, max_decompressed_bytes=1 << 20)]

    write(b"1", 7)
    assert log.append_marker(7, 0, True, 0, 0, NOW) is ErrorCode.NONE
    write(b"2", 8)
    assert log.append_marker(8, 0, False, 0, 0, NOW) is ErrorCode.NONE
    write(b"3", 9)
    log.compact(log.end_offset)
    assert left() == [b"1", b"3"]
    assert log.append_marker(9, 0, True, 0, 0, NOW) is ErrorCode.NONE
    log.compact(log.end_offset)
    assert left() == [b"3"]


def stored(data: bytearray, offset: int, count: int = 1) -> StoredBatch:
    return StoredBatch(offset + count - 1, offset, 0, 50, bytes(data))


def test_batches_and_markers_are_noted_and_plain_records_are_nobodys() -> None:
    rows = [Record(at, 50, None, b"v") for at in range(2)]
    known = ProducerStates()
    replay(
        [
            stored(build_batch(rows), 0, 2),
            stored(build_batch(rows, producer_id=7, producer_epoch=1, base_sequence=4), 2, 2),
            stored(build_batch(rows, producer_id=8, producer_epoch=0, base_sequence=0), 4, 2),
            stored(marker_batch(8, 3, False, 9, 50), 6),
        ],
        known,
    )
    told = [(pid, row.epoch, row.last_sequence, row.last_offset, row.coordinator_epoch) for pid, row in known.items()]
    assert told == [(7, 1, 5, 3, -1), (8, 3, -1, 6, 9)]
