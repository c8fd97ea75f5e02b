"""Produce requests of any version as parts for a transaction, and their responses."""

from typing import Any

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.header import decode_request_header, encode_request
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import walk_request
from kproxy.proxy.conversion import conversion
from kproxy.proxy.coordinator_requests import ProducePart
from kproxy.proxy.implicit_produce import implicit_parts, implicit_response
from kproxy.proxy.producing import FIRST_V2
from kproxy.txn.requests import Written
from tests.codec.message_sets import entry

BATCH = bytes(build_batch([Record(0, 0, None, b"v"), Record(1, 0, None, b"w")]))


def parts_of(version: int, *record_sets: bytes | None, most: int = 1 << 20) -> tuple[list[ProducePart], list[Any]]:
    """The parts of a request with these record sets, and the conversions that were counted."""
    rows = [ProduceRequestPartitionProduceData(at, records) for at, records in enumerate(record_sets)]
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[ProduceRequestTopicProduceData("t", partition_data=rows)]
    )
    frame = bytearray(encode_request(request, version, 1, "c"))
    layout = walk_request(frame, 4 + decode_request_header(memoryview(frame)[4:]).size, version)
    counted: list[Any] = []

    def count(direction: str, magic: int, batches: int, records: int) -> None:
        counted.append((direction, magic, batches, records))

    work = conversion(frame, layout, 5, most, unbounded())
    work.whole()
    converted = work.found if version < FIRST_V2 else None
    return implicit_parts(frame, layout, converted, count), counted


def brief(parts: list[ProducePart]) -> list[tuple[int, int, int]]:
    """Partition, records and error of each."""
    assert {part.base_sequence for part in parts} == {-1}
    return [(part.partition, part.records, part.error_code) for part in parts]


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_batches_are_taken_as_they_are(version: int) -> None:
    parts, counted = parts_of(version, BATCH, b"nonsense", BATCH)
    assert brief(parts) == [(0, 2, 0), (1, 0, ErrorCode.INVALID_RECORD), (2, 2, 0)]
    assert bytes(parts[0].batch) == BATCH
    assert not parts[0].batch.readonly
    assert counted == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_sets_are_converted(version: int) -> None:
    magic = int(version == 2)
    old = b"".join(entry(at, None, b"v", magic=magic, timestamp=5) for at in range(3))
    parts, counted = parts_of(version, old, b"", b"nonsense")
    assert brief(parts) == [(0, 3, 0), (1, 0, 0), (2, 0, ErrorCode.CORRUPT_MESSAGE)]
    assert not parts[0].batch.readonly
    assert counted == [("up", magic, 1, 3)]


def test_a_long_set_becomes_several_batches_of_one_partition() -> None:
    old = b"".join(entry(at, None, bytes(400), timestamp=5) for at in range(6))
    parts, _ = parts_of(2, old, most=1_000)
    assert len(parts) > 1
    assert {part.partition for part in parts} == {0}
    assert sum(part.records for part in parts) == 6


def part(index: int, records: int = 1, error: int = 0) -> ProducePart:
    return ProducePart(b"t", index, memoryview(b""), records, -1, error)


def rows_of(parts: list[ProducePart], written: list[Written]) -> list[tuple[int, int, int]]:
    return [(index, error, offset) for _, index, error, offset, _ in implicit_response(parts, written, 7).rows]


def test_each_partition_has_a_row_with_the_offset_of_its_first_batch() -> None:
    parts = [part(0), part(0), part(1, records=0), part(2, error=2), part(3)]
    written = [Written(0, 10, -1), Written(0, 11, -1), Written(0, 20, -1)]
    assert rows_of(parts, written) == [(0, 0, 10), (1, 0, -1), (2, 2, -1), (3, 0, 20)]


def test_a_partition_of_which_a_batch_failed_has_failed() -> None:
    written = [Written(0, 10, -1), Written(ErrorCode.MESSAGE_TOO_LARGE, -1, -1)]
    assert rows_of([part(0), part(0)], written) == [(0, ErrorCode.MESSAGE_TOO_LARGE, -1)]
