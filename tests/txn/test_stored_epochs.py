"""The epochs that stand for clients: their bytes never change, the last entry counts, damaged ones are left out."""

import pytest

from kproxy.codec.batch import Record
from kproxy.codec.stored import UnknownRecord
from kproxy.dedup.former_lanes import FormerLanes
from kproxy.errors import RemoteProtocolError
from kproxy.txn.ids import Producer
from kproxy.txn.stored_epochs import (
    LastEnd,
    StoredEpoch,
    StoredEpochs,
    decode_value,
    encode_key,
    encode_value,
    is_stored_epoch,
)

STORED = StoredEpoch(Producer(4000, 3), Producer(4000, 57), LastEnd.ABORTED, 60_000, 1_700_000_000_123)
# What released versions have written. A change that makes these differ makes topics unreadable: add a version instead.
KEY = bytes.fromhex("000100086b70726f78792d310007626c2d696e2d31")
VALUE = bytes.fromhex("00000000000000000fa000030000000000000fa00039020000ea600000018bcfe5687b00")


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, key, value)


def test_the_stored_bytes_never_change() -> None:
    assert encode_key("kproxy-1", "bl-in-1") == KEY
    assert encode_value(STORED) == VALUE
    assert decode_value(VALUE) == STORED
    assert {end.name: encode_value(STORED._replace(last=end))[22:24].hex() for end in LastEnd} == {
        "NONE": "0000",
        "COMMITTED": "0100",
        "ABORTED": "0200",
        "LOST": "0300",
        "LEFT": "0400",
    }


@pytest.mark.parametrize("end", range(len(VALUE)))
def test_a_value_that_is_cut_off_is_damaged(end: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_value(VALUE[:end])


@pytest.mark.parametrize("value", [b"\0\1" + VALUE[2:], VALUE[:22] + b"\5" + VALUE[23:]])
def test_what_a_newer_version_wrote_is_unknown(value: bytes) -> None:
    with pytest.raises(UnknownRecord):
        decode_value(value)


def test_a_producer_that_none_can_be_is_damaged() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_value(encode_value(STORED._replace(upstream=Producer(-1, 0))))
    first = STORED._replace(client=Producer(0, 0), upstream=Producer(0, 0))
    assert decode_value(encode_value(first)) == first


def test_the_last_entry_of_this_instance_counts() -> None:
    epochs = StoredEpochs("kproxy-1")
    later = STORED._replace(upstream=Producer(4000, 58), recorded_ms=1_700_000_000_456)
    for instance, stored in (("kproxy-1", STORED), ("kproxy-1", later), ("other", STORED), ("a", STORED)):
        assert epochs.take(record(encode_key(instance, "a"), encode_value(stored)))
    assert (epochs.of("a"), epochs.of("b")) == (later, None)
    assert (epochs.before(later.recorded_ms), epochs.before(later.recorded_ms + 1)) == ([], ["a"])
    epochs.take(record(encode_key("kproxy-1", "a"), None))
    assert (epochs.of("a"), epochs.damaged) == (None, 0)


def test_what_replaces_an_entry_replaces_it_even_if_it_is_damaged() -> None:
    epochs = StoredEpochs("kproxy-1")
    for value in (VALUE, b"\0\0\1"):
        assert epochs.take(record(KEY, value))
    assert (epochs.of("bl-in-1"), epochs.damaged) == (None, 1)


def test_only_the_last_written_are_kept() -> None:
    epochs = StoredEpochs("me", most=2)
    for name in ("a", "b", "a", "c"):
        epochs.take(record(encode_key("me", name), VALUE))
    assert [name for name in "abc" if epochs.of(name)] == ["a", "c"]


def test_what_was_written_before_a_time_is_forgotten() -> None:
    epochs = StoredEpochs("me")
    for name, at_ms in (("a", 10), ("b", 20), ("c", 30), ("a", 40)):
        epochs.take(Record(0, at_ms, encode_key("me", name), VALUE))
    assert list(epochs) == [("b", STORED, 20), ("c", STORED, 30), ("a", STORED, 40)]
    epochs.expire(20)
    assert [name for name, _, _ in epochs] == ["b", "c", "a"]
    epochs.expire(31)
    assert [name for name, _, _ in epochs] == ["a"]
    epochs.expire(41)
    assert (list(epochs), epochs.of("a")) == ([], None)


def test_lanes_and_epochs_are_apart() -> None:
    epochs, unread = StoredEpochs("kproxy-1"), FormerLanes("kproxy-1".__eq__, others=is_stored_epoch)
    lanes = FormerLanes("kproxy-1".__eq__, others=epochs.take)
    for some in (lanes, unread):
        some.apply([record(KEY, VALUE), record(None, VALUE)])
        assert (some.newer, some.damaged, len(some)) == (0, 1, 0)
    assert not epochs.take(record(b"\0\0" + KEY[2:], VALUE))  # the key of a lane
    assert (epochs.of("bl-in-1"), epochs.damaged) == (STORED, 0)
