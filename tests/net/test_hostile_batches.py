"""Record sets that lie, explode or are damaged: each gets a broker's error, and valid ones beside are written."""

import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import build_batch, read_header
from kproxy.codec.batch_header import assemble
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Answer, Call
from tests.codec.message_sets import entry, wrapper
from tests.net.harness import errors_of, fetch, records, values_in
from tests.net.witness import GOOD, request, witnessed

MIB = 1 << 20
NOW = 1_700_000_000_000
ONE = bytes(build_batch(records(b"x")))
HEADER, PAYLOAD = read_header(ONE), ONE[61:]


def old(magic: int, value: bytes) -> bytes:
    """An entry of an old message set."""
    return entry(0, None, value, magic=magic, timestamp=NOW)


OLD_GOOD = {magic: old(magic, b"good") for magic in (0, 1)}


def damaged(data: bytes, place: int = -1) -> bytes:
    out = bytearray(data)
    out[place] ^= 0x40
    return bytes(out)


def old_wrapper(magic: int, codec: int, inner: bytes) -> bytes:
    """A compressed entry whose own checksum is right, whatever it holds."""
    return wrapper(codec, [inner], magic=magic, timestamp=NOW)


@pytest.mark.parametrize(
    ("version", "data"),
    [
        *((version, damaged(GOOD)) for version in range(3, 13)),
        (8, damaged(GOOD, 22)),
        (8, damaged(bytes(build_batch(records(b"x" * 100), codec=1)))),
        (0, damaged(OLD_GOOD[0])),
        (1, damaged(OLD_GOOD[0], 13)),
        (2, damaged(OLD_GOOD[1])),
        (2, damaged(OLD_GOOD[1], 20)),
        (0, old_wrapper(0, 1, damaged(OLD_GOOD[0]))),
        (2, old_wrapper(1, 2, damaged(OLD_GOOD[1]))),
        (2, old_wrapper(1, 3, OLD_GOOD[1] + damaged(OLD_GOOD[1]))),
        (2, OLD_GOOD[1] + damaged(OLD_GOOD[1])),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
async def test_a_wrong_checksum_is_corrupt_message_for_its_partition_alone(version: int, data: bytes) -> None:
    good = GOOD if version >= 3 else OLD_GOOD[version // 2]
    async with witnessed() as proxy, await proxy.client(1) as client:
        assert errors_of(await client.call(request(data, good), version)) == [ErrorCode.CORRUPT_MESSAGE, 0]
        assert errors_of(await client.call(request(good), version)) == [0]
        assert [values_in(proxy.brokers, "t", index) for index in (0, 1)] == [[b"good"], [b"good"]]


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        GOOD[:60],
        GOOD[:-1],
        GOOD + b"\0",
        GOOD + GOOD,
        OLD_GOOD[1],
        assemble(HEADER._replace(attributes=0x20), PAYLOAD),
        assemble(HEADER._replace(record_count=0), PAYLOAD),
        assemble(HEADER._replace(record_count=-1, last_offset_delta=-2), PAYLOAD),
        assemble(HEADER._replace(record_count=1, last_offset_delta=7), PAYLOAD),
        GOOD[:8] + struct.pack(">i", 2**31 - 1) + GOOD[12:],
        GOOD[:8] + struct.pack(">i", -1) + GOOD[12:],
        GOOD[:16] + b"\x03" + GOOD[17:],
        GOOD[:16] + b"\xff" + GOOD[17:],
    ],
    ids=lambda _: "",
)
async def test_a_set_that_is_no_batch_is_refused_and_its_neighbour_is_written(data: bytes | None) -> None:
    async with witnessed() as proxy, await proxy.client(1) as client:
        refused, written = errors_of(await client.call(request(data, GOOD), 8))
        assert (refused in (ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), written) == (True, 0)
        assert errors_of(await client.call(request(GOOD), 8)) == [0]
        assert [values_in(proxy.brokers, "t", index) for index in (0, 1)] == [[b"good"], [b"good"]]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_garbage_where_old_sets_belong(version: int) -> None:
    noise, magic = random.Random(version), version // 2
    good = OLD_GOOD[magic]
    sets = [good[:cut] for cut in range(1, len(good), 3)] + [noise.randbytes(99), GOOD, bytes(100), b"\x7f" * 100]
    sets += [good[:8] + struct.pack(">i", size) + good[12:] for size in (-1, 0, 13, 2**31 - 1)]
    async with witnessed() as proxy, await proxy.client(1) as client:
        for data in sets:
            errors = errors_of(await client.call(request(data, good), version))
            assert errors == [ErrorCode.CORRUPT_MESSAGE, 0], data
        assert values_in(proxy.brokers, "t") == []


async def test_a_batch_that_no_broker_can_read_is_told_to_its_client_and_holds_nobody_up() -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR for ever where the checksum is right and the records are garbage."""

    def unreadable(call: Call) -> Answer | None:
        part = call.request.topic_data[0].partition_data[0]
        if b"garbage" not in bytes(part.records):
            return None
        row = ProduceResponsePartitionProduceResponse(index=part.index, error_code=-1, base_offset=-1)
        return Answer(ProduceResponse([ProduceResponseTopicProduceResponse(name="t", partition_responses=[row])]))

    async with witnessed() as proxy, await proxy.client(1) as client:
        proxy.brokers.control(ApiKey.PRODUCE, unreadable)
        assert errors_of(await client.call(request(assemble(HEADER._replace(attributes=1), b"garbage")), 8)) == [-1]
        assert errors_of(await client.call(request(GOOD), 8)) == [0]


@contextmanager
def peak_bytes() -> Iterator[list[int]]:
    """What was allocated at most, above what was before."""
    found: list[int] = []
    traced = tracemalloc.is_tracing()
    tracemalloc.start()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    yield found
    found.append(tracemalloc.get_traced_memory()[1] - before)
    if not traced:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("inner", ["zeros", "one", "tiny", "nested"])
async def test_bombs_in_old_sets_are_refused_within_bounds(magic: int, codec: int, inner: str) -> None:
    content = {
        "zeros": bytes(8 * MIB),
        "one": old(magic, bytes(8 * MIB)),
        "tiny": old(magic, b"") * (2 * MIB // 26),
        "nested": old_wrapper(magic, codec, old_wrapper(magic, codec, old(magic, b"x"))),
    }[inner]
    async with witnessed(decompression_max_bytes=MIB) as proxy, await proxy.client(1) as client:
        bomb = request(old_wrapper(magic, codec, content), OLD_GOOD[magic])
        with peak_bytes() as peak:
            errors = errors_of(await client.call(bomb, 2 * magic))
        expected = ErrorCode.CORRUPT_MESSAGE if inner == "nested" else ErrorCode.MESSAGE_TOO_LARGE
        assert errors == [expected, 0]
        assert peak[0] < 8 * MIB


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
async def test_bombs_in_a_log_are_refused_to_old_consumers_and_kept_small(codec: int) -> None:
    bomb = build_batch(records(bytes(900_000), *[bytes(900_000)] * 7), codec=codec)
    async with witnessed(decompression_max_bytes=MIB) as proxy, await proxy.client(1) as client:
        assert errors_of(await client.call(request(bytes(bomb)), 8)) == [0]
        for version in (0, 2):
            with peak_bytes() as peak:
                answer = await client.call(fetch("t"), version)
            (row,) = answer.responses[0].partitions
            assert (row.error_code, bytes(row.records or b"")) == (ErrorCode.MESSAGE_TOO_LARGE, b"")
            assert peak[0] < 24 * MIB
        (row,) = (await client.call(fetch("t"), 11)).responses[0].partitions
        assert row.error_code == 0
