from typing import Any

import pytest

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.header import decode_request_header, encode_request
from kproxy.codec.produce_layout import PartitionResult, ProduceLayout, walk_request, walk_response
from kproxy.codec.produce_shape import RequestShape, ResponseShape
from tests.codec.produce_samples import response_sample


def one_partition(version: int, records: bytes, correlation_id: int = 1, **changes: Any) -> bytearray:
    row = ProduceRequestPartitionProduceData(index=changes.pop("index", 3), records=records)
    topic = ProduceRequestTopicProduceData(name=changes.pop("name", "topic"), partition_data=[row])
    client_id = changes.pop("client_id", "client")
    message = ProduceRequest(acks=1, timeout_ms=100, topic_data=[topic])
    for name, value in changes.items():
        setattr(message, name, value)
    return bytearray(encode_request(message, version, correlation_id, client_id))


def layout_of(frame: bytearray, version: int) -> ProduceLayout:
    return walk_request(frame, 4 + decode_request_header(memoryview(frame)[4:]).size, version)


class TestRequestShape:
    @pytest.mark.parametrize("version", range(9))
    def test_the_next_frame_has_the_layout_that_a_walk_gives(self, version: int) -> None:
        first = one_partition(version, b"12345")
        shape = RequestShape.of(first, layout_of(first, version), version)
        assert shape is not None
        for records in (b"", b"1", b"x" * 500):
            frame = one_partition(version, records, correlation_id=99)
            assert shape.layout(frame) == layout_of(frame, version)

    @pytest.mark.parametrize(
        "changes",
        [{"index": 4}, {"name": "other"}, {"client_id": "clienT"}, {"acks": 0}, {"timeout_ms": 7}, {"name": "topic2"}],
    )
    def test_a_frame_that_says_something_else_has_another_shape(self, changes: dict[str, Any]) -> None:
        first = one_partition(7, b"12345")
        shape = RequestShape.of(first, layout_of(first, 7), 7)
        assert shape is not None
        assert shape.layout(one_partition(7, b"12345", **changes)) is None
        assert shape.layout(one_partition(6, b"12345")) is None

    def test_no_cut_or_lengthened_frame_has_the_shape(self) -> None:
        frame = one_partition(7, b"12345")
        shape = RequestShape.of(frame, layout_of(frame, 7), 7)
        assert shape is not None
        for end in range(len(frame)):
            assert shape.layout(frame[:end]) is None
        assert shape.layout(frame + b"\0") is None

    def test_what_has_no_shape(self) -> None:
        flexible = one_partition(9, b"12345")
        assert RequestShape.of(flexible, layout_of(flexible, 9), 9) is None
        null = one_partition(7, b"", topic_data=[])
        assert RequestShape.of(null, layout_of(null, 7), 7) is None


class TestResponseShape:
    @pytest.mark.parametrize("version", range(2, 9))
    def test_it_sees_what_a_walk_sees_or_nothing(self, version: int) -> None:
        seen = 0
        for seed in range(200):
            frame = response_sample(version, seed).encode(version)
            results = walk_response(frame, 0, version)
            if not results:
                continue
            result = ResponseShape(results[0].topic, results[0].partition).result(frame, 0, version)
            assert result is None or [result] == results
            seen += result is not None
        assert seen

    def test_a_cut_answer_has_another_shape(self) -> None:
        frame = bytes.fromhex("00000001000174000000010000000300000000000000000005ffffffffffffffff")
        shape = ResponseShape(b"t", 3)
        assert shape.result(frame, 0, 2) == PartitionResult(b"t", 3, 0, 5, -1)
        assert all(shape.result(frame[:end], 0, 2) is None for end in range(len(frame)))
