"""DescribeConfigs v0 from what later versions say."""

import pytest

from kproxy.codec._generated.create_topics import CreateTopicsRequest, CreateTopicsRequestCreatableTopic
from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResponseDescribeConfigsResourceResult,
    DescribeConfigsResponseDescribeConfigsResult,
)
from tests.proxy.playbook import Play


@pytest.mark.parametrize(
    ("resource", "source", "default"), [(2, 1, False), (2, 4, True), (2, 5, True), (4, 5, True), (4, 4, False)]
)
def test_is_default_of_v0_comes_from_the_source_of_the_value(resource: int, source: int, default: bool) -> None:
    """KIP-226: a topic's value is default unless set for the topic; a broker's, if nobody set it."""
    play = Play()
    play.ask(DescribeConfigsRequest(), 0)
    version, correlation_id, _ = play.sent()
    assert version == 1
    row = DescribeConfigsResponseDescribeConfigsResourceResult(name="a", value="b", config_source=source)
    result = DescribeConfigsResponseDescribeConfigsResult(
        resource_type=resource, resource_name="r", error_message=None, configs=[row]
    )
    play.reply(DescribeConfigsResponse(results=[result]), version, correlation_id)
    assert play.answer().results[0].configs[0].is_default is default


def test_create_topics_v0_is_lifted() -> None:
    """Finding 2: gone in Kafka 4."""
    play = Play()
    topic = CreateTopicsRequestCreatableTopic(name="t", num_partitions=3, replication_factor=1)
    play.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9), 0)
    version, _, request = play.sent()
    assert version == 2
    assert [(t.name, t.num_partitions, t.replication_factor) for t in request.topics] == [("t", 3, 1)]
