import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.budget import TooManyElements, unbounded
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.produce_layout import (
    FIRST_TOPIC_ID,
    MOST_PARTITIONS,
    ProduceLayout,
    Results,
    transactional_id,
    walk_request,
    walk_response,
)
from kproxy.errors import RemoteProtocolError
from tests.codec.produce_samples import request_sample, response_sample

VERSIONS = range(14)
HEADER = b"some bytes before"


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


def expected_results(message: Any, version: int) -> Results:
    return {
        (reference(topic.name, topic.topic_id, version), row.index): (
            row.error_code,
            row.base_offset,
            row.log_append_time_ms if version >= 2 else -1,
        )
        for topic in message.responses
        for row in topic.partition_responses
    }


def answer_frame(body: bytes, version: int) -> bytes:
    """A Produce response as ``walk_response`` takes it: length, correlation id and, from version 9 on, no tags."""
    return bytes(8) + (b"\0" if version >= 9 else b"") + body


def read_in_general(message_class: Any, data: bytes, version: int) -> Any:
    try:
        return message_class.decode(data, version, unbounded())
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
            frame = answer_frame(message.encode(version), version)
            assert walk_response(frame, version) == expected_results(message, version)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_of_a_cut_answer_it_never_says_less_than_was_written(self, version: int) -> None:
        for seed in range(8):
            message = response_sample(version, seed)
            frame = answer_frame(message.encode(version), version)
            for end in range(len(frame)):
                try:
                    results = walk_response(frame[:end], version)
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
                results = walk_response(answer_frame(frame, version), version)
            except RemoteProtocolError:
                assert message is None, frame.hex()
                continue
            if message is not None:
                assert results == expected_results(message, version)

    @pytest.mark.parametrize("version", [0, 2, 5, 8, 9, 13])
    @pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x0f"])
    def test_impossible_numbers_are_refused(self, version: int, count: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            walk_response(answer_frame(count + bytes(8), version), version)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("name", [None, "", "id", "an id of 40 letters, long enough for more"])
def test_the_transactional_id_where_it_stands(name: str | None, version: int) -> None:
    message = request_sample(version, 1)
    message.transactional_id = name if version >= 3 else None
    data = b"head" + message.encode(version)
    assert walk_request(data, 4, version).transactional is (message.transactional_id is not None)
    assert transactional_id(data, 4, version) == message.transactional_id


@pytest.mark.parametrize("version", [3, 9])
def test_a_transactional_id_that_is_no_text(version: int) -> None:
    data = ProduceRequest(transactional_id="xx").encode(version).replace(b"xx", b"\xff\xfe")
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        transactional_id(data, 0, version)


@pytest.mark.parametrize("version", [2, 9])
def test_a_request_names_so_many_partitions_and_no_more(version: int) -> None:
    def request(*counts: int) -> bytes:
        data = [
            ProduceRequestTopicProduceData("t", partition_data=[ProduceRequestPartitionProduceData(0, None)] * count)
            for count in counts
        ]
        return ProduceRequest(acks=1, timeout_ms=1, topic_data=data).encode(version)

    assert len(walk_request(request(MOST_PARTITIONS - 1, 1), 0, version).partitions) == MOST_PARTITIONS
    for counts in ([MOST_PARTITIONS + 1], [MOST_PARTITIONS, 1], [0] * (MOST_PARTITIONS + 1)):
        with pytest.raises(TooManyElements):
            walk_request(request(*counts), 0, version)
