"""What one request that is compared may cost, in all its batches together."""

import pytest

from kproxy.budget import AT_ONCE_BYTES, AT_ONCE_STEPS, MOST_STEPS, READ_RECORD_STEPS, RequestBudget
from kproxy.codec.batch import Record, build_batch
from kproxy.proxy.reading import Reading

MIB = 1 << 20
AT_ONCE_RECORDS = AT_ONCE_STEPS // READ_RECORD_STEPS
#: As documented.
MOST_RECORDS = 100_000


def batch(records: int, size: int = 1, *, codec: int = 1) -> memoryview:
    return memoryview(build_batch([Record(at, 7, None, bytes(size), ()) for at in range(records)], codec=codec))


def reading(*batches: memoryview, max_bytes: int = 64 * MIB) -> Reading:
    return Reading([(data, None) for data in batches], RequestBudget(0, max_bytes, MOST_STEPS))


def counts(read: Reading, batches: int) -> list[int | None]:
    found = [read.of(number) for number in range(batches)]
    return [None if pairs is None else len(pairs) for pairs in found]


def test_what_is_short_is_read_at_once() -> None:
    damaged = memoryview(bytes(batch(3))[:-1])
    read = reading(batch(2), memoryview(b""), damaged, batch(AT_ONCE_RECORDS - 10))
    assert read.at_once()
    assert counts(read, 4) == [2, 0, 0, AT_ONCE_RECORDS - 10]


@pytest.mark.parametrize(
    "batches",
    [
        [batch(AT_ONCE_RECORDS + 1)],
        [batch(AT_ONCE_RECORDS), batch(1)],
        [batch(1, AT_ONCE_BYTES)],
        [batch(1, AT_ONCE_BYTES // 2), batch(1, AT_ONCE_BYTES // 2 + 1)],
        [batch(1, AT_ONCE_BYTES, codec=0)],
    ],
)
def test_what_is_long_is_left_to_the_shell(batches: list[memoryview]) -> None:
    read = reading(*batches)
    assert not read.at_once()
    read.whole()
    assert read.at_once()
    assert None not in counts(read, len(batches))


@pytest.mark.parametrize(
    ("batches", "max_bytes", "found"),
    [
        ([batch(MOST_RECORDS), batch(1)], 64 * MIB, [MOST_RECORDS, None]),
        ([batch(MOST_RECORDS + 1), batch(5)], 64 * MIB, [None, 5]),
        ([batch(1, 3 * MIB), batch(1, 2 * MIB), batch(1, 10)], 4 * MIB, [1, None, 1]),
    ],
)
def test_one_request_has_one_bound(batches: list[memoryview], max_bytes: int, found: list[int | None]) -> None:
    read = reading(*batches, max_bytes=max_bytes)
    read.whole()
    assert counts(read, len(batches)) == found
