"""Which application a producer or a consumer belongs to, and what its consumer is answered."""

from typing import Any

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproxy.codec._generated.leave_group import LeaveGroupRequest
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kproxy.codec.header import encode_request
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.applications import (
    CommitRule,
    CommitRules,
    committed,
    has_left,
    offsets_committed_by,
    watch,
)

RULES = CommitRules((CommitRule("etl-*"), CommitRule("out*", group="g-?"), CommitRule("copy", consumer="reader")))


class Told:
    """An application that records its calls; it is that of group g."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def of_consumer(self, client_id: str, group_id: str) -> Any:
        return self if group_id == "g" else None

    def joins(self, connection: int, *, rewinds: bool) -> None:
        self.heard.append(("joins", connection, rewinds))

    def leaves(self) -> None:
        self.heard.append("leaves")

    def fetches(self) -> None:
        self.heard.append("fetches")


def hears(message: Message, version: int) -> tuple[list[object], Any]:
    """The calls for a request, and what is to be asked."""
    told = Told()
    frame = memoryview(bytearray(encode_request(message, version, 1, "c")))[4:]
    ask = watch(told, "c", 7, frame, unbounded())
    return told.heard, ask


def commit_request(**more: Any) -> OffsetCommitRequest:
    rows = [OffsetCommitRequestPartition(3, 42, 5, committed_metadata="m")]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic("t", partitions=rows)], **more)


def test_rules_name_applications_in_their_order() -> None:
    assert [RULES.of_producer(name) for name in ("etl-1", "out-7", "copy", "other")] == ["etl-1", "out*", "copy", None]
    assert RULES.of_consumer("any", "g-1") == "out*"
    assert RULES.of_consumer("any", "g-12") is None
    assert RULES.of_consumer("reader", "group") == "copy"
    assert RULES.of_consumer("etl-1", "group") == "etl-1"


@pytest.mark.parametrize(("protocol", "rewinds"), [("range", True), ("cooperative-sticky", False)])
@pytest.mark.parametrize("version", [0, 5, 9])
def test_a_consumer_that_joins_begins_again_unless_it_keeps_its_partitions(
    protocol: str, rewinds: bool, version: int
) -> None:
    request = JoinGroupRequest(group_id="g", protocols=[JoinGroupRequestProtocol(protocol, b"")])
    assert hears(request, version) == ([("joins", 7, rewinds)], None)


@pytest.mark.parametrize("version", [0, 5, 9])
def test_other_groups_are_nobodys(version: int) -> None:
    assert hears(JoinGroupRequest(group_id="h"), version) == ([], None)


@pytest.mark.parametrize("version", [1, 7, 8, 9])
def test_who_asks_for_offsets_is_heard(version: int) -> None:
    request = OffsetFetchRequest(group_id="g", topics=[])
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("h"), OffsetFetchRequestGroup("g")])
    assert hears(request, version) == (["fetches"], None)


@pytest.mark.parametrize("version", [0, 2])
def test_who_leaves_is_heard(version: int) -> None:
    assert hears(LeaveGroupRequest("g", "m"), version) == (["leaves"], None)


@pytest.mark.parametrize("version", [0, 2, 7, 9])
def test_a_commit_is_the_applications(version: int) -> None:
    heard, ask = hears(commit_request(), version)
    assert heard == []
    assert (ask.connection, ask.request.group_id) == (7, "g")


def test_offsets_are_recorded_with_the_member_that_commits_them() -> None:
    request = commit_request(generation_id_or_member_epoch=4, member_id="m", group_instance_id="i")
    found = offsets_committed_by(request, {})
    assert (found.group_id, found.generation_id, found.member_id, found.group_instance_id) == ("g", 4, "m", "i")
    (topic,) = found.topics
    (row,) = topic.partitions
    assert (topic.name, row.index, row.offset, row.leader_epoch, row.metadata) == ("t", 3, 42, 5, "m")


def test_topics_by_id_are_recorded_by_their_names() -> None:
    request = commit_request()
    request.topics[0].name, request.topics[0].topic_id = "", b"i" * 16
    assert [topic.name for topic in offsets_committed_by(request, {b"i" * 16: "t"}).topics] == ["t"]
    assert offsets_committed_by(request, {}).topics == []


@pytest.mark.parametrize("name", ["t" * 250, "t/1"])
def test_offsets_of_a_topic_that_there_cannot_be_are_refused_and_not_recorded(name: str) -> None:
    request = commit_request()
    request.topics.append(request.topics[0].replaced(name=name))
    assert [topic.name for topic in offsets_committed_by(request, {}).topics] == ["t"]
    answer: Any = committed(request, ErrorCode.NONE)
    found = [topic.partitions[0].error_code for topic in answer.topics]
    assert found == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.ILLEGAL_GENERATION),
        (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.ILLEGAL_GENERATION),
        (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_after_any_error_the_consumer_begins_again(error: ErrorCode, told: ErrorCode) -> None:
    answer: Any = committed(commit_request(), error)
    assert [
        (topic.name, row.partition_index, row.error_code) for topic in answer.topics for row in topic.partitions
    ] == [("t", 3, told)]


def test_a_member_that_has_to_rejoin_leaves_unless_there_is_nothing_to_leave() -> None:
    member = commit_request(member_id="m")
    assert not has_left(member, ErrorCode.TRANSACTION_ABORTABLE)
    assert has_left(member, ErrorCode.UNKNOWN_MEMBER_ID)
    assert has_left(commit_request(), ErrorCode.TRANSACTION_ABORTABLE)
    assert has_left(commit_request(member_id="m", group_instance_id="i"), ErrorCode.TRANSACTION_ABORTABLE)
