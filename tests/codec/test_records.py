import pytest

from kproxy.codec.batch import build_batch
from kproxy.codec.records import MAGIC_OFFSET, CorruptRecord, DecompressionLimit, Record, UnsupportedCodec
from kproxy.errors import RemoteProtocolError
from tests.codec.message_sets import entry
from tests.codec.record_lists import plain


@pytest.mark.parametrize("kind", [CorruptRecord, DecompressionLimit, UnsupportedCodec])
def test_a_wrong_record_set_is_the_peers_fault_and_each_way_has_its_own_answer(kind: type[RemoteProtocolError]) -> None:
    kinds = (CorruptRecord, DecompressionLimit, UnsupportedCodec)
    assert issubclass(kind, RemoteProtocolError)
    assert [other for other in kinds if issubclass(kind, other)] == [kind]


def test_a_record_has_no_headers_unless_told() -> None:
    assert Record(1, 2, None, b"value") == (1, 2, None, b"value", ())


@pytest.mark.parametrize(
    ("magic", "data"),
    [(0, entry(0, None, b"x", magic=0)), (1, entry(0, None, b"x", magic=1)), (2, bytes(build_batch(plain())))],
)
def test_the_magic_byte_has_the_same_place_in_every_format(magic: int, data: bytes) -> None:
    assert data[MAGIC_OFFSET] == magic
