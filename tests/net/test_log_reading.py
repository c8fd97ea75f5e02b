"""Batches read from logs: a few at once, all others beside the loop."""

import threading

import pytest
import trio

from kproxy.budget import AT_ONCE_STEPS, READ_RECORD_STEPS
from kproxy.codec.batch import Record, build_batch
from kproxy.dedup.digest import Digest
from kproxy.net.log_reading import LogReading

AT_ONCE_RECORDS = AT_ONCE_STEPS // READ_RECORD_STEPS


def batch(records: int, size: int = 1, *, codec: int = 0) -> bytes:
    return bytes(build_batch([Record(at, 7, None, bytes(size), ()) for at in range(records)], codec=codec))


@pytest.mark.parametrize(
    ("data", "at_once", "offsets"),
    [
        (batch(2), True, [0, 1]),
        (batch(AT_ONCE_RECORDS + 1), False, list(range(AT_ONCE_RECORDS + 1))),
        (batch(2, 1 << 20, codec=1), False, [0, 1]),  # short until it is decompressed
        (batch(2, 5 << 20, codec=1), False, []),
        (batch(2, 1 << 20), False, [0, 1]),
    ],
    ids=["short", "many records", "decompressed", "too large", "long"],
)
async def test_what_is_long_is_read_in_another_thread(data: bytes, at_once: bool, offsets: list[int]) -> None:
    reading, found = LogReading(8 << 20, trio.CapacityLimiter(1)), []

    def done(digests: list[Digest], at: list[int]) -> None:
        assert threading.current_thread() is threading.main_thread()
        assert len(digests) == len(at)
        found.append(list(at))

    reading.take(data, done)
    assert found == ([offsets] if at_once else [])
    await reading.finish()
    assert found == [offsets]


async def test_many_short_ones_are_as_one_that_is_long() -> None:
    reading, found = LogReading(1 << 20, trio.CapacityLimiter(1)), []
    for _ in range(3):
        for _ in range(10):
            reading.take(batch(AT_ONCE_RECORDS // 5), lambda _, offsets: found.append(len(offsets)))
        assert len(found) % 10 == 5
        await reading.finish()
    assert found == [AT_ONCE_RECORDS // 5] * 30
