import pytest

from kproxy.codec import primitive_writers as writers
from kproxy.codec import primitives as readers
from kproxy.errors import LocalProtocolError, RemoteProtocolError

VARINTS = {0: "00", 1: "01", 127: "7f", 128: "8001", 300: "ac02", 2**31 - 1: "ffffffff07", 2**32 - 1: "ffffffff0f"}


@pytest.mark.parametrize(("value", "wire"), VARINTS.items())
def test_unsigned_varints(value: int, wire: str) -> None:
    out = bytearray()
    writers.write_uvarint(out, value)
    assert out.hex() == wire
    assert readers.read_uvarint(b"x" + out, 1) == (value, 1 + len(out))


@pytest.mark.parametrize("wire", ["ffffffff10", "8080808080", "ffffffffff0f", "ffffffff7f"])
def test_a_varint_beyond_32_bits_is_refused(wire: str) -> None:
    with pytest.raises(RemoteProtocolError):
        readers.read_uvarint(bytes.fromhex(wire), 0)


STRINGS = [
    (readers.read_string, writers.write_string, "é", "0002c3a9"),
    (readers.read_nullable_string, writers.write_nullable_string, None, "ffff"),
    (readers.read_nullable_string, writers.write_nullable_string, "", "0000"),
    (readers.read_compact_string, writers.write_compact_string, "é", "03c3a9"),
    (readers.read_compact_nullable_string, writers.write_compact_nullable_string, None, "00"),
    (readers.read_compact_nullable_string, writers.write_compact_nullable_string, "", "01"),
    (readers.read_bytes, writers.write_bytes, b"ab", "000000026162"),
    (readers.read_nullable_bytes, writers.write_nullable_bytes, None, "ffffffff"),
    (readers.read_compact_bytes, writers.write_compact_bytes, b"ab", "036162"),
    (readers.read_compact_nullable_bytes, writers.write_compact_nullable_bytes, None, "00"),
    (readers.read_records, writers.write_bytes, b"ab", "000000026162"),
    (readers.read_nullable_records, writers.write_nullable_bytes, None, "ffffffff"),
    (readers.read_compact_records, writers.write_compact_bytes, b"ab", "036162"),
    (readers.read_compact_nullable_records, writers.write_compact_nullable_bytes, None, "00"),
]


@pytest.mark.parametrize(("read", "write", "value", "wire"), STRINGS)
def test_strings_and_bytes(read, write, value, wire: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    out = bytearray()
    write(out, value)
    assert out.hex() == wire
    for kind in (bytes, bytearray, memoryview):
        found, end = read(kind(bytes(out) + b"rest"), 0)
        assert (bytes(found) if isinstance(found, memoryview) else found) == value
        assert end == len(out)


NULLS = [
    (readers.read_string, writers.write_string, "ffff"),
    (readers.read_compact_string, writers.write_compact_string, "00"),
    (readers.read_bytes, writers.write_bytes, "ffffffff"),
    (readers.read_compact_bytes, writers.write_compact_bytes, "00"),
    (readers.read_records, writers.write_bytes, "80000000"),
    (readers.read_compact_records, writers.write_compact_bytes, "00"),
]


@pytest.mark.parametrize(("read", "write", "wire"), NULLS)
def test_null_is_refused_where_it_is_not_allowed(read, write, wire: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    with pytest.raises(RemoteProtocolError):
        read(bytes.fromhex(wire), 0)
    with pytest.raises(LocalProtocolError):
        write(bytearray(), None)


def test_a_negative_length_other_than_minus_one_is_null_as_for_kafka() -> None:
    assert readers.read_nullable_string(b"\x80\0", 0) == (None, 2)
    assert readers.read_nullable_records(b"\x80\0\0\0", 0) == (None, 4)


def test_a_string_has_at_most_32767_bytes() -> None:
    long = "x" * 32768
    for write in (writers.write_string, writers.write_compact_string):
        with pytest.raises(LocalProtocolError):
            write(bytearray(), long)
    frame = bytearray()
    writers.write_compact_bytes(frame, long.encode())
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
    out = bytearray()
    assert writers.write_length(out, None, True, True) == []
    assert writers.write_length(out, None, False, True) == []
    assert out == b"\0\xff\xff\xff\xff"
    with pytest.raises(LocalProtocolError):
        writers.write_length(out, None, True, False)


def test_tags_come_once_and_in_full() -> None:
    out = bytearray()
    writers.write_tags(out, {300: b"bc", 1: b"a"})
    assert out.hex() == "02010161ac02026263"
    assert readers.read_tags(out, 0) == ({1: b"a", 300: b"bc"}, len(out))
    for wire in ("020101610101 62", "01010261", "ffffffff0f"):
        with pytest.raises((RemoteProtocolError, IndexError)):
            readers.read_tags(bytes.fromhex(wire), 0)


def test_a_uuid_is_checked() -> None:
    assert writers.uuid_bytes(bytes(16)) == readers.ZERO_UUID
    with pytest.raises(LocalProtocolError):
        writers.uuid_bytes(bytes(17))
