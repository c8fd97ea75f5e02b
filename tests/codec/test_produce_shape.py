from collections.abc import Sequence
from typing import Any

import pytest

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.header import decode_request_header, encode_request
from kproxy.codec.produce_layout import ProduceLayout, walk_request
from kproxy.codec.produce_shape import RequestShape

#: Of format versions that count with varints, and name topics by id.
VERSIONS = range(14)
#: Sizes around those where a varint gets longer, the last one too long for the shortcut.
SIZES = (0, 1, 126, 127, 128, 500, 16_382, 16_383, 16_384, (1 << 21) - 2)


def topic(name: str, *partitions: tuple[int, bytes | None]) -> ProduceRequestTopicProduceData:
    rows = [ProduceRequestPartitionProduceData(index=index, records=records) for index, records in partitions]
    made = ProduceRequestTopicProduceData(name=name, partition_data=rows)
    made.topic_id = name.encode().ljust(16, b".")
    return made


def request(
    version: int, topics: Sequence[ProduceRequestTopicProduceData], correlation_id: int = 1, **changes: Any
) -> bytearray:
    client_id = changes.pop("client_id", "client")
    message = ProduceRequest(acks=1, timeout_ms=100, topic_data=list(topics))
    for name, value in changes.items():
        setattr(message, name, value)
    return bytearray(encode_request(message, version, correlation_id, client_id))


def one_partition(version: int, records: bytes, **changes: Any) -> bytearray:
    return request(version, [topic("topic", (3, records))], **changes)


def layout_of(frame: bytearray, version: int) -> ProduceLayout:
    return walk_request(frame, 4 + decode_request_header(memoryview(frame)[4:]).size, version)


def shape_of(frame: bytearray, version: int) -> RequestShape:
    return RequestShape(frame, layout_of(frame, version), version)


class TestRequestShape:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_the_next_frame_has_the_layout_that_a_walk_gives(self, version: int) -> None:
        shape = shape_of(one_partition(version, b"12345"), version)
        for size in SIZES:
            frame = one_partition(version, bytes(size), correlation_id=99)
            assert shape.layout(frame) == layout_of(frame, version)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_partitions_their_order_and_the_topics_among_those_known_may_change(self, version: int) -> None:
        both = [topic("a", (0, b"x"), (1, b"y" * 200)), topic("bb", (7, b"z" * 20_000))]
        shape = shape_of(request(version, both), version)
        for topics in (
            both,
            [topic("bb", (3, b"u"), (7, b"v"), (0, b"")), topic("a", (9, b"w" * 300))],
            [topic("a", (1, b"y"), (0, b"x"))],
            [topic("a")],
            [],
        ):
            frame = request(version, topics, correlation_id=5)
            assert shape.layout(frame) == layout_of(frame, version)

    def test_a_layout_that_was_used_keeps_its_partitions(self) -> None:
        shape = shape_of(one_partition(9, b"12345"), 9)
        first = shape.layout(one_partition(9, b"12345"))
        assert first is not None
        partitions, before = first.partitions, list(first.partitions)
        assert shape.layout(one_partition(9, b"1"))
        assert partitions == before

    @pytest.mark.parametrize("version", [7, 9])
    @pytest.mark.parametrize(
        "changes",
        [{"client_id": "clienT"}, {"acks": 0}, {"timeout_ms": 7}, {"transactional_id": "t"}],
    )
    def test_a_frame_that_says_something_else_has_another_shape(self, version: int, changes: dict[str, Any]) -> None:
        shape = shape_of(one_partition(version, b"12345"), version)
        assert shape.layout(one_partition(version, b"12345", **changes)) is None
        assert shape.layout(one_partition(version - 1, b"12345")) is None

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_topic_that_is_not_known_is_another_shape(self, version: int) -> None:
        shape = shape_of(one_partition(version, b"12345"), version)
        for name in ("other", "topic2", "topi"):
            assert shape.layout(request(version, [topic(name, (3, b"12345"))])) is None

    @pytest.mark.parametrize("version", VERSIONS)
    def test_no_cut_or_lengthened_frame_has_the_shape(self, version: int) -> None:
        frame = request(version, [topic("topic", (3, b"12345"), (4, b"1" * 200))])
        shape = shape_of(frame, version)
        for end in range(len(frame)):
            assert shape.layout(frame[:end]) is None
        assert shape.layout(frame + b"\0") is None

    @pytest.mark.parametrize("version", VERSIONS)
    def test_what_it_does_not_know_is_left_to_the_walk(self, version: int) -> None:
        shape = shape_of(one_partition(version, b"12345"), version)
        assert shape.layout(request(version, [topic("topic", (0, None))])) is None
        assert shape.layout(request(version, [topic("topic", *((n, b"") for n in range(127)))])) is None
        assert shape.layout(request(version, [topic("topic")] * 127)) is None

    @pytest.mark.parametrize("version", [9, 13])
    def test_tags_and_batches_of_two_mebibytes_are_left_to_the_walk(self, version: int) -> None:
        shape = shape_of(one_partition(version, b"12345"), version)
        assert shape.layout(one_partition(version, bytes((1 << 21) - 1))) is None
        frame = one_partition(version, b"12345")
        for from_end in (1, 2, 3):  # of the request, the topic and the partition
            at = len(frame) - from_end
            assert shape.layout(frame[:at] + b"\1\5\0" + frame[at + 1 :]) is None

    @pytest.mark.parametrize("version", VERSIONS)
    def test_of_any_damage_it_says_what_the_walk_says_or_nothing(self, version: int) -> None:
        frame = request(version, [topic("topic", (3, b"12345"), (4, b"1" * 130)), topic("t", (0, b"x"))])
        shape = shape_of(frame, version)
        begin = layout_of(frame, version).acks_at + 6
        for at in range(begin, len(frame)):
            for value in (0, 1, 2, 5, 0x7F, 0x80, 0xFF):
                damaged = frame.copy()
                damaged[at] = value
                layout = shape.layout(damaged)
                assert layout is None or layout == layout_of(damaged, version)
