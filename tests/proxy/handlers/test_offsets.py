"""OffsetCommit and OffsetFetch: the oldest versions mean something else."""

import pytest

from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kproxy.codec.messages import ErrorCode
from kproxy.proxy.asks import GroupAsk
from tests.proxy.playbook import Play


def commit() -> OffsetCommitRequest:
    row = OffsetCommitRequestPartition(partition_index=1, committed_offset=9, committed_metadata="m")
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[row])])


COMMITTED = OffsetCommitResponse(
    topics=[OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(1, 0)])]
)


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
    assert not play.session.link.to_upstream
    (errand,) = play.session.errands
    assert isinstance(errand.ask, GroupAsk)
    assert (errand.ask.group_id, errand.exchange.upstream_version) == ("g", 2)
    assert errand.ask.request.encode(2)
    play.session.errand_done(errand, COMMITTED, 2.0)
    assert play.answer() == COMMITTED


def test_offset_fetch_v0_goes_to_the_coordinator_and_nothing_committed_is_an_error() -> None:
    play = Play()
    play.ask(OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 1])]), 0)
    (errand,) = play.session.errands
    rows = [OffsetFetchResponsePartition(0, 5, -1, "m", 0), OffsetFetchResponsePartition(1, -1, -1, "", 0)]
    play.session.errand_done(errand, OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", rows)]), 2.0)
    told = [(row.committed_offset, row.error_code) for row in play.answer().topics[0].partitions]
    assert told == [(5, 0), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_an_errand_that_fails_ends_the_connection_in_its_turn() -> None:
    play = Play()
    play.ask(commit(), 0)
    play.session.errand_done(play.session.errands[0], None, 2.0)
    assert play.session.link.finished


@pytest.mark.parametrize("version", [1, 2, 5])
def test_offset_fetch_from_v1_on_says_minus_one_without_an_error(version: int) -> None:
    play = Play()
    play.ask(OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [1])]), version)
    asked, correlation_id, _ = play.sent()
    assert asked == version
    row = OffsetFetchResponsePartition(1, -1, -1, "", 0)
    play.reply(OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [row])]), asked, correlation_id)
    assert play.answer().topics[0].partitions[0].error_code == 0
