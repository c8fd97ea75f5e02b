"""When an entry of the lane log expires, by which clock, and when its instance writes it again."""

import pytest

from kproxy.dedup.lane_retention import SPARE_PART, Retention

WEEK_MS = 604_800_000
DAY_MS = WEEK_MS / 7
TOPIC = {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime", "retention.ms": str(WEEK_MS)}
NOW_MS = 1_700_000_000_000


def retention(**changes: str | None) -> Retention:
    made = Retention(WEEK_MS)
    made.adopt({**TOPIC, **{name.replace("_", "."): value for name, value in changes.items()}})
    return made


def test_entries_expire_by_the_brokers_time_as_they_said_last() -> None:
    made = retention()
    assert made.expires
    assert made.oldest_ms(5.0, NOW_MS) == -1  # no broker has said it yet
    assert made.brokers_ms(5.0) == 5_000
    made.saw(NOW_MS, 10.0)
    assert made.brokers_ms(10.0) == NOW_MS
    assert made.oldest_ms(10.0, NOW_MS) == NOW_MS - WEEK_MS
    assert made.oldest_ms(12.0, NOW_MS + 5_000) == NOW_MS - WEEK_MS + 2_000


def test_what_is_older_than_what_is_known_tells_nothing() -> None:
    made = retention()
    for time_ms in (-1, NOW_MS, NOW_MS - 1, -1):
        made.saw(time_ms, 0.0)
    made.saw(NOW_MS + 999, 1.0)
    assert made.oldest_ms(1.0, 2 * NOW_MS) == NOW_MS + 1_000 - WEEK_MS
    made.saw(NOW_MS + 1_001, 1.0)
    assert made.oldest_ms(1.0, 2 * NOW_MS) == NOW_MS + 1_001 - WEEK_MS


@pytest.mark.parametrize(("wall_ms", "oldest_ms"), [(NOW_MS - 5, NOW_MS - WEEK_MS - 5), (NOW_MS + 5, NOW_MS - WEEK_MS)])
def test_a_clock_that_is_wrong_hides_nothing(wall_ms: int, oldest_ms: int) -> None:
    made = retention()
    made.saw(NOW_MS, 0.0)
    assert made.oldest_ms(0.0, wall_ms) == oldest_ms


def test_the_first_moment_that_can_expire() -> None:
    made = retention()
    for at_ms, oldest_ms in ((WEEK_MS - 1, -1), (WEEK_MS, 0), (WEEK_MS + 1, 1)):
        made.saw(at_ms, 0.0)
        assert made.oldest_ms(0.0, NOW_MS) == oldest_ms


def test_before_it_knows_the_topic_nothing_expires() -> None:
    made = Retention(WEEK_MS)
    made.saw(NOW_MS, 0.0)
    assert (made.expires, made.oldest_ms(0.0, NOW_MS)) == (False, -1)


def test_a_machine_without_a_clock_takes_all_entries() -> None:
    made = retention()
    made.saw(NOW_MS, 0.0)
    assert made.oldest_ms(0.0, 0) == -1


@pytest.mark.parametrize(
    "changes",
    [
        {"cleanup_policy": "compact"},
        {"cleanup_policy": None},
        {"message_timestamp_type": "CreateTime"},
        {"message_timestamp_type": None},
        {"retention_ms": "-1"},
        {"retention_ms": None},
    ],
)
def test_entries_expire_only_where_the_broker_deletes_and_stamps_them(changes: dict[str, str | None]) -> None:
    made = retention(**changes)
    made.saw(NOW_MS, 0.0)
    assert not made.expires
    assert made.oldest_ms(0.0, NOW_MS) == -1
    assert made.period_ms == WEEK_MS


@pytest.mark.parametrize(
    ("retention_ms", "period_ms"), [(WEEK_MS - 1, WEEK_MS - 1), (WEEK_MS, WEEK_MS), (WEEK_MS + 1, WEEK_MS)]
)
def test_the_shorter_of_option_and_topic_says_when_to_write_again(retention_ms: int, period_ms: int) -> None:
    made = retention(retention_ms=str(retention_ms))
    made.saw(NOW_MS, 0.0)
    assert made.period_ms == period_ms
    assert made.oldest_ms(0.0, NOW_MS) == NOW_MS - retention_ms


def test_a_topic_that_deletes_by_the_instances_times_is_written_in_time_too() -> None:
    assert retention(message_timestamp_type="CreateTime", retention_ms="7000").period_ms == 7_000


def test_an_entry_is_written_again_long_before_it_expires_and_its_lane_not_used_to_the_end() -> None:
    made = retention()
    assert made.renewed_after_s(0.0) == pytest.approx(4 * DAY_MS / 1000)
    assert made.renewed_after_s(1.0) == pytest.approx(5 * DAY_MS / 1000)
    ends_s = made.used_for_s + made.pause_s  # it is found at the next look
    assert ends_s == pytest.approx((WEEK_MS - WEEK_MS / SPARE_PART) / 1000)
    assert made.renewed_after_s(1.0) + 7 * made.pause_s == pytest.approx(made.used_for_s)
    assert made.pause_s == pytest.approx(10_800)
