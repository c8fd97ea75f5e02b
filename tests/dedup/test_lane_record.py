"""Entries of the lane log: their bytes never change, and damaged bytes are distinguished from newer versions."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec.stored import UnknownRecord
from kproxy.dedup.identity import Identity
from kproxy.dedup.lane_record import (
    LaneKey,
    LaneRecord,
    decode_key,
    decode_value,
    describe,
    encode_key,
    encode_value,
)
from kproxy.dedup.producer_ids import KPROXY_BIT, LAST_EPOCH
from kproxy.errors import LocalProtocolError, RemoteProtocolError

RECORD = LaneRecord("kproxy-1", KPROXY_BIT | 4000, 32, 63, Identity("User:a", "naïve", "10.0.0.7"), 1_700_000_000_123)
# What released versions have written. A change that makes these differ makes topics unreadable: add a version instead.
GOLDEN_KEY = bytes.fromhex("000000086b70726f78792d314000000000000fa0")
GOLDEN_VALUE = bytes.fromhex("00000020003f07557365723a61076e61c3af76650931302e302e302e370000018bcfe5687b00")

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
_epochs = st.tuples(st.integers(0, LAST_EPOCH), st.integers(0, LAST_EPOCH)).map(sorted)
_records = st.builds(
    lambda instance, pid, epochs, identity, ms: LaneRecord(instance, pid | KPROXY_BIT, *epochs, identity, ms),
    _text,
    st.integers(0, KPROXY_BIT - 1),
    _epochs,
    st.builds(Identity, _text, _text, _text),
    st.integers(-(1 << 63), (1 << 63) - 1),
)


def test_the_stored_bytes_never_change() -> None:
    assert encode_key(RECORD.key) == GOLDEN_KEY
    assert encode_value(RECORD) == GOLDEN_VALUE
    assert decode_value(decode_key(GOLDEN_KEY), GOLDEN_VALUE) == RECORD


def test_what_older_versions_do_not_know_is_left_out_by_them() -> None:
    """Tagged fields: a kproxy that has none of them reads the rest."""
    value = encode_value(RECORD._replace(returned=True, shared=True))
    assert value == GOLDEN_VALUE[:-1] + bytes.fromhex("02000101010101")
    assert decode_value(RECORD.key, value) == RECORD._replace(returned=True, shared=True)
    assert describe(encode_key(RECORD.key), value).endswith(" returned shared")


@settings(deadline=None)
@given(_records)
def test_what_is_written_is_read(record: LaneRecord) -> None:
    key = decode_key(encode_key(record.key))
    assert key == LaneKey(record.instance_id, record.producer_id)
    assert decode_value(key, encode_value(record)) == record


@given(_records)
def test_every_entry_has_one_line_of_text(record: LaneRecord) -> None:
    line = describe(encode_key(record.key), encode_value(record))
    assert line.isprintable()
    assert f"epochs={record.epoch}-{record.last_epoch}" in line


def test_a_field_that_a_newer_version_adds_as_a_tag_is_passed_over() -> None:
    assert decode_value(RECORD.key, GOLDEN_VALUE[:-1] + bytes.fromhex("010502abcd")) == RECORD


@pytest.mark.parametrize("version", [1, 7, -1])
def test_other_versions_are_told_from_damage(version: int) -> None:
    newer = struct.pack(">h", version) + b"something else"
    with pytest.raises(UnknownRecord):
        decode_key(newer)
    with pytest.raises(UnknownRecord):
        decode_value(RECORD.key, newer)
    assert describe(GOLDEN_KEY, newer).startswith("unreadable (record of version")


def _cuts(data: bytes) -> list[bytes]:
    return [data[:end] for end in range(len(data))] + [data + b"\0"]


@pytest.mark.parametrize("key", [None, *_cuts(GOLDEN_KEY)])
def test_a_damaged_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_key(key)
    assert describe(key, GOLDEN_VALUE).startswith("unreadable")


@pytest.mark.parametrize("value", _cuts(GOLDEN_VALUE))
def test_a_damaged_value_is_refused(value: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_value(RECORD.key, value)


@pytest.mark.parametrize(
    "wrong",
    [
        RECORD._replace(epoch=64),
        RECORD._replace(epoch=-1),
        RECORD._replace(last_epoch=LAST_EPOCH + 1),
        RECORD._replace(producer_id=4000),
    ],
)
def test_what_is_no_lane_of_kproxys_is_refused(wrong: LaneRecord) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_value(wrong.key, encode_value(wrong))


def test_what_cannot_be_said_is_an_error_of_ours() -> None:
    with pytest.raises(LocalProtocolError):
        encode_value(RECORD._replace(identity=Identity("", "x" * 40_000, "")))


def test_the_text_of_an_entry_and_of_its_end() -> None:
    assert describe(GOLDEN_KEY, GOLDEN_VALUE) == (
        f"instance='kproxy-1' producer={KPROXY_BIT | 4000} epochs=32-63 principal='User:a' client_id='naïve' "
        "host='10.0.0.7' recorded=2023-11-14T22:13:20.123+00:00"
    )
    assert describe(GOLDEN_KEY, None) == f"instance='kproxy-1' producer={KPROXY_BIT | 4000} forgotten"
