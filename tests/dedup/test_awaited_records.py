"""What was refused comes again before anything else: which requests may be accepted meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.dedup import awaited_records
from kproxy.dedup.awaited_records import AwaitedRecords
from kproxy.dedup.digest import UNTIMED, Digest


def records(text: str, time: int = 7) -> list[Digest]:
    """A record for each letter."""
    return [Digest(letter.encode() * 16, time) for letter in text]


def awaiting(*refused: str) -> AwaitedRecords:
    awaited = AwaitedRecords()
    for text in refused:
        assert awaited.refuse(records(text), 1.0)
    return awaited


def test_anything_is_admitted_while_nothing_is_awaited() -> None:
    awaited = AwaitedRecords()
    assert awaited.admits(records("a"))
    assert not awaited


@pytest.mark.parametrize(
    "retries", [["ab", "cd", "e"], ["abcde"], ["a", "b", "c", "d", "e"], ["abc", "de"], ["abcdexy"]]
)
def test_retries_are_admitted_however_their_client_groups_them(retries: list[str]) -> None:
    awaited = awaiting("ab", "cd", "e")
    assert len(awaited) == 5
    assert all(awaited.admits(records(text)) for text in retries)
    assert not awaited


@pytest.mark.parametrize("new", ["x", "xab", "b" * 9])
def test_a_request_that_begins_with_another_record_is_not(new: str) -> None:
    awaited = awaiting("a")
    assert not awaited.admits(records(new))
    assert not awaited.admits(records("a", time=8)), "the same value at another time is another record"
    assert awaited.admits(records("a"))


def test_what_is_refused_meanwhile_is_awaited_after_it() -> None:
    awaited = awaiting("ab")
    assert not awaited.admits(records("x"))
    assert awaited.refuse(records("x"), 2.0)
    assert awaited.since == 2.0
    assert awaited.admits(records("ab"))
    assert not awaited.admits(records("y"))
    assert awaited.admits(records("xy"))


def test_a_retry_that_is_refused_again_keeps_its_place() -> None:
    awaited = awaiting("ab", "cd")
    assert awaited.refuse(records("ab"), 2.0)
    assert awaited.refuse(records("cde"), 2.0), "with a record that was not refused before"
    assert len(awaited) == 5
    assert awaited.admits(records("abcde"))
    assert not awaited


def test_records_that_their_client_has_given_up_are_not_awaited_any_more() -> None:
    awaited = awaiting("ab", "cd", "ef")
    assert awaited.admits(records("d"))
    assert not awaited.admits(records("a"))
    assert awaited.admits(records("ef"))


def test_equal_records_are_awaited_one_by_one() -> None:
    awaited = AwaitedRecords()
    equal = [Digest(b"a" * 16, UNTIMED)]
    for _ in range(3):
        awaited.refuse(equal, 1.0)
    assert len(awaited) == 1, "a retry of the first one looks like the second one"
    assert awaited.refuse(equal * 3, 1.0)
    assert len(awaited) == 3
    for left in (2, 1, 0):
        assert awaited.admits(equal)
        assert len(awaited) == left


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_records, "MOST_RECORDS", 4)
    awaited = awaiting("ab", "cd")
    assert awaited.refuse(records("ab"), 1.0), "they are known"
    assert not awaited.refuse(records("e"), 1.0)
    assert not awaited
    assert awaited.admits(records("x"))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_a_queue_that_keeps_its_order_comes_through_in_order(sizes: list[int], data: st.DataObject) -> None:
    """The client sends its queue from the front again, in groups of any size, until each is accepted."""
    letters = [chr(65 + number) for number in range(sum(sizes))]
    awaited, log, at = AwaitedRecords(), [], 0
    for size in sizes:
        awaited.refuse(records("".join(letters[at : at + size])), 1.0)
        at += size
    queue, new = letters[:], iter("abcdefgh")
    for _ in range(4 * len(letters)):
        if data.draw(st.booleans()) and (one := next(new, None)) is not None:
            queue.append(one)
            if awaited.admits(records(one)):  # sent before its client had read the refusals
                log.append(queue.pop())
            else:
                awaited.refuse(records(one), 1.0)
        if not queue:
            break
        group = queue[: data.draw(st.integers(1, 5))]
        assert awaited.admits(records("".join(group)))
        log += group
        del queue[: len(group)]
    assert log == [*letters, *(letter for letter in log if letter.islower())][: len(log)]
    assert [letter for letter in log if letter.islower()] == sorted(letter for letter in log if letter.islower())
