from collections.abc import Callable, Hashable
from typing import Any

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.compression import GZIP, LZ4
from kproxy.codec.conversion_memo import ConversionMemo
from kproxy.codec.downconvert import Downconverted, from_v2
from kproxy.codec.recode import recode
from kproxy.codec.records import CorruptRecord

LIMIT = 1 << 20


class Counting(ConversionMemo):
    """Counts what is made."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        def counted() -> Any:
            self.made += 1
            return make()

        return super().get(key, counted)


def _converted(
    data: bytes, magic: int, first_offset: int, memo: ConversionMemo | None = None, max_records: int = 100
) -> Downconverted:
    return from_v2(
        data,
        magic=magic,
        first_offset=first_offset,
        max_decompressed_bytes=LIMIT,
        max_bytes=LIMIT,
        max_records=max_records,
        memo=memo,
    )


def _batch(base: int, value: bytes = b"value") -> bytearray:
    return build_batch([Record(number, 0, None, value, ()) for number in range(3)], codec=GZIP, base_offset=base)


@pytest.mark.parametrize("first_offset", [0, 2, 4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_is_converted_once(magic: int, first_offset: int) -> None:
    data, memo = bytes(_batch(0) + _batch(3)), Counting()
    plain = _converted(data, magic, first_offset)
    for _ in range(2):
        assert _converted(data, magic, first_offset, memo) == plain
        assert memo.made == (2 if first_offset < 3 else 1)


def test_other_batches_and_other_ways_to_convert_them_are_others() -> None:
    memo = ConversionMemo()
    for data in (bytes(_batch(0)), bytes(_batch(3)), bytes(_batch(0, b"other"))):
        for magic in (0, 1):
            for first_offset in (0, data[7] + 1):
                plain = _converted(data, magic, first_offset)
                assert _converted(data, magic, first_offset, memo) == plain


def test_a_batch_is_compressed_again_once() -> None:
    data, memo = memoryview(_batch(0) + _batch(3, b"other")), Counting()
    plain = [bytes(piece) for piece in recode(data, {GZIP: LZ4}, max_decompressed_bytes=LIMIT)]
    for _ in range(2):
        pieces = recode(data, {GZIP: LZ4}, max_decompressed_bytes=LIMIT, memo=memo)
        assert [bytes(piece) for piece in pieces] == plain
    assert memo.made == 2


def test_what_cannot_be_read_is_an_error_each_time() -> None:
    memo, tries = ConversionMemo(), []

    def make() -> bytes:
        tries.append(1)
        raise CorruptRecord("damaged")

    for _ in range(2):
        with pytest.raises(CorruptRecord):
            memo.get("a batch", make)
    assert len(tries) == 1


def test_an_answer_holds_so_many_records_unless_its_first_batch_has_more() -> None:
    data = bytes(_batch(0) + _batch(3) + _batch(6))
    for most, expected in ((2, 3), (5, 3), (6, 6), (9, 9)):
        found = _converted(data, 1, 0, max_records=most)
        assert (found.record_count, found.next_offset) == (expected, expected)
