"""One batch in a request of its own: how it names its topic, and what is read of the response."""

from typing import TYPE_CHECKING, Any, cast

import pytest

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.net.single_batch import send_batch

if TYPE_CHECKING:
    from kproxy.net.brokers.broker_client import BrokerClient

TOPIC_ID = bytes(range(16))
ROW = ProduceResponsePartitionProduceResponse(3, 0, 7, -1)


class FakeClient:
    """Takes one request, and has the response to it."""

    def __init__(self, *topics: ProduceResponseTopicProduceResponse) -> None:
        self.response = ProduceResponse(responses=list(topics))
        self.asked: list[tuple[ProduceRequest, tuple[int, int], int]] = []

    async def call(
        self, request: ProduceRequest, _: type[ProduceResponse], versions: tuple[int, int], extra_ms: int
    ) -> ProduceResponse:
        self.asked.append((request, versions, extra_ms))
        return self.response


async def send(client: FakeClient, ref: bytes, *, by_id: bool) -> Any:
    return await send_batch(cast("BrokerClient", client), (ref, 3), b"batch", 500, by_id=by_id)


@pytest.mark.parametrize(
    ("ref", "by_id", "named", "versions"),
    [(b"t", False, ("t", bytes(16)), (0, 8)), (TOPIC_ID, True, ("", TOPIC_ID), (13, 13))],
)
async def test_a_batch_is_sent_under_its_topics_name_or_id(
    ref: bytes, by_id: bool, named: tuple[str, bytes], versions: tuple[int, int]
) -> None:
    client = FakeClient(ProduceResponseTopicProduceResponse(partition_responses=[ROW]))
    assert await send(client, ref, by_id=by_id) is ROW
    ((request, asked, extra_ms),) = client.asked
    (topic,) = request.topic_data
    assert ((topic.name, topic.topic_id), asked) == (named, versions)
    assert (request.acks, request.timeout_ms, extra_ms) == (-1, 500, 500)
    assert [(part.index, part.records) for part in topic.partition_data] == [(3, b"batch")]


@pytest.mark.parametrize("topics", [(), (ProduceResponseTopicProduceResponse(),)])
async def test_a_response_may_name_no_partition(topics: tuple[ProduceResponseTopicProduceResponse, ...]) -> None:
    assert await send(FakeClient(*topics), b"t", by_id=False) is None
