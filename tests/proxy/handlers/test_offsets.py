"""ListOffsets, OffsetCommit and OffsetFetch: the oldest versions mean something else."""

from typing import Any

import pytest

from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
    ListOffsetsResponseListOffsetsPartitionResponse,
    ListOffsetsResponseListOffsetsTopicResponse,
)
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
from tests.proxy.playbook import Play

LATEST, EARLIEST = -1, -2

#: Of partition 0 to 3: the log from 100 to 900, a record for each ms from 0 on; partition 3 does not exist.
LOG = {0: (100, 900), 1: (0, 50), 2: (70, 70)}


def find(partition: int, timestamp: int) -> tuple[int, int]:
    """What a broker says: error, offset."""
    if partition not in LOG:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
    start, end = LOG[partition]
    if timestamp in (LATEST, EARLIEST):
        return 0, end if timestamp == LATEST else start
    return 0, start + timestamp if start + timestamp < end else -1


def broker(request: ListOffsetsRequest) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            error, offset = find(asked.partition_index, asked.timestamp)
            rows.append(
                ListOffsetsResponseListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, error_code=error, offset=offset
                )
            )
        response.topics.append(ListOffsetsResponseListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return response


def ask(*partitions: tuple[int, int, int]) -> tuple[dict[int, tuple[int, list[int]]], list[Any]]:
    """The answer to ListOffsets v0 for (partition, time, most offsets), and what the broker was asked for it."""
    play = Play()
    rows = [ListOffsetsRequestListOffsetsPartition(partition_index=p, timestamp=t, max_num_offsets=n)
            for p, t, n in partitions]  # fmt: skip
    play.ask(ListOffsetsRequest(topics=[ListOffsetsRequestListOffsetsTopic(name="t", partitions=rows)]), 0)
    asked = []
    while sent := play.upstream():
        ((version, correlation_id, request),) = sent
        assert version == 1
        asked.append([(p.partition_index, p.timestamp) for topic in request.topics for p in topic.partitions])
        play.reply(broker(request), version, correlation_id)
    answer = play.answer()
    assert play.session.idle
    return {p.partition_index: (p.error_code, p.old_style_offsets) for t in answer.topics for p in t.partitions}, asked


@pytest.mark.parametrize(
    ("time", "most", "wanted"),
    [
        (LATEST, 1, [900]),
        (LATEST, 2, [900, 100]),
        (LATEST, 100, [900, 100]),
        (LATEST, 0, []),
        (LATEST, -5, []),
        (EARLIEST, 1, [100]),
        (EARLIEST, 9, [100]),
        (50, 1, [150]),
        (50, 2, [150, 100]),
        (0, 2, [100]),
        (5000, 1, [900]),
        (5000, 2, [900, 100]),
    ],
)
def test_list_offsets_v0_is_a_list_newest_first(time: int, most: int, wanted: list[int]) -> None:
    """As a 2.8 broker whose log is one segment."""
    answer, _ = ask((0, time, most))
    assert answer == {0: (0, wanted)}


def test_an_empty_log_has_one_offset() -> None:
    assert ask((2, LATEST, 5))[0] == {2: (0, [70])}


def test_only_what_is_needed_is_asked_again() -> None:
    answer, asked = ask((0, 50, 2), (1, 5000, 1), (2, EARLIEST, 3), (3, LATEST, 2))
    assert asked == [[(0, 50), (1, 5000), (2, EARLIEST), (3, LATEST)], [(1, LATEST)], [(0, EARLIEST), (3, EARLIEST)]]
    assert answer == {
        0: (0, [150, 100]),
        1: (0, [50]),
        2: (0, [70]),
        3: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    }
    assert len(ask((0, LATEST, 1), (1, 3, 1))[1]) == 1


@pytest.mark.parametrize("version", [1, 2, 5, 9])
def test_later_list_offsets_are_relayed(version: int) -> None:
    play = Play()
    play.ask(ListOffsetsRequest(), version)
    asked, correlation_id, _ = play.sent()
    assert asked == version
    play.reply(ListOffsetsResponse(), version, correlation_id)
    assert play.answer() == ListOffsetsResponse()


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
    assert (errand.group_id, errand.exchange.upstream_version) == ("g", 2)
    assert errand.request.encode(2)
    play.session.errand_done(errand, COMMITTED)
    assert play.answer() == COMMITTED


def test_offset_fetch_v0_goes_to_the_coordinator_and_nothing_committed_is_an_error() -> None:
    play = Play()
    play.ask(OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 1])]), 0)
    (errand,) = play.session.errands
    rows = [OffsetFetchResponsePartition(0, 5, -1, "m", 0), OffsetFetchResponsePartition(1, -1, -1, "", 0)]
    play.session.errand_done(errand, OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", rows)]))
    told = [(row.committed_offset, row.error_code) for row in play.answer().topics[0].partitions]
    assert told == [(5, 0), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_an_errand_that_fails_ends_the_connection_in_its_turn() -> None:
    play = Play()
    play.ask(commit(), 0)
    play.session.errand_done(play.session.errands[0], None)
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
