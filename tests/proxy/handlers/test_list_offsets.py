"""ListOffsets: v0 means something else, and who reads committed data only must not see further than that."""

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
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.handlers.base import Stable
from kproxy.txn.verdict import NothingKnown
from tests.proxy.playbook import KAFKA_44, Play, configure

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
    """The response to ListOffsets v0 for (partition, time, most offsets), and what the broker was asked for it."""
    play = Play()
    rows = [ListOffsetsRequestListOffsetsPartition(partition_index=p, timestamp=t, max_num_offsets=n)
            for p, t, n in partitions]  # fmt: skip
    play.ask(ListOffsetsRequest(topics=[ListOffsetsRequestListOffsetsTopic(name="t", partitions=rows)]), 0)
    asked = []
    while sent := play.upstream():
        ((version, correlation_id, request),) = sent
        assert (version, request.isolation_level) == (2, 1)
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


@pytest.mark.parametrize(("version", "level"), [(2, 1), (5, 0), (9, 1)])
def test_without_a_transaction_log_later_versions_are_relayed(version: int, level: int) -> None:
    play = Play()
    play.ask(ListOffsetsRequest(isolation_level=level), version)
    assert play.link.expected[0].handler is None
    asked, correlation_id, _ = play.sent()
    assert asked == version
    play.reply(ListOffsetsResponse(), version, correlation_id)
    assert play.answer() == ListOffsetsResponse()


# -- read_committed

MAX_TIMESTAMP = -3


def committed(version: int, *partitions: tuple[int, int], isolation: int = 1) -> Play:
    """A client that asked for times of partitions, whose broker has answered."""
    play = Play()
    configure(play.ctx, decisions=NothingKnown())
    rows = [ListOffsetsRequestListOffsetsPartition(partition_index=p, timestamp=t) for p, t in partitions]
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation if version >= 2 else 0,
        topics=[ListOffsetsRequestListOffsetsTopic(name="t", partitions=rows)],
    )
    play.ask(request, version)
    asked, correlation_id, sent = play.sent()
    assert (asked, sent.isolation_level) == (max(version, 2), isolation)
    play.reply(broker(sent), asked, correlation_id)
    return play


def stable(play: Play, told: dict[int, int | None]) -> dict[int, tuple[int, int]]:
    """The response once it is known how far partitions are decided: error and offset."""
    (waiting,) = play.session.commands
    play.session.commands.clear()
    assert isinstance(waiting.reason, Stable)
    assert waiting.reason.question.ends.keys() == {("t", partition) for partition in told}
    assert play.session.resume(waiting, 3.0, {("t", partition): offset for partition, offset in told.items()}) is None
    rows = play.answer().topics[0].partitions
    return {row.partition_index: (row.error_code, row.offset) for row in rows}


@pytest.mark.parametrize("version", [1, 2, 5, 9])
def test_the_end_is_where_something_is_undecided(version: int) -> None:
    play = committed(version, (0, LATEST), (1, LATEST), (2, EARLIEST), (3, LATEST))
    assert stable(play, {0: 300, 1: 50}) == {0: (0, 300), 1: (0, 50), 2: (0, 70), 3: (3, -1)}


def test_what_a_time_finds_after_that_is_not_there() -> None:
    play = committed(5, (0, 50), (1, 20))
    (waiting,) = play.session.commands
    assert waiting.reason.question.ends == {("t", 0): 151, ("t", 1): 21}  # type: ignore[union-attr]
    assert stable(play, {0: 150, 1: 21}) == {0: (0, -1), 1: (0, 20)}


@pytest.mark.parametrize(
    ("version", "error"), [(1, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_where_it_cannot_be_known_clients_try_again(version: int, error: int) -> None:
    assert stable(committed(version, (0, LATEST)), {0: None}) == {0: (error, -1)}


def test_who_reads_everything_is_relayed() -> None:
    play = committed(5, (0, LATEST), isolation=0)
    assert play.answer().topics[0].partitions[0].offset == 900


def test_nothing_found_needs_no_question() -> None:
    play = committed(5, (0, 100_000), (3, LATEST))
    assert [row.offset for row in play.answer().topics[0].partitions] == [-1, -1]


def test_v0_gets_the_stable_end() -> None:
    play = Play()
    configure(play.ctx, decisions=NothingKnown())
    rows = [
        ListOffsetsRequestListOffsetsPartition(partition_index=0, timestamp=LATEST, max_num_offsets=2),
        ListOffsetsRequestListOffsetsPartition(partition_index=1, timestamp=20, max_num_offsets=1),
    ]
    play.ask(ListOffsetsRequest(topics=[ListOffsetsRequestListOffsetsTopic(name="t", partitions=rows)]), 0)
    while not play.session.to_client:
        for version, correlation_id, request in play.upstream():
            play.reply(broker(request), version, correlation_id)
        waiting = play.commands()
        for each in waiting:
            assert isinstance(each.reason, Stable)
            play.session.resume(each, 3.0, {place: 10 for place in each.reason.question.ends} | {("t", 0): 700})
    rows = play.answer().topics[0].partitions
    assert [row.old_style_offsets for row in rows] == [[700, 100], [10]]


def test_a_broker_from_before_isolation_levels_is_asked_without() -> None:
    play = Play(served={**KAFKA_44, ApiKey.LIST_OFFSETS: (0, 1)})
    rows = [ListOffsetsRequestListOffsetsPartition(partition_index=0, timestamp=LATEST)]
    play.ask(ListOffsetsRequest(topics=[ListOffsetsRequestListOffsetsTopic(name="t", partitions=rows)]), 1)
    version, correlation_id, request = play.sent()
    assert version == 1
    play.reply(broker(request), version, correlation_id)
    assert play.answer().topics[0].partitions[0].offset == 900
