"""Records under a raised epoch, and those in the log under earlier ones."""

import pytest

from kproxy.dedup.digest import UNTIMED, Digest, Digests
from kproxy.dedup.kept.raised import Matched, OldRecord, align, count_written


def digest(name: str, time: int = 1) -> Digest:
    return Digest(name.encode().ljust(16), time)


def log(names: str, first: int = 10, time: int = 1) -> list[OldRecord]:
    """A record for each letter; a space is another producer's."""
    return [OldRecord(first + at, digest(one, time)) for at, one in enumerate(names) if one != " "]


def batch(names: str, time: int = 1) -> Digests:
    return Digests.of(digest(one, time) for one in names)


@pytest.mark.parametrize(
    ("sent", "held", "found"),
    [
        ("abc", "abc", Matched(3, 10, 13)),
        ("ab", "abc", Matched(2, 10, 12)),
        ("bc", "abc", Matched(2, 11, 13)),  # it has a success for the first one
        ("abcd", "abc", Matched(3, 10, 13)),
        ("ac", "abc", Matched(2, -1, 13)),  # it has given one up
        ("ab", "a b", Matched(2, -1, 13)),
        ("d", "abc", Matched()),
        ("da", "abc", Matched()),  # what follows a new record is new
        ("ba", "ab", Matched(1, 11, 12)),
        ("aaa", "aa", Matched(2, 10, 12)),  # each one in the log is repeated once
        ("a", "", Matched()),
    ],
)
def test_the_first_records_that_are_in_the_log_in_that_order(sent: str, held: str, found: Matched) -> None:
    assert align(batch(sent), log(held)) == found


def test_an_equal_record_of_another_time_is_new() -> None:
    assert align(batch("a", time=2), log("a")) == Matched()


def test_so_is_one_without_a_timestamp() -> None:
    """A heartbeat is written each time."""
    assert align(batch("a", time=UNTIMED), log("a", time=UNTIMED)) == Matched()


@pytest.mark.parametrize(
    ("first", "names", "last", "count"),
    [(2, "cde", 3, 2), (2, "cde", 4, 2), (0, "abcd", 2, 3), (0, "abc", 3, 3), (3, "xe", 3, 0), (4, "e", 3, 0)],
)
def test_the_first_records_that_are_written_under_their_own_numbers(
    first: int, names: str, last: int, count: int
) -> None:
    log = {at: digest(one) for at, one in enumerate("abcd")}
    assert count_written(batch(names), first, last, log) == count
