"""Rights on share groups, and on the topics that they read."""

from typing import Any

import pytest

from kproxy.codec._generated.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from kproxy.codec._generated.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from kproxy.codec._generated.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponseTopic,
)
from kproxy.codec._generated.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestAcknowledgePartition,
    ShareAcknowledgeRequestAcknowledgeTopic,
    ShareAcknowledgeResponse,
)
from kproxy.codec._generated.share_fetch import (
    ShareFetchRequest,
    ShareFetchRequestFetchPartition,
    ShareFetchRequestFetchTopic,
    ShareFetchResponse,
    ShareFetchResponseAcquiredRecords,
    ShareFetchResponsePartitionData,
    ShareFetchResponseShareFetchableTopicResponse,
)
from kproxy.codec._generated.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeResponseAssignment,
    ShareGroupDescribeResponseDescribedGroup,
    ShareGroupDescribeResponseMember,
    ShareGroupDescribeResponseTopicPartitions,
)
from kproxy.codec._generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from kproxy.codec.messages import ErrorCode
from tests.proxy.authorization.screening import Screened

TOPIC = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
A, B = b"a" * 16, b"b" * 16
NAMES = {A: "a", B: "b"}


def fetch(*ids: bytes) -> ShareFetchRequest:
    topics = [ShareFetchRequestFetchTopic(each, [ShareFetchRequestFetchPartition(3)]) for each in ids]
    return ShareFetchRequest(group_id="g", member_id="m", share_session_epoch=2, topics=topics)


def row(topic_id: bytes) -> ShareFetchResponseShareFetchableTopicResponse:
    found = ShareFetchResponsePartitionData(3, records=b"secret")
    found.acquired_records = [ShareFetchResponseAcquiredRecords(0, 1, 1)]
    return ShareFetchResponseShareFetchableTopicResponse(topic_id, [found])


def read(answer: Any) -> dict[bytes, tuple[int, bytes, int]]:
    return {
        topic.topic_id: (row.error_code, bytes(row.records or b""), len(row.acquired_records))
        for topic in answer.responses
        for row in topic.partitions
    }


def test_the_group_has_to_be_readable() -> None:
    screened = Screened("Read t:")
    acknowledge = ShareAcknowledgeRequest("g", "m")
    for request, version in (fetch(A), 2), (acknowledge, 2), (ShareGroupHeartbeatRequest("g", "m", 0), 1):
        assert screened.refused(request, version).error_code == GROUP


def test_a_member_may_only_subscribe_to_topics_that_it_may_describe() -> None:
    screened = Screened("Read g:", "Describe t:a")
    assert screened.refused(ShareGroupHeartbeatRequest("g", "m", 0, None, ["a", "b"]), 1).error_code == TOPIC
    screened.passed(ShareGroupHeartbeatRequest("g", "m", 0, None, ["a"]), 1)
    screened.passed(ShareGroupHeartbeatRequest("g", "m", 4), 1)


def test_only_topics_that_may_be_read_are_in_a_session_and_the_others_are_refused() -> None:
    screened = Screened("Read g:", "Read t:a", names=NAMES)
    asked, answer = screened.passed(fetch(A, B), 2, ShareFetchResponse(responses=[row(A)]))
    assert [topic.topic_id for topic in asked.topics] == [A]
    assert read(answer) == {A: (0, b"secret", 1), B: (TOPIC, b"", 0)}


def test_a_request_of_a_session_is_forwarded_though_nothing_of_it_is_allowed() -> None:
    """The broker counts the requests of a session."""
    screened = Screened("Read g:", names=NAMES)
    asked, answer = screened.passed(fetch(B), 2, ShareFetchResponse())
    assert (asked.topics, asked.share_session_epoch) == ([], 2)
    assert read(answer) == {B: (TOPIC, b"", 0)}


def test_what_a_session_still_holds_of_a_topic_that_may_not_be_read_any_more_is_not_delivered() -> None:
    screened = Screened("Read g:", "Read t:a", names=NAMES)
    unknown = b"x" * 16
    answers = [row(A), row(B), row(unknown)]
    _, answer = screened.passed(fetch(), 2, ShareFetchResponse(responses=answers))
    unknown_id = int(ErrorCode.UNKNOWN_TOPIC_ID)
    assert read(answer) == {A: (0, b"secret", 1), B: (TOPIC, b"", 0), unknown: (unknown_id, b"", 0)}


def test_acknowledgements_need_the_right_to_read() -> None:
    screened = Screened("Read g:", "Read t:a", names=NAMES)
    parts = [ShareAcknowledgeRequestAcknowledgePartition(3)]
    topics = [ShareAcknowledgeRequestAcknowledgeTopic(each, parts) for each in (A, B)]
    asked, answer = screened.passed(ShareAcknowledgeRequest("g", "m", 2, topics=topics), 2, ShareAcknowledgeResponse())
    assert [topic.topic_id for topic in asked.topics] == [A]
    assert [(each.topic_id, each.partitions[0].error_code) for each in answer.responses] == [(B, TOPIC)]


def test_a_group_is_described_with_topics_that_may_be_described() -> None:
    screened = Screened("Describe g:g", "Describe t:a")

    def group(name: str, topic: str) -> ShareGroupDescribeResponseDescribedGroup:
        assigned = ShareGroupDescribeResponseAssignment([ShareGroupDescribeResponseTopicPartitions(A, topic, [0])])
        member = ShareGroupDescribeResponseMember("m", None, 1, "client", "host", [topic], assigned)
        return ShareGroupDescribeResponseDescribedGroup(0, None, name, "Stable", members=[member])

    answer = ShareGroupDescribeResponse(groups=[group("g1", "a"), group("g2", "b")])
    asked, answer = screened.passed(ShareGroupDescribeRequest(["g1", "g2", "other"]), 1, answer)
    assert asked.group_ids == ["g1", "g2"]
    codes = {each.group_id: (each.error_code, len(each.members)) for each in answer.groups}
    assert codes == {"g1": (0, 1), "g2": (TOPIC, 0), "other": (GROUP, 0)}


@pytest.mark.parametrize("named", [False, True])
def test_offsets_of_a_group_are_described_for_topics_that_may_be_described(named: bool) -> None:
    screened = Screened("Describe g:g", "Describe t:a")
    topics = [DescribeShareGroupOffsetsRequestTopic(each, [0]) for each in "ab"]
    groups = [DescribeShareGroupOffsetsRequestGroup(name, topics if named else None) for name in ("g", "other")]
    rows = [DescribeShareGroupOffsetsResponseTopic(each) for each in ("a" if named else "ab")]
    answer = DescribeShareGroupOffsetsResponse(groups=[DescribeShareGroupOffsetsResponseGroup("g", rows)])
    asked, answer = screened.passed(DescribeShareGroupOffsetsRequest(groups), 1, answer)
    assert [each.group_id for each in asked.groups] == ["g"]
    if named:
        assert [each.topic_name for each in asked.groups[0].topics or ()] == ["a"]
    found = {each.group_id: (each.error_code, [topic.topic_name for topic in each.topics]) for each in answer.groups}
    assert found == {"g": (0, ["a", "b"] if named else ["a"]), "other": (GROUP, [])}
    if named:
        refused = answer.groups[0].topics[1].partitions[0]
        assert (refused.partition_index, refused.error_code, refused.start_offset) == (0, TOPIC, -1)


def test_offsets_are_altered_by_readers_and_deleted_by_those_that_may_delete_the_group() -> None:
    screened = Screened("Read g:", "Read t:a")
    parts = [AlterShareGroupOffsetsRequestPartition(0, 3)]
    alter = AlterShareGroupOffsetsRequest("g", [AlterShareGroupOffsetsRequestTopic(each, parts) for each in "ab"])
    asked, answer = screened.passed(alter, 0, AlterShareGroupOffsetsResponse())
    assert [each.topic_name for each in asked.topics] == ["a"]
    assert [(each.topic_name, each.partitions[0].error_code) for each in answer.responses] == [("b", TOPIC)]
    delete = DeleteShareGroupOffsetsRequest("g", [DeleteShareGroupOffsetsRequestTopic(each) for each in "ab"])
    assert screened.refused(delete, 0).error_code == GROUP
    asked, answer = Screened("Delete g:", "Read t:a").passed(delete, 0, DeleteShareGroupOffsetsResponse())
    assert [each.topic_name for each in asked.topics] == ["a"]
    assert [(each.topic_name, each.error_code) for each in answer.responses] == [("b", TOPIC)]
