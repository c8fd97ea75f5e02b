"""Produce frames that arrived at relays, kept and made text of."""

from pathlib import Path

import pytest

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.header import encode_request, encode_response
from kproxy.codec.message_formats import from_v2
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.relay import Frame
from verification.chaos.arrivals import Arrivals

LIMIT = 1 << 20
UPSTREAM = ("127.0.0.1", 9092)


def request(version: int, number: int, *values: bytes) -> bytes:
    data: bytes = bytes(build_batch([Record(at, 7, None, value, ()) for at, value in enumerate(values)]))
    if version < 3:
        converted = from_v2(data, magic=version // 2, first_offset=0, max_decompressed_bytes=LIMIT, max_bytes=LIMIT)
        data = bytes(converted.data)
    rows = [ProduceRequestPartitionProduceData(index=2, records=data)]
    topics = [ProduceRequestTopicProduceData(name="t", partition_data=rows)]
    return encode_request(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), version, number, "old")


def response(version: int, number: int, error: int) -> bytes:
    rows = [ProduceResponsePartitionProduceResponse(index=2, error_code=error, base_offset=5)]
    topics = [ProduceResponseTopicProduceResponse(name="t", partition_responses=rows)]
    return encode_response(ProduceResponse(responses=topics), version, number)


def taken(directory: Path, *frames: Frame) -> list[str]:
    with Arrivals(directory) as arrivals:
        for frame in frames:
            arrivals.take(4, frame)
        arrivals.explain()
    return [line.partition("] ")[2] for line in (directory / "produces.log").read_text().splitlines()]


@pytest.mark.parametrize("version", [0, 2, 8])
def test_requests_and_responses_become_text_in_the_order_of_their_arrival(tmp_path: Path, version: int) -> None:
    produce = ApiKey.PRODUCE
    lines = taken(
        tmp_path,
        Frame(1, False, produce, request(version, 9, b"a", b"b"), False, UPSTREAM),
        Frame(1, False, ApiKey.FETCH, b"", False, UPSTREAM),
        Frame(1, True, produce, response(version, 9, ErrorCode.REQUEST_TIMED_OUT), True, UPSTREAM),
    )
    assert lines == [
        f"relay 4 connection 1 request 9: old v{version}: acks 1, b't'-2 [a b]",
        "relay 4 connection 1 response 9 (dropped): b't'-2 REQUEST_TIMED_OUT at 5",
    ]


def test_what_can_not_be_read_becomes_a_line_that_says_so(tmp_path: Path) -> None:
    (line,) = taken(tmp_path, Frame(1, True, ApiKey.PRODUCE, response(8, 9, 0), False, UPSTREAM))
    assert line.startswith("relay 4 connection 1 response -1: unreadable")
