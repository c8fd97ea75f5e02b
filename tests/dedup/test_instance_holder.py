"""Notes of processes in the log of producer ids: stored for ever, so their bytes never change."""

import pytest

from kproxy.codec.records import Record
from kproxy.codec.stored import UnknownRecord
from kproxy.dedup.instance_holder import (
    Holder,
    HolderChanges,
    Holders,
    Process,
    decode_value,
    encode_key,
    encode_value,
    is_holder_entry,
)
from kproxy.dedup.lane_record import decode_key
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.errors import RemoteProtocolError

PROCESS = Process(b"p" * 16, "host", 7, 1_700_000_000_000, "boot", "net")
NOTE = Holder(PROCESS, KPROXY_BIT | 5, 3, "cluster", answered=b"a" * 16)


def record(note: Holder, *, key: bytes | None = None, padding: bytes = b"") -> Record:
    return Record(0, 0, encode_key("gw") if key is None else key, encode_value(note, padding))


def test_the_key_never_changes() -> None:
    assert encode_key("gw") == b"\0\2" + b"\0\2gw" + b"\0"
    assert encode_key("gw", question=True) == b"\0\2" + b"\0\2gw" + b"\1"


@pytest.mark.parametrize("note", [NOTE, NOTE._replace(stopped=True), NOTE._replace(cluster_id=None)])
def test_a_note_is_read_as_it_was_written_whatever_its_length(note: Holder) -> None:
    assert decode_value(encode_value(note)) == note
    assert decode_value(encode_value(note, b"x" * 20_000)) == note


def test_a_note_whose_producer_id_no_kproxy_has_is_damaged() -> None:
    with pytest.raises(RemoteProtocolError, match="no note"):
        decode_value(encode_value(NOTE._replace(producer_id=5)))
    with pytest.raises(RemoteProtocolError, match="no note"):
        decode_value(encode_value(NOTE._replace(epoch=32_767)))


def test_an_older_kproxy_treats_it_as_an_entry_of_a_newer_one() -> None:
    with pytest.raises(UnknownRecord):
        decode_key(encode_key("gw"))


def test_the_newest_note_counts_and_the_claim_before_it_is_known() -> None:
    seen, other = Holders("gw"), NOTE._replace(process=PROCESS._replace(process_id=b"o" * 16), epoch=4)
    assert seen.take(record(NOTE))
    assert seen.take(record(NOTE._replace(answered=bytes(16))))
    assert (seen.holder, seen.before) == (NOTE._replace(answered=bytes(16)), None)
    assert seen.take(record(other))
    assert (seen.holder, seen.before) == (other, NOTE._replace(answered=bytes(16)))


def test_questions_are_kept_until_they_are_deleted() -> None:
    seen, key = Holders("gw"), encode_key("gw", question=True)
    assert seen.take(record(NOTE, key=key))
    assert (seen.holder, seen.question) == (None, PROCESS)
    assert seen.take(Record(0, 0, key, None))
    assert seen.question is None


def test_entries_of_other_instances_and_damaged_ones_are_not_used() -> None:
    seen = Holders("gw")
    assert seen.take(record(NOTE, key=encode_key("other")))
    assert seen.take(Record(0, 0, encode_key("gw"), b"\0\0"))
    assert seen.take(Record(0, 0, encode_key("gw"), None))
    assert (seen.holder, seen.damaged) == (None, 1)
    assert not seen.take(Record(0, 0, b"\0\1", b""))
    assert not is_holder_entry(Record(0, 0, None, b""))


@pytest.mark.parametrize(
    ("producer_id", "epoch", "fences"),
    [(NOTE.producer_id, NOTE.epoch - 1, True), (NOTE.producer_id, NOTE.epoch, False), (KPROXY_BIT | 6, 0, False)],
)
def test_a_note_fences_what_is_written_under_a_lower_epoch_of_its_producer_id(
    producer_id: int, epoch: int, fences: bool
) -> None:
    assert NOTE.fences(NOTE._replace(producer_id=producer_id, epoch=epoch)) is fences
    assert not NOTE.fences(None)


def test_a_name_is_left_when_another_process_notes_itself_and_not_when_the_same_one_does_again() -> None:
    left: list[str] = []
    seen, other = HolderChanges(left.append), NOTE._replace(process=PROCESS._replace(process_id=b"o" * 16), epoch=4)
    fresh = NOTE._replace(producer_id=KPROXY_BIT | 6, epoch=0, answered=b"b" * 16)
    for note in NOTE, fresh:  # it has lost its producer id, and answers another question
        assert seen.take(record(note))
    assert left == []
    seen.take(record(other, key=encode_key("gw", question=True)))
    seen.take(Record(0, 0, encode_key("gw"), b"\0\0damaged"))
    seen.take(Record(0, 0, encode_key("gw"), None))
    seen.take(record(other, key=encode_key("other")))
    assert left == []
    seen.take(record(other))
    assert left == ["gw"]
    assert not seen.take(Record(0, 0, b"\0\0", b""))
