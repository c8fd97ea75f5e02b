"""Requests about groups' offsets: what waits for the transaction log, and what the oldest versions mean."""

import pytest

from kproxy.codec._generated.delete_groups import DeleteGroupsRequest
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproxy.codec._generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kproxy.codec.messages import ErrorCode, Message, response_class
from kproxy.proxy.coordinator_requests import BeforeOffsetChange, BeforeOffsetFetch, GroupRequest, UnstableOffsets
from tests.proxy.playbook import Play, configure


def commit() -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=1, committed_offset=9, committed_metadata="m")
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[row])])


COMMITTED = OffsetCommitResponse(
    topics=[OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(1, 0)])]
)


DELETE_GROUPS = DeleteGroupsRequest(["g", "h"])
DELETE_OFFSETS = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])])


def test_offset_commit_v1_of_a_simple_consumer_is_committed() -> None:
    """Finding 4: sarama 1.19 and others; generation -1 and no member id are legal, the timestamp is left out."""
    play = Play()
    request = commit()
    request.topics[0].partitions[0].commit_timestamp = 1_500_000_000_000
    play.ask(request, 1)
    version, correlation_id, sent = play.sent()
    assert version == 2
    assert (sent.group_id, sent.generation_id_or_member_epoch, sent.member_id) == ("g", -1, "")
    assert sent.topics[0].partitions[0].committed_offset == 9
    play.reply(COMMITTED, version, correlation_id)
    assert play.answer() == COMMITTED


def test_offset_commit_v0_goes_to_the_groups_coordinator() -> None:
    """Version 0 meant ZooKeeper, at any broker."""
    play = Play()
    play.ask(commit(), 0)
    assert not play.session.to_upstream
    (coordinator_call,) = play.session.commands
    assert isinstance(coordinator_call.ask, GroupRequest)
    assert (coordinator_call.ask.group_id, coordinator_call.exchange.upstream_version) == ("g", 2)
    assert coordinator_call.ask.request.encode(2)
    play.session.coordinator_answered(coordinator_call, COMMITTED, 2.0)
    assert play.answer() == COMMITTED


def test_offset_fetch_v0_goes_to_the_coordinator_and_nothing_committed_is_an_error() -> None:
    play = Play()
    play.ask(OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 1])]), 0)
    (coordinator_call,) = play.session.commands
    rows = [OffsetFetchResponsePartition(0, 5, -1, "m", 0), OffsetFetchResponsePartition(1, -1, -1, "", 0)]
    play.session.coordinator_answered(
        coordinator_call, OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", rows)]), 2.0
    )
    told = [(row.committed_offset, row.error_code) for row in play.answer().topics[0].partitions]
    assert told == [(5, 0), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_an_errand_that_fails_ends_the_connection_in_its_turn() -> None:
    play = Play()
    play.ask(commit(), 0)
    play.session.coordinator_answered(play.session.commands[0], None, 2.0)
    assert play.link.finished


@pytest.mark.parametrize("version", [1, 2, 5])
def test_offset_fetch_from_v1_on_says_minus_one_without_an_error(version: int) -> None:
    play = Play()
    play.ask(OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [1])]), version)
    asked, correlation_id, _ = play.sent()
    assert asked == version
    row = OffsetFetchResponsePartition(1, -1, -1, "", 0)
    play.reply(OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [row])]), asked, correlation_id)
    assert play.answer().topics[0].partitions[0].error_code == 0


def following() -> Play:
    """A session where offsets may be in kproxy's transaction log."""
    play = Play()
    configure(play.ctx, follows_groups=True)
    return play


class TestWithALog:
    """Where offsets may be in kproxy's transaction log, the log is asked first."""

    def test_a_commit_waits_for_what_was_committed_before(self) -> None:
        play = following()
        play.ask(commit(), 7)
        assert not play.session.to_upstream
        (coordinator_call,) = play.session.commands
        assert coordinator_call.ask == BeforeOffsetChange(["g"])
        play.session.coordinator_answered(coordinator_call, OffsetFetchResponse(), 2.0)
        version, correlation_id, sent = play.sent()
        assert (version, sent.group_id) == (7, "g")
        play.reply(COMMITTED, version, correlation_id)
        assert play.answer() == COMMITTED

    def test_a_commit_that_cant_be_put_in_order_is_refused(self) -> None:
        play = following()
        play.ask(commit(), 7)
        later = OffsetFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        play.session.coordinator_answered(play.session.commands[0], later, 2.0)
        assert not play.session.to_upstream
        assert play.answer().topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @pytest.mark.parametrize(
        ("request_", "version", "groups"),
        [(DELETE_GROUPS, version, ["g", "h"]) for version in (0, 1, 2)] + [(DELETE_OFFSETS, 0, ["g"])],
    )
    def test_a_deletion_waits_for_what_was_committed_before(
        self, request_: Message, version: int, groups: list[str]
    ) -> None:
        play = following()
        play.ask(request_, version)
        assert not play.session.to_upstream
        (coordinator_call,) = play.session.commands
        assert coordinator_call.ask == BeforeOffsetChange(groups)
        play.session.coordinator_answered(coordinator_call, OffsetFetchResponse(), 2.0)
        asked, correlation_id, sent = play.sent()
        assert (asked, sent) == (version, request_)
        answer = response_class(request_.API_KEY)()
        play.reply(answer, version, correlation_id)
        assert play.answer() == answer

    def test_a_deletion_that_cant_be_put_in_order_is_refused(self) -> None:
        later = OffsetFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for request in (DELETE_GROUPS, DELETE_OFFSETS):
            play = following()
            play.ask(request, 0)
            play.session.coordinator_answered(play.session.commands[0], later, 2.0)
            assert not play.session.to_upstream
            answer = play.answer()
            errors = [row.error_code for row in answer.results] if request is DELETE_GROUPS else [answer.error_code]
            assert set(errors) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

    @pytest.mark.parametrize("request_", [DELETE_GROUPS, DELETE_OFFSETS])
    def test_a_deletion_is_relayed_where_no_offset_can_be_in_the_log(self, request_: Message) -> None:
        play = Play()
        play.ask(request_, 0)
        assert play.sent()[2] == request_

    def test_v0_goes_to_the_coordinator_after_it(self) -> None:
        play = following()
        play.ask(commit(), 0)
        play.session.coordinator_answered(play.session.commands.pop(), OffsetFetchResponse(), 2.0)
        (coordinator_call,) = play.session.commands
        assert isinstance(coordinator_call.ask, GroupRequest)
        play.session.coordinator_answered(coordinator_call, COMMITTED, 3.0)
        assert play.answer() == COMMITTED

    @pytest.mark.parametrize(
        ("version", "stable", "unstable"),
        [(5, False, UnstableOffsets.WAIT), (7, True, UnstableOffsets.TELL), (7, False, UnstableOffsets.LAST)],
    )
    def test_a_fetch_asks_the_log_and_then_the_broker(
        self, version: int, stable: bool, unstable: UnstableOffsets
    ) -> None:
        play = following()
        request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])], require_stable=stable)
        play.ask(request, version)
        (coordinator_call,) = play.session.commands
        named = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])], require_stable=True)
        assert coordinator_call.ask == BeforeOffsetFetch(["g"], unstable, False, [named])
        rows = [OffsetFetchResponsePartitions(0, 9, 4, "log's")]
        said = [OffsetFetchResponseGroup("g", [OffsetFetchResponseTopics("t", partitions=rows)])]
        play.session.coordinator_answered(coordinator_call, OffsetFetchResponse(groups=said), 2.0)
        asked, correlation_id, _ = play.sent()
        broker = OffsetFetchResponsePartition(0, 5, -1, "m", 0)
        play.reply(OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [broker])]), asked, correlation_id)
        told = play.answer().topics[0].partitions[0]
        assert (told.committed_offset, told.metadata) == (9, "log's")

    def test_a_fetch_of_a_log_that_cant_be_read_is_to_be_repeated(self) -> None:
        play = following()
        play.ask(OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])]), 5)
        later = OffsetFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        play.session.coordinator_answered(play.session.commands[0], later, 2.0)
        assert play.answer().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
