"""Refused records are repeated before anything else: which requests may be accepted meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.dedup import awaited_records
from kproxy.dedup.awaited_records import READ_SECONDS, AwaitedRecords, Refusal
from kproxy.dedup.digest import UNTIMED, Digest
from kproxy.dedup.origin import Origin
from kproxy.dedup.unconfirmed import PendingProduce


def records(text: str, time: int = 7) -> list[Digest]:
    """A record for each letter."""
    return [Digest(letter.encode() * 16, time) for letter in text]


def awaiting(*refused: str) -> AwaitedRecords:
    awaited = AwaitedRecords()
    for text in refused:
        awaited.refuse(records(text), 1.0)
    return awaited


def test_anything_is_admitted_while_nothing_is_awaited() -> None:
    awaited = AwaitedRecords()
    assert awaited.admits(records("a"), 3.0)
    assert not awaited


@pytest.mark.parametrize(
    "retries", [["ab", "cd", "e"], ["abcde"], ["a", "b", "c", "d", "e"], ["abc", "de"], ["abcdexy"]]
)
def test_retries_are_admitted_however_their_client_groups_them(retries: list[str]) -> None:
    awaited = awaiting("ab", "cd", "e")
    assert len(awaited) == 5
    assert all(awaited.admits(records(text), 3.0) for text in retries)
    assert not awaited
    assert awaited.since == 3.0


@pytest.mark.parametrize("new", ["x", "xb", "b" * 9])
def test_a_request_that_begins_with_another_record_is_not(new: str) -> None:
    awaited = awaiting("a")
    assert not awaited.admits(records(new), 3.0)
    assert not awaited.admits(records("a", time=8), 3.0), "the same value at another time is another record"
    assert awaited.admits(records("a"), 3.0)


def test_what_is_refused_meanwhile_is_awaited_after_it() -> None:
    awaited = awaiting("ab")
    assert not awaited.admits(records("x"), 3.0)
    awaited.refuse(records("x"), 2.0)
    assert awaited.since == 2.0
    assert awaited.admits(records("ab"), 3.0)
    assert not awaited.admits(records("y"), 3.0)
    assert awaited.admits(records("xy"), 3.0)


def test_a_retry_that_is_refused_again_keeps_its_place() -> None:
    awaited = awaiting("ab", "cd")
    awaited.refuse(records("ab"), 2.0)
    awaited.refuse(records("cde"), 2.0)  # with a record that was not refused before
    awaited.refuse(records("xyabcd"), 2.0)  # after records that were accepted, of which it heard nothing
    awaited.refuse(records("bde"), 2.0)  # without one that was given up
    assert len(awaited) == 5
    assert awaited.admits(records("abcde"), 3.0)
    assert not awaited


def test_records_that_their_client_has_given_up_are_not_awaited_any_more() -> None:
    awaited = awaiting("ab", "cd", "ef")
    assert not awaited.admits(records("d"), 3.0), "it was refused together with c, which may still come"
    awaited.refuse(records("d"), 3.0)
    assert awaited.admits(records("d"), 4.0)
    assert not awaited.admits(records("a"), 5.0)
    assert awaited.admits(records("ef"), 5.0)


def test_what_was_in_flight_while_the_first_ones_were_refused_again_waits_for_them() -> None:
    awaited = awaiting("ab", "cd", "ef")
    awaited.refuse(records("ab"), 2.0)
    assert not awaited.admits(records("cd"), 3.0)
    awaited.refuse(records("cd"), 3.0)
    assert not awaited.admits(records("ef"), 3.0)
    awaited.refuse(records("ef"), 3.0)
    assert all(awaited.admits(records(text), 4.0) for text in ("ab", "cd", "ef"))


@pytest.mark.parametrize("request_", ["abef", "abx"])
def test_a_request_that_leaves_out_some_of_them_waits_too(request_: str) -> None:
    """Its client has them in flight: they were refused again, and it has not read that yet."""
    awaited = awaiting("ab", "cd", "ef")
    awaited.refuse(records("cd"), 2.0)
    assert not awaited.admits(records(request_), 3.0)
    awaited.refuse(records(request_), 3.0)
    assert awaited.admits(records("abcdef"), 4.0)


def test_a_request_that_leaves_out_what_its_client_gave_up_does_not() -> None:
    awaited = awaiting("ab", "cd", "ef")
    assert awaited.admits(records("abef"), 3.0)
    assert not awaited


def test_it_does_not_if_it_is_repeated_without_them() -> None:
    awaited = awaiting("ab", "cd")
    awaited.refuse(records("ab"), 2.0)
    assert not awaited.admits(records("cd"), 3.0)
    awaited.refuse(records("cd"), 3.0)
    assert awaited.admits(records("cd"), 4.0)
    assert not awaited


def test_equal_records_are_awaited_one_by_one() -> None:
    awaited = AwaitedRecords()
    equal = [Digest(b"a" * 16, UNTIMED)]
    for _ in range(3):
        awaited.refuse(equal, 1.0)
    assert len(awaited) == 1, "a retry of the first one looks like the second one"
    awaited.refuse(equal * 3, 1.0)
    assert len(awaited) == 3
    for left in (2, 1, 0):
        assert awaited.admits(equal, 3.0)
        assert len(awaited) == left


def test_a_retry_may_follow_records_that_were_accepted() -> None:
    awaited = awaiting("ab")
    assert awaited.admits(records("xya"), 3.0)
    assert awaited.admits(records("yb"), 3.0)
    assert not awaited


def test_what_is_more_than_is_remembered_is_refused_until_nothing_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_records, "MOST_RECORDS", 3)
    awaited = awaiting("ab", "cd")
    assert len(awaited) == 3
    awaited.refuse(records("e"), 2.0)
    assert awaited.since == 1.0, "it can't show that the others still come"
    assert not awaited.admits(records("e"), 3.0)
    awaited.refuse(records("abcd"), 4.0)
    assert (len(awaited), awaited.since) == (3, 4.0)
    assert awaited.admits(records("abcd"), 5.0)
    assert awaited.admits(records("e"), 5.0)


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
            if awaited.admits(records(one), 3.0):  # sent before its client had read the refusals
                log.append(queue.pop())
            else:
                awaited.refuse(records(one), 1.0)
        if not queue:
            break
        group = queue[: data.draw(st.integers(1, 5))]
        assert awaited.admits(records("".join(group)), 3.0)
        log += group
        del queue[: len(group)]
    assert log == [*letters, *(letter for letter in log if letter.islower())][: len(log)]
    assert [letter for letter in log if letter.islower()] == sorted(letter for letter in log if letter.islower())


def test_what_was_sent_before_is_awaited_before_though_it_was_refused_later() -> None:
    """The later request waited for the earlier one, and was refused first: its client's time-out was nearer."""
    awaited = AwaitedRecords()
    awaited.refuse(records("cd"), 1.0, 7)
    assert not awaited.admits(records("x"), 1.0, 8)
    awaited.refuse(records("ab"), 2.0, 6.5)
    assert not awaited.admits(records("cd"), 2.0, 9), "its client has not read of the other refusal"
    assert awaited.admits(records("abcd"), 3.0, 10)
    assert not awaited


def test_what_was_sent_before_the_refused_ones_is_admitted() -> None:
    awaited = AwaitedRecords()
    awaited.refuse(records("cd"), 1.0, 7)
    assert awaited.admits(records("ab"), 2.0, 6)
    assert len(awaited) == 2
    assert awaited.admits(records("cd"), 3.0, 8)


def test_of_two_requests_with_one_place_the_second_waits_for_the_first() -> None:
    """What is untaken of a connection has one place, as long as nothing more is known."""
    awaited = AwaitedRecords()
    awaited.refuse(records("a"), 1.0, 7)
    assert not awaited.admits(records("b"), 2.0, 7)


@pytest.mark.parametrize(("position", "at"), [(0, 0.0), (7, 3.0)])
def test_what_was_refused_on_another_connection_is_awaited_until_its_response_was_surely_read(
    position: int, at: float
) -> None:
    """The client reads of two connections in any order: it repeats b, and has not read yet that a was refused."""
    former, leader = Origin(), Origin()
    answer = PendingProduce([], 1e9)
    awaited = AwaitedRecords()
    awaited.refuse(records("a"), 1.0, 1, Refusal(former, 1.0, answer))
    awaited.refuse(records("b"), 2.0, 2, Refusal(leader, 2.0, PendingProduce([], 1e9, position=5, at=2.0)))
    answer.position, answer.at = position, at
    assert not awaited.admits(records("b"), 3.0, 3, 3.0)
    answer.position, answer.at = 7, 3.0
    assert not awaited.admits(records("b"), 3.0, 3, 2.9 + READ_SECONDS)
    assert awaited.admits(records("b"), 9.0, 3, 3.0 + READ_SECONDS)
    assert not awaited


def test_a_response_that_never_came_counts_as_read_some_time_after_the_end_of_its_connection() -> None:
    refusal = Refusal(Origin(), 1.0, PendingProduce([], 1e9))
    assert not refusal.was_read(100.0)
    refusal.origin.ended = True
    assert not refusal.was_read(0.9 + READ_SECONDS)
    assert refusal.was_read(1.0 + READ_SECONDS)
    assert not Refusal().was_read(0.0)


def test_of_what_was_refused_on_one_connection_the_later_refusal_counts() -> None:
    """Also where something of another connection, which was read long ago, lies between."""
    former, leader = Origin(), Origin()
    read = Refusal(former, 1.0, PendingProduce([], 1e9, position=5, at=1.0))
    awaited = AwaitedRecords()
    awaited.refuse(records("a"), 1.0, 1, Refusal(leader, 1.0))
    awaited.refuse(records("b"), 1.0, 2, read)
    awaited.refuse(records("c"), 1.0, 3, Refusal(leader, 1.0))
    awaited.refuse(records("a"), 2.0, 4, Refusal(leader, 2.0))
    assert not awaited.admits(records("c"), 9.0, 5, 9.0), "a was refused again since then"
    awaited.refuse(records("c"), 9.0, 6, Refusal(leader, 9.0))
    assert awaited.admits(records("c"), 9.0, 7, 9.0)
    assert not awaited


def test_connections_of_which_nothing_is_awaited_any_more_are_forgotten() -> None:
    awaited, leader = AwaitedRecords(), Origin()
    awaited.refuse(records("ab"), 1.0, 1, Refusal(Origin(), 1.0, PendingProduce([], 1e9)))
    for at in range(2, 200):
        awaited.refuse(records("a"), at, at, Refusal(Origin(), at, PendingProduce([], 1e9)))
    assert len(awaited._told) < 20
    awaited.refuse(records("c"), 200.0, 200, Refusal(leader, 200.0))
    assert not awaited.admits(records("b"), 900.0, 201, 900.0), "nobody has read yet that a was refused"
    for refusal in awaited._told:
        refusal.origin.ended = True
    assert awaited.admits(records("b"), 900.0, 201, 900.0)
    assert len(awaited) == 1
