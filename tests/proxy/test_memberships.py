"""Which member a client is, by what its connections have asked."""

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproxy.codec._generated.leave_group import LeaveGroupRequest, LeaveGroupRequestMemberIdentity
from kproxy.codec._generated.sync_group import SyncGroupRequest
from kproxy.codec.header import encode_request
from kproxy.codec.messages import APIS, ApiKey, Message
from kproxy.dedup.identity import Identity
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.client_memberships import Membership
from kproxy.proxy.memberships import Memberships
from kproxy.txn.ids import Producer

ME = Identity("User:me", "copier", "10.0.0.1")
PRODUCER = Producer(7, 0)


def tell(known: Memberships, request: Message, version: int = 1, connection: int = 1, client: Identity = ME) -> None:
    frame = encode_request(request, version, 1, client.client_id)
    known.take(connection, client, memoryview(frame)[4:], unbounded(), 0.0)


def beat(known: Memberships, member: str = "m", generation: int = 3, group: str = "g", **more: object) -> None:
    tell(known, HeartbeatRequest(group, generation, member), **more)  # type: ignore[arg-type]


def join(member: str) -> JoinGroupRequest:
    return JoinGroupRequest("g", 1, 1, member, protocol_type="consumer", protocols=[JoinGroupRequestProtocol("a", b"")])


@pytest.mark.parametrize("key", [ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP])
def test_a_member_is_known_by_what_it_asks_in_any_version(key: ApiKey) -> None:
    for version in range(APIS[key][2] + 1):
        known, instance = Memberships(), "static" if version >= 3 else None
        made = HeartbeatRequest if key is ApiKey.HEARTBEAT else SyncGroupRequest
        tell(known, made("g", 3, "m", group_instance_id=instance), version)
        assert known.reader(ME, PRODUCER, "g") == Membership(3, "m", instance)
        assert known.reader(ME, PRODUCER, "h") is None


@pytest.mark.parametrize(
    "other", [ME._replace(principal="User:you"), ME._replace(client_id="c"), ME._replace(host="h")]
)
def test_of_other_clients_nothing_is_said(other: Identity) -> None:
    known = Memberships()
    beat(known)
    assert known.reader(other, PRODUCER, "g") is None
    beat(known, "n", connection=2, client=other)
    assert known.reader(ME, PRODUCER, "g") == (3, "m", None)


def test_a_client_without_a_name_is_nobody() -> None:
    known = Memberships()
    beat(known, client=ME._replace(client_id=""))
    assert known.reader(ME._replace(client_id=""), PRODUCER, "g") is None


def test_the_newest_generation_counts_also_over_two_connections() -> None:
    known = Memberships()
    beat(known, generation=3)
    beat(known, generation=5, connection=2)
    beat(known, generation=4, connection=3)
    assert known.reader(ME, PRODUCER, "g") == (5, "m", None)
    beat(known, generation=6)
    assert known.reader(ME, PRODUCER, "g") == (6, "m", None)


def test_of_several_members_none_is_chosen() -> None:
    known = Memberships()
    beat(known, "m")
    beat(known, "n", connection=2)
    assert known.reader(ME, PRODUCER, "g") is None
    known.closed(2, 0.0)
    known.closed(2, 0.0)
    assert known.reader(ME, PRODUCER, "g") == (3, "m", None)
    beat(known, "o")
    assert known.reader(ME, PRODUCER, "g") is None


def test_who_joins_as_somebody_new_is_not_who_it_was() -> None:
    known = Memberships()
    beat(known)
    beat(known, group="h")
    for member in ("m", "", "n"):  # the last by the id that the response gave it (KIP-394)
        tell(known, join(member))
        assert known.reader(ME, PRODUCER, "g") == (3, "m", None), (
            "what it has read until it has joined it has read as this"
        )
    tell(known, SyncGroupRequest("g", 4, "n"))
    assert known.reader(ME, PRODUCER, "g") == (4, "n", None)
    assert known.reader(ME, PRODUCER, "h") == (3, "m", None)
    tell(known, SyncGroupRequest("g", 5, "o"))
    assert known.reader(ME, PRODUCER, "g") is None, "two share the connection"


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_who_leaves_counts_until_it_is_closed(version: int) -> None:
    """It was not polled for `max.poll.interval.ms`, and its application is not done yet; or it is closed."""
    known = Memberships()
    beat(known)
    nobody = LeaveGroupRequest("g", "" if version >= 3 else "n")
    tell(known, nobody, version)
    assert known.reader(ME, PRODUCER, "g") is not None
    gone = [LeaveGroupRequestMemberIdentity("m")]
    tell(known, LeaveGroupRequest("g", members=gone) if version >= 3 else LeaveGroupRequest("g", "m"), version)
    assert known.reader(ME, PRODUCER, "g") == (3, "m", None)
    known.closed(1, 0.0)
    assert known.reader(ME, PRODUCER, "g") is None


def test_of_a_connection_that_speaks_of_too_many_nothing_is_known_any_more() -> None:
    known = Memberships()
    beat(known, connection=2)
    for number in range(64):
        beat(known, group=str(number))
    assert known.reader(ME, PRODUCER, "63") is not None
    beat(known, group="64")
    beat(known, group="65")
    assert known.reader(ME, PRODUCER, "63") is None
    assert known.reader(ME, PRODUCER, "g") is None, "it may be a second member"
    known.closed(1, 0.0)
    assert known.reader(ME, PRODUCER, "g") is not None


def test_a_connection_that_becomes_another_client_is_that_alone() -> None:
    known, other = Memberships(), ME._replace(client_id="c")
    beat(known)
    beat(known, client=other)
    known.refused(ME, "g")
    assert known.reader(ME, PRODUCER, "g") is None
    assert known.reader(other, PRODUCER, "g") is not None


@pytest.mark.parametrize("asked", [None, join(""), join("m")])
def test_who_it_was_counts_after_the_end_of_its_connection(asked: Message | None) -> None:
    """A consumer that wakes finds its coordinator unavailable and reconnects, while its producer continues at once."""
    known = Memberships()
    beat(known)
    if asked is not None:
        tell(known, asked)
    known.closed(1, 0.0)
    assert known.reader(ME, PRODUCER, "g") == (3, "m", None)
    assert known.reader(ME, PRODUCER, "h") is None
    assert known.reader(ME._replace(host="h"), PRODUCER, "g") is None
    tell(known, join(""), connection=2)
    assert known.reader(ME, PRODUCER, "g") == (3, "m", None), "it has joined when it has asked for its partitions"
    beat(known, "n", 4, connection=2)
    assert known.reader(ME, PRODUCER, "g") == (4, "n", None)


@pytest.mark.parametrize(("member", "remains"), [("m", True), ("n", False)])
def test_who_leaves_over_another_connection_counts_until_that_is_closed(member: str, remains: bool) -> None:
    known = Memberships()
    beat(known)
    known.closed(1, 0.0)
    tell(known, LeaveGroupRequest("g", member), connection=2)
    assert (known.reader(ME, PRODUCER, "g") is not None) == remains
    known.closed(2, 0.0)
    assert known.reader(ME, PRODUCER, "g") is None


def test_of_several_whose_connections_have_ended_none_is_chosen() -> None:
    known = Memberships()
    beat(known, "m")
    beat(known, "n", connection=2)
    known.closed(1, 0.0)
    assert known.reader(ME, PRODUCER, "g") == (3, "n", None), "whose connection is there"
    known.closed(2, 0.0)
    assert known.reader(ME, PRODUCER, "g") is None
    beat(known, "n", connection=3)
    known.closed(3, 0.0)
    assert known.reader(ME, PRODUCER, "g") == (3, "n", None)


def test_who_was_refused_is_forgotten_with_its_connection() -> None:
    """Else one that is at another kproxy now, in a newer generation, would be refused for ever."""
    known = Memberships()
    beat(known)
    known.refused(ME, "g")
    assert known.reader(ME, PRODUCER, "g") == (3, "m", None)
    known.closed(1, 0.0)
    known.refused(ME, "h")
    assert known.reader(ME, PRODUCER, "g") == (3, "m", None)
    known.refused(ME, "g")
    known.refused(ME, "g")
    assert known.reader(ME, PRODUCER, "g") is None


def test_a_client_without_a_connection_is_forgotten_after_an_hour() -> None:
    known, other = Memberships(), ME._replace(host="10.0.0.2")
    beat(known)
    known.closed(1, 100.0)
    known.closed(7, 3700.0)
    assert known.reader(ME, PRODUCER, "g") == (3, "m", None)
    beat(known, connection=2, client=other)
    known.closed(2, 3700.1)
    assert known.reader(ME, PRODUCER, "g") is None
    assert known.reader(other, PRODUCER, "g") == (3, "m", None)


def test_clients_without_connections_are_remembered_within_bounds_of_bytes() -> None:
    known = Memberships()
    for number in range(600):
        client = ME._replace(host=str(number))
        beat(known, connection=number, client=client, group="g" * 30_000)
        known.closed(number, 0.0)
    found = [known.reader(ME._replace(host=str(number)), PRODUCER, "g" * 30_000) is not None for number in range(600)]
    assert 200 < sum(found) < 300
    assert found[-1]


def test_the_oldest_of_too_many_clients_without_connections_are_forgotten() -> None:
    known, clients = Memberships(), [ME._replace(host=str(number)) for number in range(1002)]
    for number, client in enumerate(clients):
        beat(known, connection=number, client=client)
        known.closed(number, 0.0)
        if number == 999:
            beat(known, connection=5000, client=clients[0])
    assert [known.reader(client, PRODUCER, "g") is not None for client in clients[:3]] == [True, False, True]
    assert known.reader(clients[-1], PRODUCER, "g") is not None


def test_what_began_when_its_client_was_another_member_was_read_by_that() -> None:
    known, other = Memberships(), ME._replace(client_id="c")
    for begun in (ME, other):
        known.begins(begun, PRODUCER)
    beat(known)
    known.begins(ME, PRODUCER)
    beat(known, generation=4)
    assert known.reader(ME, PRODUCER, "g") == (3, "m", None)
    known.ends(other, PRODUCER)
    known.ends(ME, PRODUCER)
    assert known.reader(ME, PRODUCER, "g") == (4, "m", None)
    known.refused(other, "g")


def test_what_is_malformed_is_refused() -> None:
    frame = encode_request(HeartbeatRequest("g", 3, "m"), 1, 1, "c")
    with pytest.raises(RemoteProtocolError):
        Memberships().take(1, ME, memoryview(frame)[4:-3], unbounded(), 0.0)
