from math import inf

import pytest

from kproxy.dedup.digest import UNTIMED, Digest
from kproxy.dedup.origin import Origin
from kproxy.dedup.refused import Refused
from kproxy.dedup.unconfirmed import PendingProduce
from tests.dedup.wires import member


def made(letters: str | list[Digest], ms: int = 1000) -> list[Digest]:
    """Records, all made at the same time."""
    return [Digest(letter.encode(), ms) for letter in letters] if isinstance(letters, str) else letters


def refused(records: str | list[Digest], since: float, told_at: float | None = None) -> Refused:
    """A request that was refused at ``since``; its client has been told if ``told_at`` is given."""
    found = Refused.of(member(), since, PendingProduce([], 60.0), made(records))
    if told_at is not None:
        found.answer.at, found.answer.position = told_at, 1
    return found


def test_it_counts_as_answered_when_the_response_leaves_and_no_sooner() -> None:
    found = refused("a", 5.0)
    assert found.answered_at == inf
    assert found.crossed_by(99.0)
    assert not found.expired(99.0)
    found.answer.at, found.answer.position = 7.0, 20
    assert found.answered_at == 7.0
    assert (found.crossed_by(7.5), found.crossed_by(7.6)) == (True, False)
    assert (found.expired(8.0), found.expired(8.1)) == (False, True)


@pytest.mark.parametrize(
    ("opened_at", "used_at", "is_later"), [(3.0, 0.0, True), (3.0, 3.9, True), (3.0, 4.1, False), (4.5, 0.0, False)]
)
def test_a_connection_is_later_than_one_that_was_not_used_since_it_was_opened(
    opened_at: float, used_at: float, is_later: bool
) -> None:
    found = refused("a", 5.0)
    assert found.member is not None
    found.member.origin.opened_at = 4.0
    assert found.is_of_later(Origin(opened_at=opened_at, used_at=used_at)) == is_later
    assert not Refused.of(None, 5.0, PendingProduce([], 60.0), made("a")).is_of_later(Origin(opened_at=opened_at))


def test_after_the_end_of_the_connection_nobody_is_answered() -> None:
    found = refused("a", 5.0)
    assert found.member is not None
    found.member.end(6.0)
    assert found.answered_at == 5.0
    assert Refused.of(None, 5.0, PendingProduce([], 60.0), made("a")).answered_at == inf  # of no connection


@pytest.mark.parametrize("records", ["ab", "a", "abc", "xab", "xa"])
def test_its_retry_begins_with_its_records_or_continues_with_them_after_what_had_timed_out(records: str) -> None:
    assert refused("ab", 5.0, 5.0).in_retry(made(records))


@pytest.mark.parametrize("records", ["ab", "a", "abc", "xab", "xa", "", "b", "ac", "aA", "xac", "axb"])
def test_whatever_its_timestamps_a_retry_is_known_by_the_same_rule(records: str) -> None:
    found = refused("ab", 5.0, 5.0)
    again = [*made(records.partition("a")[0], 900), *made("".join(records.partition("a")[1:]), 1010)]
    assert found.is_repeated_by(again) is found.in_retry(made(records))


@pytest.mark.parametrize("records", ["", "b", "ac", "aA", "xac", "axb"])
def test_an_equal_record_before_another_one_is_no_retry(records: str) -> None:
    assert not refused("ab", 5.0, 5.0).in_retry(made(records))


@pytest.mark.parametrize(
    ("records", "timed", "untimed"),
    [("ab", True, True), ("abx", False, False), ("xa", True, False), ("xab", True, False), ("xabc", True, True)],
)
def test_a_part_of_it_after_other_records_is_its_retry_only_by_its_times(
    records: str, timed: bool, untimed: bool
) -> None:
    assert refused("abc", 5.0).in_retry(made(records)) is timed
    assert refused(made("abc", UNTIMED), 5.0).in_retry(made(records, UNTIMED)) is untimed


def test_what_comes_before_a_part_of_it_is_older_than_its_first_record() -> None:
    found = refused([*made("a", 1000), *made("bc", 2000)], 5.0)
    again = [*made("a", 1000), *made("b", 2000)]
    assert found.in_retry([*made("x", 1000), *again])
    assert not found.in_retry([*made("x", 1001), *again])


def test_what_cannot_be_read_has_no_retry() -> None:
    assert not refused("", 5.0, 5.0).in_retry(made("a"))
    assert not refused("", 5.0, 5.0).in_retry_of_another_time(made("a"), 9.0)


def test_of_a_long_request_the_beginning_is_compared() -> None:
    long = "".join(chr(200 + number) for number in range(1000))
    found = refused(long, 5.0, 5.0)
    assert found.in_retry(made(long))
    assert found.in_retry(made(long[:8] + "x"))
    assert not found.in_retry(made(long[:7] + "x"))


def test_of_several_that_were_refused_the_first_has_to_come_first() -> None:
    first = refused("a", 5.0, 5.0)
    second = refused("b", 5.2).following(first)
    third = refused("c", 5.3).following(second)
    for found in second, third, third.following(second):
        assert found.in_retry(made("a"))
        assert not found.in_retry(made("b"))
    assert second.following(refused("x", 5.1, 5.1)).in_retry(made("a"))  # what it was known to follow stays
    assert refused("b", 5.6).following(first).in_retry(made("b"))  # the first one was given up
    assert refused("b", 5.2).following(None).in_retry(made("b"))


@pytest.mark.parametrize(
    ("first", "again", "came", "retry"),
    [
        (made("ab"), made("ab", 1004), 9.0, False),
        (made("ab"), made("ab", 1299), 9.0, False),
        (made("ab"), made("ab", 1300), 9.0, True),
        (made("ab"), [*made("x", 900), *made("a", 1300)], 9.0, True),
        (made("ab"), [*made("x", 1300), *made("a", 1300)], 9.0, False),
        (made("ab"), made("ac", 1300), 9.0, False),
        (made("ab"), made("aA", 1300), 9.0, False),
        (made("ab"), made("ab", 7000), 5.29, False),
        (made("a", UNTIMED), made("a", 3), 9.0, True),
    ],
)
def test_a_retry_of_another_time_was_made_and_sent_after_the_refusal(
    first: list[Digest], again: list[Digest], came: float, retry: bool
) -> None:
    assert refused(first, 5.0, 5.25).in_retry_of_another_time(again, came) is retry


def test_of_several_the_time_of_the_first_counts() -> None:
    found = refused("b", 5.2, 5.9).following(refused("a", 5.0, 5.125))
    assert found.in_retry_of_another_time(made("a", 1175), 5.2)


def test_a_retry_that_is_refused_too_is_answered_when_its_own_refusal_is() -> None:
    first = refused("ab", 5.0, 5.0)
    again = refused("ab", 5.3, 5.3).following(first)
    made_later = made("a", 3000)  # it was sent after the first refused request, and repeated with it
    assert first.in_retry_of_another_time(made_later, 5.3)
    assert not again.in_retry_of_another_time(made_later, 5.3)
    assert again.in_retry(made("ab"))


def test_a_client_may_have_as_many_ready_as_it_was_seen_to_send() -> None:
    answer = PendingProduce([], 60.0)
    assert Refused.of(member(), 5.0, answer, made("a")).retry.left == 1
    assert Refused.of(member(), 5.0, answer, made("a"), 3).retry.left == 5


def test_what_is_refused_after_the_retry_of_another_one_was_accepted_does_not_follow_that() -> None:
    first = refused("a", 5.0, 5.0)
    assert refused("b", 5.2).following(first).retry is first.retry
    first.retry.end(5.1)
    assert refused("b", 5.2).following(first).in_retry(made("b"))
