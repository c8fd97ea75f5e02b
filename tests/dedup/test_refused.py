from math import inf

import pytest

from kproxy.dedup.digest import UNTIMED, Digest
from kproxy.dedup.entries import Answer
from kproxy.dedup.refused import Refused
from tests.dedup.wires import member

A, B = Digest(b"a", 1000), Digest(b"b", 1001)


def refused(first: Digest | None, since: float, told_at: float | None = None) -> Refused:
    """A request that was refused at ``since``; its client has been told if ``told_at`` is given."""
    found = Refused(member(), since, Answer([], 60.0), first)
    if told_at is not None:
        found.answer.at, found.answer.position = told_at, 1
    return found


def test_it_is_told_when_the_answer_leaves_and_no_sooner() -> None:
    found = refused(A, 5.0)
    assert found.told_at == inf
    assert found.crossed_by(99.0)
    assert not found.expired(99.0)
    found.answer.at, found.answer.position = 7.0, 20
    assert found.told_at == 7.0
    assert (found.crossed_by(7.5), found.crossed_by(7.6)) == (True, False)
    assert (found.expired(8.0), found.expired(8.1)) == (False, True)


def test_behind_the_end_of_the_connection_nobody_is_told() -> None:
    found = refused(A, 5.0)
    assert found.member is not None
    found.member.end(6.0)
    assert found.told_at == 5.0


def test_its_retry_holds_its_first_record() -> None:
    found = refused(A, 5.0, 5.0)
    assert found.in_retry([A, B])
    assert found.in_retry([B, A])  # put together with what had timed out before
    assert not found.in_retry([B])
    assert not refused(None, 5.0, 5.0).in_retry([])


def test_of_several_that_were_refused_the_first_has_to_come_first() -> None:
    first = refused(A, 5.0, 5.0)
    second = refused(B, 5.2).behind(first)
    third = refused(Digest(b"c", 1), 5.3).behind(second)
    for found in second, third:
        assert found.in_retry([A])
        assert not found.in_retry([B])
    assert refused(B, 5.6).behind(first).in_retry([B])  # the first one was given up
    assert refused(B, 5.2).behind(None).in_retry([B])


@pytest.mark.parametrize(
    ("first", "record", "retry"),
    [
        (A, Digest(b"a", 1004), False),
        (A, Digest(b"a", 1299), False),
        (A, Digest(b"a", 1300), True),
        (A, Digest(b"b", 1300), False),
        (Digest(b"a", UNTIMED), Digest(b"a", 3), True),
        (None, A, False),
    ],
)
def test_a_retry_of_another_time_was_made_behind_the_refusal(first: Digest | None, record: Digest, retry: bool) -> None:
    assert refused(first, 5.0, 5.25).in_retry_of_another_time([B, record]) is retry


def test_of_several_the_time_of_the_first_counts() -> None:
    found = refused(B, 5.2, 5.9).behind(refused(A, 5.0, 5.1))
    assert found.in_retry_of_another_time([Digest(b"a", 1150)])
