"""Metadata responses whose brokers are changed without a look at their partitions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.budget import unbounded
from kproxy.codec._generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproxy.codec.metadata_rows import MetadataBrokers
from kproxy.errors import RemoteProtocolError

VERSIONS = range(MetadataResponse.MIN_VERSION, MetadataResponse.MAX_VERSION + 1)
_INT32 = st.integers(0, 2**31 - 1)
#: Up to more than 127, from where on a length takes two bytes.
_NODES = st.lists(_INT32, max_size=3) | st.just([7] * 130)


@st.composite
def partitions(draw: st.DrawFn, version: int) -> MetadataResponsePartition:
    row = MetadataResponsePartition(draw(st.integers(-1, 9)), draw(_INT32), draw(_INT32))
    row.replica_nodes, row.isr_nodes = draw(_NODES), draw(_NODES)
    row.leader_epoch = draw(_INT32) if version >= 7 else -1
    row.offline_replicas = draw(_NODES) if version >= 5 else []
    row.unknown_tags = draw(tags(version))
    return row


def tags(version: int) -> st.SearchStrategy[dict[int, bytes]]:
    return st.dictionaries(st.integers(50, 300), st.binary(max_size=5), max_size=2) if version >= 9 else st.just({})


@st.composite
def responses(draw: st.DrawFn, version: int) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            name=draw(st.text(max_size=5)),
            topic_id=draw(st.binary(min_size=16, max_size=16)) if version >= 10 else bytes(16),
            is_internal=draw(st.booleans()) if version >= 1 else False,
            partitions=draw(st.lists(partitions(version), max_size=3)),
            unknown_tags=draw(tags(version)),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    brokers = [MetadataResponseBroker(n, f"h{n}", 9092, "rack" if version else None) for n in range(draw(_FEW))]
    made = MetadataResponse(brokers=brokers, topics=topics, unknown_tags=draw(tags(version)))
    made.throttle_time_ms = draw(_INT32) if version >= 3 else 0
    made.cluster_id = draw(st.none() | st.text(max_size=5)) if version >= 2 else None
    made.controller_id = draw(_INT32) if version >= 1 else -1
    made.error_code = draw(st.integers(-1, 9)) if version >= 13 else 0
    return made


_FEW = st.integers(0, 3)


def moved(response: MetadataResponse, version: int) -> bytes:
    """What is written when the first broker is left out and the others are elsewhere."""
    response.brokers = response.brokers[1:]
    for broker in response.brokers:
        broker.host, broker.port = "kproxy", 19092
    return response.encode(version)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(VERSIONS))
def test_it_is_written_as_the_whole_response_would_be(data: st.DataObject, version: int) -> None:
    said = data.draw(responses(version)).encode(version)
    whole, brief = (
        MetadataResponse.decode(said, version, unbounded()),
        MetadataBrokers.decode(said, version, unbounded()),
    )
    assert [(topic.topic_id, topic.name) for topic in brief.topics] == [(t.topic_id, t.name) for t in whole.topics]
    assert (brief.brokers, brief.error_code) == (whole.brokers, whole.error_code)
    assert moved(brief, version) == moved(whole, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_cut_or_too_long_is_refused(version: int) -> None:
    row = MetadataResponsePartition(partition_index=1, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1])
    topic = MetadataResponseTopic(name="t", partitions=[row, row])
    said = MetadataResponse(brokers=[MetadataResponseBroker(1, "h", 1)], topics=[topic]).encode(version)
    for size in range(len(said)):
        with pytest.raises(RemoteProtocolError):
            MetadataBrokers.decode(said[:size], version, unbounded())
    with pytest.raises(RemoteProtocolError):
        MetadataBrokers.decode(said + b"\0", version, unbounded())
