"""Whose input a client writes: as it was when its transaction began, and after the end of its membership."""

from typing import Any

import pytest

from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.join_group import JoinGroupRequest
from kproxy.codec._generated.leave_group import LeaveGroupRequest
from kproxy.codec._generated.sync_group import SyncGroupRequest
from kproxy.proxy.client_memberships import ClientMemberships, Membership
from kproxy.txn.ids import Producer

ONE, TWO = Producer(1, 0), Producer(2, 0)
OLD = Membership(3, "m", None)


def known(*requests: Any) -> ClientMemberships:
    """A member of a group, and what its connection has said since then."""
    made = ClientMemberships()
    for request in (SyncGroupRequest("g", *OLD[:2]), *requests):
        made.note(1, request)
    return made


@pytest.mark.parametrize("member", ["m", "n"])
def test_a_member_that_rejoins_in_a_transaction_has_read_the_input_as_before(member: str) -> None:
    """aiokafka joins by itself: what the application holds may be another's by then."""
    client = known()
    client.begins(ONE)
    for request in (JoinGroupRequest("g", member_id=""), SyncGroupRequest("g", 4, member)):
        client.note(1, request)
    client.begins(ONE)
    client.begins(TWO)
    assert client.reader(ONE, "g") == OLD
    assert client.reader(TWO, "g") == client.of("g") == (4, member, None)
    client.ends(ONE)
    client.begins(ONE)
    assert client.reader(ONE, "g") == (4, member, None)


def test_who_was_nobody_when_the_transaction_began_is_who_it_is() -> None:
    client = ClientMemberships()
    client.begins(ONE)
    client.note(1, SyncGroupRequest("g", *OLD[:2]))
    assert client.reader(ONE, "g") == OLD
    client.begins(ONE)
    client.note(1, HeartbeatRequest("g", 4, "m"))
    assert client.reader(ONE, "g") == OLD
    assert client.reader(ONE, "h") is None


@pytest.mark.parametrize("first", ["begins", "leaves"])
def test_a_member_that_leaves_and_keeps_writing_is_asked_for(first: str) -> None:
    client, leave = known(), LeaveGroupRequest("g", "m")
    if first == "begins":
        client.begins(ONE)
    client.note(1, leave)
    client.begins(ONE)
    client.begins(TWO)
    client.refused("g")
    assert client.reader(ONE, "g") == client.reader(TWO, "g") == OLD
    client.note(1, JoinGroupRequest("g", member_id=""))
    assert client.of("g") == OLD
    client.note(1, SyncGroupRequest("g", 4, "n"))
    assert client.of("g") == (4, "n", None)
    assert client.reader(ONE, "g") == OLD


def test_who_leaves_and_is_closed_is_not_asked_for() -> None:
    """An application that closes its consumer before it commits: that is allowed, as it ever was."""
    client = known(SyncGroupRequest("h", 5, "n"))
    client.begins(ONE)
    client.note(1, LeaveGroupRequest("g", "m"))
    client.closed(1)
    assert client.reader(ONE, "g") is None
    assert client.reader(ONE, "h") == (5, "n", None)
    client.closed(1)


def test_a_member_that_is_there_counts_more_than_one_that_has_left() -> None:
    client = known(LeaveGroupRequest("g", "m"))
    client.note(2, HeartbeatRequest("g", 4, "n"))
    assert client.of("g") == (4, "n", None)
    client.note(2, LeaveGroupRequest("g", "n"))
    assert client.of("g") is None, "two have left"
    client.closed(1)
    assert client.of("g") == (4, "n", None)


def test_who_has_no_connection_when_the_transaction_begins_counts_for_it() -> None:
    client = known()
    client.closed(1)
    client.begins(ONE)
    client.note(2, SyncGroupRequest("g", 4, "n"))
    assert client.reader(ONE, "g") == OLD
    assert client.of("g") == (4, "n", None)


def test_the_oldest_of_too_many_transactions_are_forgotten() -> None:
    client = known()
    for number in range(65):
        client.begins(Producer(number, 0))
    client.note(1, HeartbeatRequest("g", 4, "m"))
    readers = [client.reader(Producer(number, 0), "g") for number in (0, 1, 64)]
    assert readers == [(4, "m", None), OLD, OLD]


def test_no_more_than_so_many_that_have_left_are_remembered() -> None:
    client = ClientMemberships()
    for number in range(65):
        client.note(1, HeartbeatRequest(str(number), 1, "m"))
        client.note(1, LeaveGroupRequest(str(number), "m"))
    assert client.of("63") is not None
    assert client.of("64") is None


def test_whether_anything_is_known() -> None:
    client = ClientMemberships()
    assert client.is_unknown
    client.note(1, SyncGroupRequest("g", *OLD[:2]))
    assert client.is_connected
    client.closed(1)
    assert not client.is_connected
    assert not client.is_unknown
    client.begins(ONE)
    client.refused("g")
    assert not client.is_unknown
    client.ends(ONE)
    assert client.is_unknown


def test_of_groups_that_it_left_with_its_connections_the_last_64_are_remembered() -> None:
    known = ClientMemberships()
    for number in range(100):
        known.note(number, HeartbeatRequest(f"g{number}", 3, "m"))
        known.closed(number)
    assert [known.of(f"g{number}") is not None for number in range(100)] == [False] * 36 + [True] * 64


def test_names_that_are_too_long_together_are_not_remembered() -> None:
    known = ClientMemberships()
    for number in range(3):
        known.note(1, HeartbeatRequest(f"{number}" * 15_000, 3, "m"))
    assert known.of("0" * 15_000) is None
    known.closed(1)
    assert known.is_unknown
