"""Produce frames that are written at once are, to the byte, those of messages."""

import random

import pytest

from kproxy.codec import produce_frames
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.header import encode_request, encode_response
from kproxy.codec.produce_frames import ProduceRequests, produce_response
from kproxy.codec.produce_layout import FIRST_TOPIC_ID

LONG = "t" * 200
"""Longer than a varint of one byte says."""


def places(seed: int) -> list[tuple[str, int]]:
    chance = random.Random(seed)
    every = [(name, index) for name in ("t", "ü", LONG) for index in (0, 1, 7, 2**31 - 1)]
    return chance.sample(every, chance.randint(1, len(every)))


def by_topic(rows: list[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, index in rows:
        found.setdefault(name, []).append(index)
    return found


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


def ref(version: int, place: tuple[str, int]) -> tuple[bytes, int]:
    """A partition as a request of the version names it."""
    name, index = place
    return topic_id(name) if version >= FIRST_TOPIC_ID else name.encode(), index


def message_of(version: int, batches: dict[tuple[str, int], bytes], transactional_id: str | None) -> ProduceRequest:
    by_id = version >= FIRST_TOPIC_ID
    topics = [
        ProduceRequestTopicProduceData(
            name="" if by_id else name,
            topic_id=topic_id(name) if by_id else bytes(16),
            partition_data=[ProduceRequestPartitionProduceData(index, batches[name, index]) for index in indexes],
        )
        for name, indexes in by_topic(list(batches)).items()
    ]
    return ProduceRequest(transactional_id, -1, 30_000, topics)


@pytest.mark.parametrize("version", range(3, FIRST_TOPIC_ID + 1))
@pytest.mark.parametrize("transactional_id", [None, "", "id", LONG])
def test_a_request_is_that_of_a_message(version: int, transactional_id: str | None) -> None:
    for client_id in (None, "", "kproxy"):
        requests = ProduceRequests(client_id, transactional_id, 30_000)
        for seed in range(8):
            chance = random.Random(seed)
            batches = {place: chance.randbytes(chance.choice((0, 1, 125, 126, 127, 20_000))) for place in places(seed)}
            message = message_of(version, batches, transactional_id)
            views = [(ref(version, place), memoryview(batch)) for place, batch in batches.items()]
            assert requests.frame(version, seed, views) == encode_request(message, version, seed, client_id)


@pytest.mark.parametrize("version", range(3, FIRST_TOPIC_ID + 1))
def test_a_request_of_one_batch_is_that_of_a_message_whatever_the_one_before_was(version: int) -> None:
    requests = ProduceRequests("kproxy", "id", 30_000)
    for name in ("b", "b", "c", "a"):
        for places in ([(name, 5)], [(name, 5), (name, 6)]):
            batches = {place: b"batch" for place in places}
            for each in (version, 7, version):
                expected = encode_request(message_of(each, batches, "id"), each, 9, "kproxy")
                named = [(ref(each, place), batch) for place, batch in batches.items()]
                assert requests.frame(each, 9, named) == expected


def test_a_request_may_be_empty() -> None:
    empty = ProduceRequest("id", -1, 1, [])
    requests = ProduceRequests("c", "id", 1)
    for version in range(3, FIRST_TOPIC_ID + 1):
        assert requests.frame(version, 5, []) == encode_request(empty, version, 5, "c")


def test_a_request_of_more_topics_than_a_varint_of_one_byte_says() -> None:
    batches = {(f"t{number}", number): b"batch" for number in range(300)}
    for version in (8, 9, FIRST_TOPIC_ID):
        named = [(ref(version, place), batch) for place, batch in batches.items()]
        written = ProduceRequests("c", None, 30_000).frame(version, 5, named)
        assert written == encode_request(message_of(version, batches, None), version, 5, "c")


@pytest.mark.parametrize("version", range(ProduceResponse.MAX_VERSION + 1))
def test_a_response_is_that_of_a_message(version: int) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        results = {place: (chance.choice((0, 6, -1, 120)), chance.getrandbits(62), 9) for place in places(seed)}
        topics, rows = [], []
        for number, (name, indexes) in enumerate(by_topic(list(results)).items()):
            topic_id = bytes([number]) * 16
            ref = topic_id if version >= FIRST_TOPIC_ID else name.encode()
            rows += [(ref, index, *results[name, index]) for index in indexes]
            partitions = [ProduceResponsePartitionProduceResponse(index, *results[name, index]) for index in indexes]
            named = {"topic_id": topic_id} if version >= FIRST_TOPIC_ID else {"name": name}
            topics.append(ProduceResponseTopicProduceResponse(**named, partition_responses=partitions))
        assert produce_response(version, seed, rows) == encode_response(ProduceResponse(topics), version, seed)


def test_a_response_may_be_empty() -> None:
    for version in range(ProduceResponse.MAX_VERSION + 1):
        assert produce_response(version, -1, []) == encode_response(ProduceResponse(), version, -1)


def test_partitions_of_one_topic_are_together_in_the_order_in_which_topics_come_first() -> None:
    rows = [(b"b", 1, 0, 5, -1), (b"a", 1, 0, 6, -1), (b"b", 0, 3, -1, -1)]
    sorted_rows = [rows[0], rows[2], rows[1]]
    assert produce_response(9, 1, rows) == produce_response(9, 1, sorted_rows)


@pytest.mark.parametrize(("name", "is_kept"), [(b"n" * 249, True), (b"n" * 250, False)])
def test_a_client_cannot_fill_memory_with_long_names_of_topics(name: bytes, is_kept: bool) -> None:
    produce_frames._known_before_one.cache_clear()
    first = produce_response(8, 1, [(name, 0, 3, -1, -1)])
    assert produce_frames._known_before_one.cache_info().currsize == is_kept
    assert produce_response(8, 1, [(name, 0, 3, -1, -1)]) == first
