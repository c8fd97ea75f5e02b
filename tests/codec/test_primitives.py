import pytest

from kproxy.budget import unbounded
from kproxy.codec import primitive_writers as writers
from kproxy.codec import primitives as readers
from kproxy.errors import RemoteProtocolError
from tests.codec.wire_forms import NULLS, STRINGS, VARINTS


@pytest.mark.parametrize(("value", "wire"), VARINTS.items())
def test_unsigned_varints(value: int, wire: str) -> None:
    data = b"x" + bytes.fromhex(wire)
    assert readers.read_uvarint(data, 1) == (value, len(data))


@pytest.mark.parametrize("wire", ["ffffffff10", "8080808080", "ffffffffff0f", "ffffffff7f"])
def test_a_varint_beyond_32_bits_is_refused(wire: str) -> None:
    with pytest.raises(RemoteProtocolError):
        readers.read_uvarint(bytes.fromhex(wire), 0)


@pytest.mark.parametrize(("read", "_write", "value", "wire"), STRINGS)
def test_strings_and_bytes(read, _write, value, wire: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    data = bytes.fromhex(wire)
    for kind in (bytes, bytearray, memoryview):
        found, end = read(kind(data + b"rest"), 0)
        assert (bytes(found) if isinstance(found, memoryview) else found) == value
        assert end == len(data)


@pytest.mark.parametrize(("read", "_write", "wire"), NULLS)
def test_null_is_refused_where_it_is_not_allowed(read, _write, wire: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    with pytest.raises(RemoteProtocolError):
        read(bytes.fromhex(wire), 0)


def test_a_negative_length_other_than_minus_one_is_null_as_for_kafka() -> None:
    assert readers.read_nullable_string(b"\x80\0", 0) == (None, 2)
    assert readers.read_nullable_records(b"\x80\0\0\0", 0) == (None, 4)


def test_a_string_has_at_most_32767_bytes() -> None:
    frame = bytearray()
    writers.write_compact_bytes(frame, b"x" * 32768)
    with pytest.raises(RemoteProtocolError):
        readers.read_compact_string(frame, 0)


def test_records_are_not_copied() -> None:
    frame = bytearray(b"\0\0\0\2ab")
    records, _ = readers.read_records(frame, 0)
    frame[4:] = b"xy"
    assert bytes(records) == b"xy"


def test_an_array_count_is_held_against_the_bytes_that_are_left() -> None:
    assert readers.read_length(b"\0\0\0\2" + bytes(8), 0, False, False, 4) == (2, 4)
    for wire in (b"\0\0\0\2" + bytes(7), b"\x7f\xff\xff\xff" + bytes(100)):
        with pytest.raises(RemoteProtocolError):
            readers.read_length(wire, 0, False, False, 4)
    with pytest.raises(RemoteProtocolError):
        readers.read_length(b"\xff\xff\xff\xff\x0f", 0, True, True, 1)


def test_null_arrays() -> None:
    assert readers.read_length(b"\xff\xff\xff\xff", 0, False, True, 4) == (-1, 4)
    assert readers.read_length(b"\0", 0, True, True, 4) == (-1, 1)
    with pytest.raises(RemoteProtocolError):
        readers.read_length(b"\0", 0, True, False, 4)


def test_tags_come_once_and_in_full() -> None:
    data = bytes.fromhex("02010161ac02026263")
    assert readers.read_tags(data, 0, unbounded()) == ({1: b"a", 300: b"bc"}, len(data))
    for wire in ("020101610101 62", "01010261", "ffffffff0f"):
        with pytest.raises((RemoteProtocolError, IndexError)):
            readers.read_tags(bytes.fromhex(wire), 0, unbounded())
