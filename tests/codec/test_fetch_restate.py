"""Fetch responses changed in place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec._generated.fetch import (
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseFetchableTopicResponse,
    FetchResponseLeaderIdAndEpoch,
    FetchResponsePartitionData,
)
from kproxy.codec.fetch_restate import restate
from kproxy.codec.header import encode_response, response_header_size
from kproxy.codec.messages import ApiKey

_PREFIX = 4
_INT64 = st.integers(-1, 2**63 - 1)


@st.composite
def rows(draw: st.DrawFn, version: int) -> FetchResponsePartitionData:
    aborted = draw(st.none() | st.lists(st.builds(FetchResponseAbortedTransaction, _INT64, _INT64), max_size=3))
    row = FetchResponsePartitionData(
        partition_index=draw(st.integers(0, 9)),
        high_watermark=draw(_INT64),
        last_stable_offset=draw(_INT64),
        aborted_transactions=aborted,
        records=draw(st.none() | st.binary(max_size=300)),
    )
    if version >= 12 and draw(st.booleans()):
        row.current_leader = FetchResponseLeaderIdAndEpoch(1, 2)
        row.unknown_tags = {99: b"x" * draw(st.integers(0, 200))}
    return row


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(4, 18))
def test_last_stable_offsets_are_restated_as_if_they_had_been_encoded(data: st.DataObject, version: int) -> None:
    topics = [
        FetchResponseFetchableTopicResponse(
            topic="t" * data.draw(st.integers(1, 200)) if version < 13 else "",
            topic_id=b"i" * 16 if version >= 13 else bytes(16),
            partitions=data.draw(st.lists(rows(version), max_size=4)),
        )
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    response = FetchResponse(throttle_time_ms=3, responses=topics)
    frame = bytearray(encode_response(response, version, 7))
    body = _PREFIX + response_header_size(ApiKey.FETCH, version, memoryview(frame)[_PREFIX:])
    stable = [data.draw(_INT64) for topic in topics for _ in topic.partitions]
    restate(frame, body, version, stable)
    left = iter(stable)
    for topic in topics:
        for row in topic.partitions:
            row.last_stable_offset = next(left)
    assert frame == encode_response(response, version, 7)


def test_one_offset_for_each_row() -> None:
    topic = FetchResponseFetchableTopicResponse(topic="t", partitions=[FetchResponsePartitionData(records=b"")])
    frame = bytearray(encode_response(FetchResponse(responses=[topic]), 4, 7))
    with pytest.raises(ValueError, match="zip"):
        restate(frame, 8, 4, [])
