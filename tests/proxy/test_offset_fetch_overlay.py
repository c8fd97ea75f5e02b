"""What the transaction log says, laid over brokers' OffsetFetch answers."""

import pytest

from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kproxy.codec.messages import ErrorCode
from kproxy.proxy.offset_fetch_overlay import (
    groups_of,
    overlay,
    refused_commit,
    refused_fetch,
    says_something,
    unstable_row,
)

ID = b"\x07" * 16
LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def said(*rows: OffsetFetchResponsePartitions, group: str = "g", error: int = 0) -> OffsetFetchResponse:
    topics = [OffsetFetchResponseTopics("t", ID, list(rows))] if rows else []
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group, topics, error)])


def row(index: int, offset: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, offset, 4, "log's")


def old_request(*indexes: int, everything: bool = False) -> OffsetFetchRequest:
    return OffsetFetchRequest("g", None if everything else [OffsetFetchRequestTopic("t", list(indexes))])


def new_request(*indexes: int, everything: bool = False) -> OffsetFetchRequest:
    topics = None if everything else [OffsetFetchRequestTopics("t", ID, list(indexes))]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])


def test_old_answers_get_what_was_asked_for() -> None:
    rows = [OffsetFetchResponsePartition(0, 1, -1, "m"), OffsetFetchResponsePartition(1, -1, -1, "")]
    answer = overlay(
        old_request(0, 1),
        5,
        OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", rows)]),
        said(row(1, 9), row(2, 8)),
    )
    assert answer.topics[0].partitions == [
        OffsetFetchResponsePartition(0, 1, -1, "m"),
        OffsetFetchResponsePartition(1, 9, 4, "log's"),
    ]


def test_who_asks_for_all_gets_more_than_the_broker_has() -> None:
    answer = overlay(old_request(everything=True), 5, OffsetFetchResponse(), said(row(2, 8)))
    assert answer.topics == [OffsetFetchResponseTopic("t", [OffsetFetchResponsePartition(2, 8, 4, "log's")])]
    broker = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g")])
    answer = overlay(new_request(everything=True), 10, broker, said(unstable_row(2)))
    assert answer.groups[0].topics[0].topic_id == ID
    assert answer.groups[0].topics[0].partitions == [unstable_row(2)]


def test_topics_are_matched_by_name_or_id_as_the_answer_has_them() -> None:
    for version, name, topic_id in ((8, "t", bytes(16)), (10, "", ID)):
        rows = [OffsetFetchResponsePartitions(0, 1, -1, "m")]
        topics = [OffsetFetchResponseTopics("", b"\x01" * 16, []), OffsetFetchResponseTopics(name, topic_id, rows)]
        broker = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics)])
        answer = overlay(new_request(0), version, broker, said(row(0, 9)))
        assert answer.groups[0].topics[1].partitions == [row(0, 9)]


def test_what_the_broker_refuses_stays_refused() -> None:
    refused = OffsetFetchResponsePartition(0, -1, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    broker = OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [refused])])
    assert overlay(old_request(0), 5, broker, said(row(0, 9))).topics[0].partitions[0].committed_offset == -1
    for version, request in ((5, old_request(everything=True)), (8, new_request(everything=True))):
        wrong = ErrorCode.NOT_COORDINATOR
        broker = OffsetFetchResponse(error_code=wrong, groups=[OffsetFetchResponseGroup("g", error_code=wrong)])
        answer = overlay(request, version, broker, said(row(0, 9)))
        assert not answer.topics
        assert not answer.groups[0].topics


def test_other_groups_are_left_alone() -> None:
    for version, request in ((5, old_request(everything=True)), (8, new_request(everything=True))):
        broker = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g")])
        answer = overlay(request, version, broker, said(row(0, 9), group="other"))
        assert not answer.topics
        assert not answer.groups[0].topics


@pytest.mark.parametrize(("version", "whole"), [(1, 0), (2, LATER), (7, LATER)])
def test_a_group_that_cant_be_told_of_in_time_is_to_be_asked_for_again(version: int, whole: int) -> None:
    rows = [OffsetFetchResponsePartition(0, 1, -1, "m")]
    broker = OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", rows)])
    answer = overlay(old_request(0), version, broker, said(error=LATER))
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (whole, LATER)


def test_refusals_name_all_that_was_asked_for() -> None:
    answer = refused_fetch(new_request(0), 8, LATER)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", LATER)]
    assert refused_fetch(old_request(everything=True), 5, LATER) == OffsetFetchResponse(error_code=LATER)
    topics = [OffsetCommitRequestTopic("t", ID, [OffsetCommitRequestPartition(3, 9)])]
    refused = refused_commit(OffsetCommitRequest("g", topics=topics), LATER).topics[0]
    assert (refused.name, refused.topic_id, refused.partitions[0].partition_index) == ("t", ID, 3)
    assert refused.partitions[0].error_code == LATER


def test_what_is_asked_for_and_whether_there_is_anything_to_say() -> None:
    assert (groups_of(old_request(0), 7), groups_of(new_request(0), 8)) == (["g"], ["g"])
    assert says_something(said(row(0, 9)))
    assert says_something(said(error=LATER))
    assert not says_something(said())
