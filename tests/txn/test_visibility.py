from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.batch import Record, build_batch, crc_ok, iter_records, read_header
from kproxy.codec.batch_header import set_transactional
from kproxy.codec.records import CorruptRecord
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.verdict import NothingKnown, Verdict
from kproxy.txn.visibility import Aborted, Seen, entries, marker, undecided_in, visible
from tests.codec import message_sets
from tests.txn.mixed_logs import TXN_PID, UNDECIDED, MixedLog, log_of, steps


def see(log: MixedLog, offset: int = 0, max_bytes: int = 1 << 30) -> Seen:
    return visible(
        log.read(offset, max_bytes),
        topic="t",
        partition=0,
        first_offset=offset,
        aborted=log.aborted_from(offset),
        decisions=log,
    )


def joined(seen: Seen) -> bytes:
    return b"".join(seen.pieces)


def offsets(seen: Seen) -> list[int]:
    return [record.offset for record in iter_records(joined(seen), max_decompressed_bytes=1 << 20)]


def position_behind(seen: Seen, position: int) -> int:
    """The next position of a client that advances by the last batch."""
    for entry in entries(joined(seen)):
        header = read_header(entry) if entry[16] == 2 else None
        base = int.from_bytes(entry[:8], "big")
        position = max(position, base + (header.last_offset_delta if header else 0) + 1)
    return position


class TestVisible:
    @settings(max_examples=300, deadline=None)
    @given(steps, steps, st.booleans(), st.data())
    def test_the_right_records_in_every_stretch(
        self, before: list[tuple[str, int, int]], behind: list[tuple[str, int, int]], waits: bool, data: st.DataObject
    ) -> None:
        log = log_of([*before, *([("undecided", 2, 0)] if waits else []), *behind])
        offset = data.draw(st.integers(0, log.stable))
        seen = see(log, offset, data.draw(st.integers(1, 2000)))
        assert [n for n in offsets(seen) if n >= offset] == [n for n in log.visible(offset) if n < seen.next_offset]
        assert all(one < two for one, two in pairwise(offsets(seen)))
        assert seen.next_offset <= max(offset, log.stable)
        assert seen.next_offset > offset or not joined(seen)
        for entry in entries(joined(seen)):
            if entry[16] == 2:
                assert crc_ok(entry, 0, len(entry))
                assert read_header(entry).record_count
                assert not read_header(entry).is_control
        if not seen.changed:
            assert log.read(offset, 1 << 30).startswith(joined(seen))

    @settings(max_examples=200, deadline=None)
    @given(steps, st.integers(100, 2000))
    def test_read_to_the_end_nothing_is_missed(self, written: list[tuple[str, int, int]], max_bytes: int) -> None:
        log, offset, got = log_of(written), 0, list[int]()
        while offset < log.stable:
            seen = see(log, offset, max_bytes)
            assert seen.next_offset > offset
            got += [n for n in offsets(seen) if n >= offset]
            offset = seen.next_offset
        assert got == log.visible(0)

    def test_nothing_hidden_nothing_changed(self) -> None:
        log = log_of([("plain", 2, 0), ("committed", 3, 0), ("lane", 1, 0), ("old", 1, 0), ("native", 2, 1)])
        log.add("plain")
        log._open.clear()
        seen = see(log)
        assert not seen.changed
        assert joined(seen) == log.read(0)

    def test_the_first_undecided_batch_is_the_last_stable_offset(self) -> None:
        log = log_of([("plain", 2, 0), ("aborted", 3, 0), ("undecided", 1, 0), ("plain", 1, 0)])
        seen = see(log)
        assert (seen.next_offset, seen.undecided, offsets(seen)) == (5, Producer(TXN_PID, UNDECIDED), [0, 1])
        log.verdicts[UNDECIDED] = Verdict.COMMITTED
        assert offsets(see(log)) == [0, 1, 5, 6]
        log.verdicts[UNDECIDED] = Verdict.ABORTED
        assert offsets(see(log)) == [0, 1, 6]

    def test_a_reader_that_begins_inside_an_undecided_batch_waits_there(self) -> None:
        seen = see(log_of([("undecided", 5, 0)]), 3)
        assert (seen.next_offset, seen.pieces) == (3, [])

    def test_what_is_hidden_after_a_batch_goes_into_its_offsets(self) -> None:
        log = log_of([("plain", 2, 0), ("aborted", 3, 0), ("plain", 1, 0), ("aborted", 4, 0), ("copy", 2, 0)])
        seen = see(log)
        assert offsets(seen) == [0, 1, 5]
        assert position_behind(seen, 0) == seen.next_offset == log.end

    def test_offsets_of_a_newer_leader_are_said_to_be_of_its_epoch(self) -> None:
        # A consumer asks the next leader where the epoch ended that its position is said to be of (KIP-320). Of the
        # older epoch that is before the position: the log would seem to be truncated.
        log = log_of([("plain", 2, 0), ("aborted", 3, 0)])
        at, end, batch = log.batches[1]
        log.batches[1] = at, end, batch[:12] + (7).to_bytes(4, "big") + batch[16:]
        header = read_header(joined(see(log)))
        assert (header.base_offset, header.last_offset_delta, header.partition_leader_epoch) == (0, 4, 7)
        header = read_header(joined(see(log_of([("plain", 2, 0), ("aborted", 3, 0)]))))
        assert header.partition_leader_epoch == 6

    @pytest.mark.parametrize("kind", ["native-abort", "native-commit"])
    def test_so_does_a_single_marker(self, kind: str) -> None:
        """A client that continues after its last record would ask for the marker's offset for ever."""
        log = log_of([("plain", 2, 0), (kind, 1, 1)])
        seen = see(log)
        assert position_behind(seen, 0) == seen.next_offset == log.end == 3

    def test_the_last_stable_offset_after_a_hole_is_where_the_undecided_batch_begins(self) -> None:
        log = log_of([("plain", 3, 0), ("plain", 2, 0), ("undecided", 1, 0)])
        del log.batches[1]  # compacted
        assert see(log).next_offset == 5

    def test_old_messages_are_not_read_as_batches(self) -> None:
        """Their bytes could be taken for a header of format v2 with any offset."""
        data = b"".join(message_sets.entry(at, None, b"\1" * 60, timestamp=0) for at in (4, 5))
        seen = visible(data, topic="t", partition=0, first_offset=4, aborted=[], decisions=NothingKnown())
        assert (seen.next_offset, joined(seen)) == (6, data)

    def test_the_first_producer_id_that_a_cluster_gives_is_one_of_a_transaction_too(self) -> None:
        batch = build_batch([Record(0, 0, None, b"v")], producer_id=TXN_BITS, producer_epoch=UNDECIDED)
        batch += build_batch([Record(0, 0, None, b"v")], base_offset=1)
        seen = visible(bytes(batch), topic="t", partition=0, first_offset=0, aborted=[], decisions=NothingKnown())
        assert (seen.pieces, seen.next_offset) == ([], 0)

    def test_an_old_message_set_has_no_room_for_that(self) -> None:
        log = log_of([("old", 1, 0), ("aborted", 3, 0)])
        seen = see(log)
        assert (position_behind(seen, 0), seen.next_offset) == (1, 4)

    def test_nothing_but_hidden_batches_leaves_nothing(self) -> None:
        log = log_of([("aborted", 3, 0), ("empty", 4, 0), ("native-commit", 1, 1)])
        seen = see(log)
        assert (seen.pieces, seen.next_offset, seen.changed, seen.leader_epoch) == ([], 8, True, 6)
        assert seen.hidden_bytes == len(log.read(0))

    def test_kafkas_own_aborted_transactions_end_with_their_marker(self) -> None:
        log = log_of([("native", 1, 1), ("native", 1, 2), ("native-abort", 1, 1), ("native", 1, 1)])
        log.add("native-commit", number=2)
        log.add("native-commit", number=1)
        assert log.aborted == [Aborted(1, 0)]
        assert offsets(see(log)) == [1, 3]

    def test_a_producer_that_aborts_twice_and_is_read_from_the_middle(self) -> None:
        log = log_of([("native", 3, 1), ("native-abort", 1, 1), ("native", 2, 1), ("native-abort", 1, 1)])
        assert offsets(see(log, 1)) == []
        assert see(log, 1).next_offset == 7

    def test_plain_data_of_a_producer_with_an_aborted_transaction_is_seen(self) -> None:
        log = MixedLog()
        log.add("native", number=5)
        log.batches.append((1, 2, bytes(read_plain(producer_id=5, offset=1))))
        log.end = 2
        log.add("native-abort", number=5)
        assert offsets(see(log)) == [1]

    def test_a_batch_cut_off_at_the_end_is_left_out(self) -> None:
        log = log_of([("aborted", 2, 0), ("plain", 3, 0)])
        first, whole = len(log.batches[0][2]), len(log.read(0))
        for cut in range(first, whole):
            assert see(log, 0, cut).pieces == []
            assert see(log, 0, cut).next_offset == 2

    def test_what_needs_no_change_is_the_very_same_object_cut_or_not(self) -> None:
        log = log_of([("plain", 2, 0), ("lane", 3, 0), ("native", 1, 1), ("native-commit", 1, 1)])
        whole = log.read(0)[: sum(len(data) for _, _, data in log.batches[:3])]
        for cut in range(len(log.batches[0][2]), len(whole) + 1):
            data = whole[:cut]
            seen = visible(data, topic="t", partition=0, first_offset=0, aborted=(), decisions=log)
            assert (seen.pieces[0] is data, seen.changed) == (True, False)
            assert seen.next_offset == max(end for _, end, batch in log.batches if data.find(batch) >= 0)

    def test_a_reader_that_knows_markers_and_aborted_batches_gets_the_very_same_object(self) -> None:
        log = log_of([("native", 1, 1), ("native-abort", 1, 1)])
        log.batches.append((2, 3, bytes(build_batch([Record(0, 0, None, b"v")], base_offset=2, codec=1))))
        log.end = 3
        data = log.read(0)
        seen = natively(data, log)
        assert (seen.pieces[0] is data, seen.next_offset, seen.changed) == (True, 3, False)
        log.add("aborted")
        assert offsets(natively(log.read(0), log)) == [2]

    def test_where_nothing_is_decided_kproxys_transactions_are_shown_and_markers_are_not(self) -> None:
        log = log_of([("plain", 1, 0), ("undecided", 2, 0)])
        data = log.read(0)
        seen = visible(data, topic="t", partition=0, first_offset=0, aborted=(), decisions=None)
        assert (seen.pieces[0] is data, seen.next_offset) == (True, 3)
        log.add("native-commit")
        seen = visible(log.read(0), topic="t", partition=0, first_offset=0, aborted=(), decisions=None)
        assert (offsets(seen), seen.next_offset, seen.undecided) == ([0, 1, 2], 4, None)

    def test_a_marker_and_an_empty_batch_of_an_undecided_transaction_are_no_end_of_what_is_stable(self) -> None:
        """A broker writes a marker for a fence; compaction leaves a batch without records."""
        fence = build_batch(
            [Record(0, 0, bytes(4), bytes(6))],
            producer_id=TXN_PID,
            producer_epoch=UNDECIDED,
            is_control=True,
            is_transactional=True,
        )
        empty = bytearray(build_batch([Record(0, 0, None, b"v")], base_offset=1, producer_id=TXN_PID))[:61]
        empty[8:12], empty[57:61] = (49).to_bytes(4, "big"), bytes(4)
        data = bytes(fence + empty + build_batch([Record(0, 0, None, b"v")], base_offset=2))
        seen = visible(data, topic="t", partition=0, first_offset=0, aborted=[], decisions=NothingKnown())
        assert (offsets(seen), seen.next_offset, seen.undecided) == ([2], 3, None)
        assert undecided_in(memoryview(bytes(fence)), NothingKnown()) is None

    def test_garbage_is_reported(self) -> None:
        with pytest.raises(CorruptRecord):
            visible(bytes(100), topic="t", partition=0, first_offset=0, aborted=(), decisions=NothingKnown())

    @pytest.mark.parametrize("old", [False, True])
    def test_an_entry_after_which_there_is_no_offset_is_reported(self, old: bool) -> None:
        last = (1 << 63) - 1
        marking = build_batch([Record(0, 0, bytes(4), bytes(6))], base_offset=last, is_control=True)
        data = message_sets.entry(last, None, b"v") + bytes(marking) if old else bytes(marking)
        with pytest.raises(CorruptRecord):
            visible(data, topic="t", partition=0, first_offset=0, aborted=(), decisions=NothingKnown())

    @pytest.mark.parametrize("length", [-(1 << 31), -12, -1, 0, 48])
    def test_a_batch_that_says_it_is_shorter_than_its_header_is_reported(self, length: int) -> None:
        data = bytearray(log_of([("plain", 1, 0)]).read(0))
        data[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptRecord):
            visible(bytes(data), topic="t", partition=0, first_offset=0, aborted=(), decisions=NothingKnown())

    def test_only_a_marker_of_an_abort_ends_an_aborted_transaction(self) -> None:
        """As in Kafka's consumer; a marker may have lost its record to compaction, or have no key."""
        key = {"commit": b"\0\0\0\1", "none": None, "cut off": bytes(2), "later version": b"\0\1\0\0\0\x09"}
        for name, ends in {"commit": False, "none": False, "cut off": False, "later version": True}.items():
            marking = build_batch(
                [Record(0, 1, key[name], bytes(6))],
                producer_id=5,
                base_offset=1,
                is_control=True,
                is_transactional=True,
            )
            seen = natively_aborted(bytes(marking))
            assert offsets(seen) == ([2] if ends else []), name
            assert seen.next_offset == 3

    def test_an_empty_marker_ends_no_aborted_transaction(self) -> None:
        marking = bytearray(
            build_batch(
                [Record(0, 1, bytes(4), bytes(6))], producer_id=5, base_offset=1, is_control=True, is_transactional=True
            )
        )[:61]
        marking[8:12], marking[57:61] = (49).to_bytes(4, "big"), bytes(4)
        assert offsets(natively_aborted(bytes(marking))) == []

    def test_where_nothing_is_known_transactions_of_kproxys_stay_hidden(self) -> None:
        log = log_of([("plain", 1, 0), ("committed", 1, 0)])
        seen = visible(log.read(0), topic="t", partition=0, first_offset=0, aborted=(), decisions=NothingKnown())
        assert (offsets(seen), seen.next_offset) == ([0], 1)


def natively(data: bytes, log: MixedLog) -> Seen:
    """As for a client that judges Kafka's own transactions itself."""
    return visible(
        data, topic="t", partition=0, first_offset=0, aborted=log.aborted, decisions=log, reads_natively=True
    )


def natively_aborted(marking: bytes) -> Seen:
    """Data of an aborted transaction of Kafka's own, a marker at offset 1, and data of the same producer."""
    data = [
        bytes(build_batch([Record(0, 1, None, b"v")], producer_id=5, base_offset=at, is_transactional=True))
        for at in (0, 2)
    ]
    record_set = data[0] + marking + data[1]
    return visible(
        record_set, topic="t", partition=0, first_offset=0, aborted=[Aborted(5, 0)], decisions=NothingKnown()
    )


def read_plain(producer_id: int, offset: int) -> bytes:
    log = MixedLog(end=offset)
    log.add("native", number=producer_id)
    data = bytearray(log.batches[0][2])
    set_transactional(data, False)
    return bytes(data)


def test_undecided_in() -> None:
    log = log_of([("plain", 1, 0), ("old", 1, 0), ("committed", 1, 0), ("undecided", 1, 0), ("native-abort", 1, 1)])
    told = [undecided_in(memoryview(data), log) for _, _, data in log.batches]
    assert told == [None, None, None, Producer(TXN_PID, UNDECIDED), None]


def test_marker() -> None:
    data = marker(100, 9)
    header = read_header(data)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (99, 0, 1)
    assert (header.attributes, header.partition_leader_epoch) == (0x30, 9)
    assert crc_ok(data, 0, len(data))
    (record,) = iter_records(data, max_decompressed_bytes=100, include_control=True)
    assert (record.key, record.value, record.timestamp) == (bytes(4), bytes(6), -1)
