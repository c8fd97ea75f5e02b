import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.header import decode_request_header, encode_request
from kproxy.codec.produce import FIRST_TOPIC_ID, PartitionResult, ProduceLayout, walk_request, walk_response
from kproxy.codec.produce_shape import RequestShape, ResponseShape
from kproxy.errors import RemoteProtocolError
from tests.support.samples import Sampler

VERSIONS = range(14)
HEADER = b"some bytes before"


def request_sample(version: int, seed: int) -> Any:
    return Sampler("ProduceRequest", version, seed, tags=True).message()[0]


def response_sample(version: int, seed: int) -> Any:
    return Sampler("ProduceResponse", version, seed, tags=True).message()[0]


def reference(topic: str, topic_id: bytes, version: int) -> bytes:
    return topic_id if version >= FIRST_TOPIC_ID else topic.encode()


def record_sets(frame: bytes, layout: ProduceLayout) -> list[tuple[bytes, int, bytes | None]]:
    return [
        (place.topic, place.partition, None if place.start < 0 else frame[place.start : place.end])
        for place in layout.partitions
    ]


def expected_sets(message: Any, version: int) -> list[tuple[bytes, int, bytes | None]]:
    return [
        (
            reference(topic.name, topic.topic_id, version),
            row.index,
            None if row.records is None else bytes(row.records),
        )
        for topic in message.topic_data
        for row in topic.partition_data
    ]


def expected_results(message: Any, version: int) -> list[PartitionResult]:
    return [
        PartitionResult(
            reference(topic.name, topic.topic_id, version),
            row.index,
            row.error_code,
            row.base_offset,
            row.log_append_time_ms if version >= 2 else -1,
        )
        for topic in message.responses
        for row in topic.partition_responses
    ]


def read_in_general(message_class: Any, data: bytes, version: int) -> Any:
    try:
        return message_class.decode(data, version)
    except RemoteProtocolError:
        return None


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        if not changed:
            break
        place = chance.randrange(len(changed))
        what = chance.randrange(3)
        if what == 0:
            changed[place] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        elif what == 1:
            del changed[place : place + chance.randint(1, 8)]
        else:
            changed[place:place] = chance.randbytes(chance.randint(1, 8))
    return bytes(changed)


class TestRequest:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_sees_what_the_general_codec_wrote(self, version: int) -> None:
        for seed in range(60):
            message = request_sample(version, seed)
            frame = HEADER + message.encode(version)
            layout = walk_request(frame, len(HEADER), version)
            assert record_sets(frame, layout) == expected_sets(message, version)
            assert (layout.acks, layout.timeout_ms) == (message.acks, message.timeout_ms)
            assert layout.transactional is (version >= 3 and message.transactional_id is not None)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_acks_can_be_changed_where_it_says(self, version: int) -> None:
        for seed in range(20):
            message = request_sample(version, seed)
            frame = bytearray(message.encode(version))
            at = walk_request(frame, 0, version).acks_at
            frame[at : at + 2] = b"\xff\xff"
            message.acks = -1
            assert bytes(frame) == message.encode(version)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_each_cut_and_each_byte_too_many_is_refused(self, version: int) -> None:
        for seed in range(8):
            frame = request_sample(version, seed).encode(version)
            for end in range(len(frame)):
                with pytest.raises(RemoteProtocolError):
                    walk_request(frame[:end], 0, version)
            with pytest.raises(RemoteProtocolError):
                walk_request(frame + b"\0", 0, version)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_of_damaged_bytes_it_says_what_the_general_codec_says_or_refuses(self, version: int) -> None:
        chance = random.Random(version)
        for seed in range(150):
            frame = mutated(request_sample(version, seed).encode(version), chance)
            message = read_in_general(ProduceRequest, frame, version)
            try:
                layout = walk_request(frame, 0, version)
            except RemoteProtocolError:
                assert message is None, frame.hex()
                continue
            for place in layout.partitions:
                assert place.start == place.end == -1 or 0 <= place.start <= place.end <= len(frame)
            if message is not None:
                assert record_sets(frame, layout) == expected_sets(message, version)

    @pytest.mark.parametrize("version", VERSIONS)
    @given(st.binary(max_size=80))
    @settings(max_examples=40, deadline=None)
    def test_garbage_never_raises_anything_else(self, version: int, data: bytes) -> None:
        try:
            walk_request(data, 0, version)
        except RemoteProtocolError:
            assert True

    @pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\x09"])
    def test_impossible_numbers_of_topics_are_refused(self, count: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            walk_request(b"\0\x01\0\0\0\0" + count, 0, 2)

    @pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 9, b"\0", b"\x09"])
    def test_impossible_compact_numbers_are_refused(self, count: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            walk_request(b"\0\0\x01\0\0\0\0" + count + b"\0", 0, 9)

    def test_a_topic_that_is_not_utf8_is_refused(self) -> None:
        for version in (2, 9):
            message = ProduceRequest(topic_data=[ProduceRequestTopicProduceData(name="\u00e9")])
            frame = message.encode(version).replace("\u00e9".encode(), b"\xc3\xff")
            with pytest.raises(RemoteProtocolError):
                walk_request(frame, 0, version)


class TestResponse:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_sees_what_the_general_codec_wrote(self, version: int) -> None:
        for seed in range(60):
            message = response_sample(version, seed)
            frame = HEADER + message.encode(version)
            assert walk_response(frame, len(HEADER), version) == expected_results(message, version)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_of_a_cut_answer_it_never_says_less_than_was_written(self, version: int) -> None:
        for seed in range(8):
            message = response_sample(version, seed)
            frame = message.encode(version)
            for end in range(len(frame)):
                try:
                    results = walk_response(frame[:end], 0, version)
                except RemoteProtocolError:
                    continue
                assert results == expected_results(message, version)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_damaged_bytes_raise_nothing_else(self, version: int) -> None:
        chance = random.Random(version)
        for seed in range(150):
            frame = mutated(response_sample(version, seed).encode(version), chance)
            message = read_in_general(response_sample(version, 0).__class__, frame, version)
            try:
                results = walk_response(frame, 0, version)
            except RemoteProtocolError:
                assert message is None, frame.hex()
                continue
            if message is not None:
                assert results == expected_results(message, version)

    @pytest.mark.parametrize("version", [0, 2, 5, 8, 9, 13])
    @pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f"])
    def test_impossible_numbers_are_refused(self, version: int, count: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            walk_response(count + bytes(8), 0, version)


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
