"""A classic group: join, sync, leave, and the time-outs between."""

import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker.consumer_groups import Group, GroupState
from kproxy.testing.fake_broker.group_members import CommittedOffset, Member

SESSION_MS = 100
REBALANCE_MS = 300


def member(name: str, *protocols: str) -> Member:
    offered = [(protocol, b"") for protocol in protocols or ("range",)]
    return Member(name, None, "client", "/127.0.0.1", SESSION_MS, REBALANCE_MS, 0, offered)


def stable(*names: str, now: int = 0) -> Group:
    """A group of these members in which everyone has an assignment."""
    group = Group("g")
    group.pending = {name: now + SESSION_MS for name in names}
    for name in names:
        group.join(member(name), "consumer", now)
    group.store_assignments({name: name.encode() for name in names}, now)
    return group


def test_a_lone_member_leads_the_first_generation() -> None:
    group = Group("g")
    group.join(member("a"), "consumer", 0)
    assert (group.state, group.generation, group.leader) == (GroupState.COMPLETING, 1, "a")
    assert (group.protocol_type, group.protocol) == ("consumer", "range")


def test_the_leaders_assignments_make_the_group_stable() -> None:
    group = stable("a", "b")
    assert (group.state, group.generation) == (GroupState.STABLE, 1)
    assert [group.members[name].assignment for name in "ab"] == [b"a", b"b"]
    group.store_assignments({"a": b"new"}, 1)
    assert [group.members[name].assignment for name in "ab"] == [b"new", b""]


def test_a_newcomer_waits_until_the_others_join_again() -> None:
    group = stable("a")
    group.join(member("b"), "consumer", 10)
    assert (group.state, group.generation) == (GroupState.PREPARING, 1)
    group.join(group.members["a"], "consumer", 20)
    assert (group.state, group.generation, group.leader) == (GroupState.COMPLETING, 2, "a")
    assert set(group.members) == {"a", "b"}


def test_who_does_not_join_again_in_time_is_out() -> None:
    group = stable("a")
    group.members["a"].session_timeout_ms = 10_000
    group.join(member("b"), "consumer", 10)
    group.expire(10 + REBALANCE_MS - 1)
    assert group.state is GroupState.PREPARING
    group.expire(10 + REBALANCE_MS)
    assert (list(group.members), group.leader, group.generation) == (["b"], "b", 2)


def test_a_member_id_handed_out_holds_the_join_up_until_it_lapses() -> None:
    group = Group("g", pending={"late": 50})
    group.join(member("a"), "consumer", 0)
    group.expire(49)
    assert group.state is GroupState.PREPARING
    group.expire(50)
    assert (group.state, group.pending) == (GroupState.COMPLETING, {})


def test_a_generation_is_checked_after_the_member() -> None:
    group = stable("a")
    assert group.check_member("a", 1) is ErrorCode.NONE
    assert group.check_member("a", 0) is ErrorCode.ILLEGAL_GENERATION
    assert group.check_member("b", 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group() -> None:
    group = stable("a")
    assert group.remove("a", 10)
    assert (group.state, group.generation, group.leader, group.protocol) == (GroupState.EMPTY, 2, None, None)
    assert not group.remove("a", 10)


def test_a_leader_that_leaves_hands_over_and_the_rest_rebalances() -> None:
    group = stable("a", "b")
    group.remove("a", 10)
    assert (group.state, group.leader) == (GroupState.PREPARING, "b")


def test_a_heartbeat_keeps_a_session_alive() -> None:
    group = stable("a", "b")
    group.members["a"].last_seen = 60
    group.expire(SESSION_MS)
    assert (list(group.members), group.state) == (["a"], GroupState.PREPARING)


def test_who_does_not_sync_in_time_is_out() -> None:
    group = Group("g", pending={"b": 50})
    group.join(member("a"), "consumer", 0)
    group.join(member("b"), "consumer", 0)
    for each in group.members.values():
        each.session_timeout_ms = 10_000
    group.members["a"].synced = True
    group.expire(REBALANCE_MS - 1)
    assert group.state is GroupState.COMPLETING
    group.expire(REBALANCE_MS)
    assert (list(group.members), group.state) == (["a"], GroupState.PREPARING)


def test_the_protocol_most_members_prefer_wins_among_those_that_all_speak() -> None:
    group = Group("g", pending={"b": 50, "c": 50})
    group.join(member("a", "range", "robin"), "consumer", 0)
    group.join(member("b", "sticky", "robin", "range"), "consumer", 0)
    group.join(member("c", "sticky", "robin", "range"), "consumer", 0)
    assert group.protocol == "robin"


def test_a_newcomer_must_share_type_and_protocol() -> None:
    group = stable("a")
    assert group.supports("consumer", [("other", b""), ("range", b"")])
    assert not group.supports("consumer", [("other", b"")])
    assert not group.supports("connect", [("range", b"")])
    assert not group.supports("", [("range", b"")])
    assert not group.supports("consumer", [])
    assert Group("empty").supports("anything", [("at all", b"")])


def test_the_next_deadline_is_the_earliest_of_sessions_ids_and_phases() -> None:
    assert Group("g").next_deadline() is None
    group = stable("a", "b")
    group.members["a"].last_seen = 60
    assert group.next_deadline() == SESSION_MS
    group.pending["c"] = 30
    assert group.next_deadline() == 30
    waiting = Group("g", pending={"late": 1000})
    waiting.join(member("a"), "consumer", 0)
    assert waiting.next_deadline() == REBALANCE_MS


def test_the_offsets_of_a_deleted_topic_go() -> None:
    kept = CommittedOffset(5, -1, None)
    group = Group("g", offsets={("gone", 0): kept, ("gone", 1): kept, ("stays", 0): kept})
    group.forget_topic("gone")
    assert group.offsets == {("stays", 0): kept}


async def test_a_wait_ends_at_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    begin = trio.current_time()
    await stable("a").wait(now=40)
    assert round((trio.current_time() - begin) * 1000) == SESSION_MS - 40


async def test_a_wait_ends_at_a_change() -> None:
    group = Group("g")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.wait, 0)
        await trio.testing.wait_all_tasks_blocked()
        group.wake()
