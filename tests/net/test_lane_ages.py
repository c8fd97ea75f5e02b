"""From which time on entries count, and from which offset on they are read; ``test_lane_retention`` has brokers."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.lane_retention import Retention
from kproxy.net.broker_log_questions import LATEST
from kproxy.net.brokers.leaders import Told
from kproxy.net.lane_ages import LaneAges
from kproxy.net.lane_topic import TOPIC
from kproxy.net.own_topic import Refused, TopicDeleted

pytestmark = pytest.mark.idle_clock

DELETED = {"cleanup.policy": "compact,delete", "retention.ms": "7000", "message.timestamp.type": "LogAppendTime"}
NOW_MS = 1_000_000_000
FIRST, SECOND = (TOPIC, 0), (TOPIC, 1)
ENDS = {FIRST: 20, SECOND: 30}
NEWEST = -3


class Brokers:
    """Leaders whose answers are given, by the timestamp that is asked for."""

    def __init__(self, answers: Mapping[int, Mapping[TopicPartition, Told[int]]]) -> None:
        self.answers = answers
        self.asked: list[int] = []

    async def ask(self, places: Any, question: Any) -> Mapping[TopicPartition, Told[int]]:
        [timestamp] = {row.timestamp for topic in question.request(list(places)).topics for row in topic.partitions}
        self.asked.append(timestamp)
        return self.answers[timestamp]


def ages(
    settings: Mapping[str, str], *, wall_s: float = NOW_MS / 1000, brokers: Brokers | None = None
) -> tuple[LaneAges, Brokers]:
    """Those of a topic with these settings, at a machine with this time."""
    retention, asked = Retention(7_000), brokers or Brokers({})
    retention.adopt(settings)
    leaders: Any = asked
    return LaneAges(retention, leaders, lambda: wall_s), asked


@pytest.mark.parametrize(("wall_s", "since_ms"), [(999_999.5, NOW_MS - 7_500), (1_000_000.5, NOW_MS - 7_000)])
async def test_entries_count_from_the_retention_before_the_earlier_of_both_clocks(wall_s: float, since_ms: int) -> None:
    known, _ = ages(DELETED, wall_s=wall_s)
    known.saw(NOW_MS)
    assert known.since_ms == since_ms


@pytest.mark.parametrize(("wall_s", "age_s"), [(999_999.5, 2), (1_000_000.5, 2.5)])
async def test_an_entry_is_as_old_as_the_later_of_both_clocks_says(wall_s: float, age_s: float) -> None:
    known, _ = ages(DELETED, wall_s=wall_s)
    known.saw(NOW_MS)
    assert known.age_s(NOW_MS - 2_000) == age_s
    assert known.age_s(NOW_MS + 60_000) == 0  # by a broker whose clock is ahead
    await trio.sleep(10)
    assert known.age_s(NOW_MS) == 10


async def test_what_has_not_expired_is_read_and_of_a_partition_without_it_nothing() -> None:
    newest, first = {FIRST: Told(0, NOW_MS), SECOND: Told(0, -1)}, {FIRST: Told(0, 12), SECOND: Told(0, -1)}
    known, brokers = ages(DELETED, brokers=Brokers({NEWEST: newest, NOW_MS - 7_000: first}))
    assert await known.starts(ENDS) == {FIRST: 12, SECOND: 30}
    first[SECOND] = Told(0, 0)  # nothing of it has expired
    assert await known.starts(ENDS) == {FIRST: 12, SECOND: 0}
    assert brokers.asked == [NEWEST, NOW_MS - 7_000] * 2


async def test_nothing_is_asked_where_entries_do_not_expire() -> None:
    known, brokers = ages({"cleanup.policy": "compact"})
    assert await known.starts(ENDS) == {}
    assert brokers.asked == []


async def test_a_time_beside_an_error_is_not_believed_and_without_a_time_everything_is_read() -> None:
    """The offset for an unknown time would be that of the end, after the leases in use."""
    error = Told(ErrorCode.UNKNOWN_SERVER_ERROR, NOW_MS)
    known, brokers = ages(DELETED, brokers=Brokers({NEWEST: {FIRST: error, SECOND: Told(0, -1)}}))
    assert await known.starts(ENDS) == {}
    assert brokers.asked == [NEWEST]


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, OSError, "no leader answered"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, OSError, "error 6"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TopicDeleted, TOPIC),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Refused, "ListOffsets"),
    ],
)
async def test_an_offset_that_is_unknown_is_an_error(error: ErrorCode, expected: type[Exception], text: str) -> None:
    known, _ = ages({}, brokers=Brokers({LATEST: {FIRST: Told(0, 5), SECOND: Told(error, None)}}))
    with pytest.raises(expected, match=text):
        await known.offsets([FIRST, SECOND], LATEST)
