import pytest

from kproxy.codec import primitive_writers as writers
from kproxy.codec import primitives as readers
from kproxy.errors import LocalProtocolError
from tests.codec.wire_forms import NULLS, STRINGS, VARINTS


@pytest.mark.parametrize(("value", "wire"), VARINTS.items())
def test_unsigned_varints(value: int, wire: str) -> None:
    out = bytearray()
    writers.write_uvarint(out, value)
    assert out.hex() == wire


@pytest.mark.parametrize(("_read", "write", "value", "wire"), STRINGS)
def test_strings_and_bytes(_read, write, value, wire: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    out = bytearray()
    write(out, value)
    assert out.hex() == wire


@pytest.mark.parametrize(("_read", "write", "_wire"), NULLS)
def test_null_is_refused_where_it_is_not_allowed(_read, write, _wire: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    with pytest.raises(LocalProtocolError):
        write(bytearray(), None)


def test_a_string_has_at_most_32767_bytes() -> None:
    for write in (writers.write_string, writers.write_compact_string):
        for long in ("x" * 32768, "\u00e9" * 16384):
            with pytest.raises(LocalProtocolError):
                write(bytearray(), long)
        write(bytearray(), "x" * 32767)


def test_null_arrays() -> None:
    out = bytearray()
    assert writers.write_length(out, None, True, True) == []
    assert writers.write_length(out, None, False, True) == []
    assert out == b"\0\xff\xff\xff\xff"
    with pytest.raises(LocalProtocolError):
        writers.write_length(out, None, True, False)


@pytest.mark.parametrize(("compact", "wire"), [(False, "0000000200016100016200000003"), (True, "03026102620000000300")])
def test_arrays(compact: bool, wire: str) -> None:
    out = bytearray()
    writers.write_strings(out, writers.write_length(out, ["a", "b"], compact, False), compact)
    writers.write_ints(out, "i", [3])
    if compact:
        writers.write_tags(out, {})
    assert out.hex() == wire


def test_structs() -> None:
    def write_text(out: bytearray, value: str, version: int) -> None:
        out += b"%d:%b;" % (version, value.encode())

    out = bytearray()
    writers.write_structs(out, 7, ["a", "b"], write_text)
    writers.write_nullable_struct(out, 8, "c", write_text)
    writers.write_nullable_struct(out, 8, None, write_text)
    assert out == b"7:a;7:b;\x018:c;\xff"


def test_tags_come_in_their_order() -> None:
    out = bytearray()
    writers.write_tags(out, {300: b"bc", 1: b"a"})
    assert out.hex() == "02010161ac02026263"


def test_a_uuid_is_checked() -> None:
    assert writers.uuid_bytes(bytes(16)) == readers.ZERO_UUID
    with pytest.raises(LocalProtocolError):
        writers.uuid_bytes(bytes(17))


def test_the_error_for_a_field_without_a_place_names_it_and_the_version() -> None:
    assert str(writers.absent("transactional_id", 2)) == "transactional_id cannot be said in version 2"
