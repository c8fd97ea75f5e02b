"""Which broker answers for a group, and when a group comes into being."""

import pytest

from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.join_group import JoinGroupRequest
from kproxy.codec._generated.offset_commit import OffsetCommitRequest
from kproxy.codec.messages import ErrorCode, Message
from kproxy.testing.fake_broker.consumer_groups import Group
from kproxy.testing.fake_broker.coordination import coordinator_error, group_of, verify
from kproxy.testing.fake_broker.fake_cluster import FakeCluster
from kproxy.testing.fake_broker.transactional_ids import TransactionalId
from tests.testing.fake_broker.calls import NOW, call_to, two_brokers

GROUP = "g"


def coordinator_and_other(cluster: FakeCluster) -> tuple[int, int]:
    broker = cluster.coordinator_of(GROUP)
    assert broker is not None
    return broker.node_id, 3 - broker.node_id


def test_only_the_coordinator_answers_for_a_group() -> None:
    cluster = two_brokers()
    coordinator, other = coordinator_and_other(cluster)
    assert coordinator_error(call_to(cluster, coordinator, HeartbeatRequest()), GROUP) is ErrorCode.NONE
    assert coordinator_error(call_to(cluster, other, HeartbeatRequest()), GROUP) is ErrorCode.NOT_COORDINATOR
    cluster.broker_down(coordinator)
    assert coordinator_error(call_to(cluster, other, HeartbeatRequest()), GROUP) is ErrorCode.NONE
    cluster.broker_down(other)
    assert coordinator_error(call_to(cluster, other, HeartbeatRequest()), GROUP) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("request_", [JoinGroupRequest(), OffsetCommitRequest()])
def test_a_join_or_a_commit_at_the_coordinator_creates_the_group(request_: Message) -> None:
    cluster = two_brokers()
    coordinator, other = coordinator_and_other(cluster)
    group_of(call_to(cluster, other, request_), GROUP)
    assert not cluster.groups
    group = group_of(call_to(cluster, coordinator, request_), GROUP)
    assert cluster.groups == {GROUP: group}
    assert group_of(call_to(cluster, coordinator, HeartbeatRequest()), GROUP) is group


def test_other_requests_and_nameless_groups_leave_no_trace() -> None:
    cluster = two_brokers()
    coordinator, _ = coordinator_and_other(cluster)
    assert group_of(call_to(cluster, coordinator, HeartbeatRequest()), GROUP).group_id == GROUP
    for broker in (1, 2):
        group_of(call_to(cluster, broker, OffsetCommitRequest()), "")
    assert not cluster.groups


def test_a_group_comes_with_its_due_time_outs_applied() -> None:
    cluster = two_brokers()
    coordinator, _ = coordinator_and_other(cluster)
    cluster.groups[GROUP] = Group(GROUP, pending={"lapsed": NOW, "waiting": NOW + 1})
    assert group_of(call_to(cluster, coordinator, HeartbeatRequest()), GROUP).pending == {"waiting": NOW + 1}


def test_a_coordinator_moves_and_says_so_while_it_loads() -> None:
    cluster = two_brokers()
    former, newer = coordinator_and_other(cluster)
    cluster.move_coordinator(GROUP, newer)
    assert coordinator_error(call_to(cluster, former, HeartbeatRequest()), GROUP) is ErrorCode.NOT_COORDINATOR
    assert coordinator_error(call_to(cluster, newer, HeartbeatRequest()), GROUP) is ErrorCode.NONE
    cluster.load_coordinators(newer)
    assert (
        coordinator_error(call_to(cluster, newer, HeartbeatRequest()), GROUP) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    cluster.coordinators_loaded(newer)
    assert coordinator_error(call_to(cluster, newer, HeartbeatRequest()), GROUP) is ErrorCode.NONE
    cluster.broker_down(newer)
    assert coordinator_error(call_to(cluster, former, HeartbeatRequest()), GROUP) is ErrorCode.NONE


def test_who_writes_is_asked_again_while_the_coordinator_loads() -> None:
    cluster = two_brokers()
    cluster.transactional_ids["id"] = owner = TransactionalId(7, 0)
    broker = cluster.coordinator_of("id")
    assert broker is not None
    call = call_to(cluster, 1, HeartbeatRequest())
    cluster.load_coordinators(broker.node_id)
    assert verify(call, "id", (7, 0)) is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.coordinators_loaded(broker.node_id)
    assert verify(call, "id", (7, 0)) is owner


def test_an_id_expires_unless_its_transaction_is_under_way() -> None:
    cluster = two_brokers()
    cluster.transactional_ids["id"] = owner = TransactionalId(7, 0)
    owner.join(NOW, [("t", 0)])
    cluster.expire_transactional_id("id")
    assert owner.end(7, 0, True) is ErrorCode.NONE
    cluster.expire_transactional_id("id")
    assert cluster.transactional_ids == {"id": owner}
    owner.complete()
    cluster.expire_transactional_id("id")
    cluster.expire_transactional_id("other")
    assert not cluster.transactional_ids
