"""FindCoordinator and DescribeCluster: a client meets kproxy, never a broker."""

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseDescribeClusterBroker,
)
from kproxy.codec._generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponseLeaderIdAndEpoch,
    ProduceResponseNodeEndpoint,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ErrorCode
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.proxy.handlers.addresses import PassedProduce
from kproxy.proxy.handlers.base import Exchange
from tests.proxy.playbook import Play, context


def question(version: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest(key="g")


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_named_by_kproxys_port(version: int) -> None:
    play = Play()
    play.ask(question(version), version)
    _, correlation_id, _ = play.sent()
    if version >= 4:
        row = FindCoordinatorResponseCoordinator(key="g", node_id=2, host="h2", port=9092)
        play.reply(FindCoordinatorResponse(coordinators=[row]), version, correlation_id)
        told = play.answer().coordinators[0]
    else:
        play.reply(FindCoordinatorResponse(node_id=2, host="h2", port=9092), version, correlation_id)
        told = play.answer()
    assert (told.node_id, told.host, told.port) == (2, "proxy", 1002)


@pytest.mark.parametrize("version", [0, 3, 4])
def test_an_error_without_a_coordinator_is_passed_on_unchanged(version: int) -> None:
    play = Play()
    play.ask(question(version), version)
    _, correlation_id, _ = play.sent()
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if version >= 4:
        row = FindCoordinatorResponseCoordinator(key="g", node_id=-1, host="", port=-1, error_code=error)
        play.reply(FindCoordinatorResponse(coordinators=[row]), version, correlation_id)
        told = play.answer().coordinators[0]
    else:
        play.reply(FindCoordinatorResponse(node_id=-1, host="", port=-1, error_code=error), version, correlation_id)
        told = play.answer()
    assert (told.error_code, told.node_id, told.host, told.port) == (error, -1, "", -1)


def test_a_coordinator_without_a_port_of_kproxys_is_not_available() -> None:
    play = Play()
    play.ask(FindCoordinatorRequest(key="g"), 2)
    _, correlation_id, _ = play.sent()
    answer = FindCoordinatorResponse(node_id=3, host="h3", port=9093)
    play.session.response(bytearray(encode_response(answer, 2, correlation_id)), 2.0, learnt=True)
    told = play.answer()
    assert (told.error_code, told.node_id, told.host) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "")


@pytest.mark.parametrize(("version", "kind", "wanted"), [(0, 1, [(1, "proxy", 1001)]), (1, 1, [(1, "proxy", 1001)]),
                                                        (1, 2, []), (2, 2, [])])  # fmt: skip
def test_describe_cluster_names_brokers_and_hides_controllers(
    version: int, kind: int, wanted: list[tuple[int, str, int]]
) -> None:
    play = Play()
    play.ask(DescribeClusterRequest(endpoint_type=kind), version)
    _, correlation_id, _ = play.sent()
    row = DescribeClusterResponseDescribeClusterBroker(broker_id=1, host="h1", port=9091)
    play.reply(DescribeClusterResponse(endpoint_type=kind, brokers=[row]), version, correlation_id)
    assert [(r.broker_id, r.host, r.port) for r in play.answer().brokers] == wanted


def test_an_advertised_host_and_ports_stand_for_the_bound_ones() -> None:
    play = Play()
    play.ctx.cluster.advertised_host, play.ctx.cluster.port_shift = "public", 30_000
    play.ask(MetadataRequest(), 1)
    play.sent()
    play.reply(MetadataResponse(brokers=[MetadataResponseBroker(1, "h1", 9091)]), 1, 1)
    assert [(row.host, row.port) for row in play.answer().brokers] == [("public", 31_001)]


# -- the coordinators of transactions

HOMES = (HomeRule("theirs*", Home.BROKER), HomeRule("*", Home.KPROXY))


def coordinator_question(version: int, *keys: str) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(key_type=1, coordinator_keys=list(keys))
    return FindCoordinatorRequest(key=keys[0], key_type=1)


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_an_id_of_kproxys_is_a_broker_of_metadata(version: int) -> None:
    """Rule 17."""
    play = Play(homes=HOMES)
    play.ask(coordinator_question(version, "id"), version)
    answer = play.answer()
    (row,) = answer.coordinators if version >= 4 else [answer]
    node_id = play.ctx.cluster.coordinator("id")
    assert (row.error_code, row.node_id, row.host, row.port) == (0, node_id, "proxy", 1000 + node_id)
    assert not play.session.to_upstream


@pytest.mark.parametrize("version", [1, 4])
def test_a_port_that_was_not_opened_yet_is_no_coordinator(version: int) -> None:
    play = Play(homes=HOMES)
    for broker in play.ctx.cluster.brokers.values():
        broker.port = None
    play.ask(coordinator_question(version, "id"), version)
    answer = play.answer()
    (row,) = answer.coordinators if version >= 4 else [answer]
    assert (row.error_code, row.node_id, row.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)


@pytest.mark.parametrize("version", range(4, 7))
def test_a_question_for_both_kinds_of_ids_is_split_and_answered_in_order(version: int) -> None:
    play = Play(homes=HOMES)
    play.ask(coordinator_question(version, "a", "theirs-1", "b", "theirs-2"), version)
    asked, correlation_id, sent = play.sent()
    assert (sent.key_type, sent.coordinator_keys) == (1, ["theirs-1", "theirs-2"])
    rows = [FindCoordinatorResponseCoordinator(key, 1, "h1", 9091) for key in reversed(sent.coordinator_keys)]
    play.reply(FindCoordinatorResponse(coordinators=rows), asked, correlation_id)
    told = [(row.key, row.node_id, row.host, row.port) for row in play.answer().coordinators]
    nodes = {key: play.ctx.cluster.coordinator(key) for key in ("a", "b")} | {"theirs-1": 1, "theirs-2": 1}
    assert told == [(key, nodes[key], "proxy", 1000 + nodes[key]) for key in ("a", "theirs-1", "b", "theirs-2")]


@pytest.mark.parametrize("homes", [None, HOMES])
@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_the_coordinator_of_the_brokers_ids_is_the_brokers(version: int, homes: tuple[HomeRule, ...] | None) -> None:
    play = Play(homes=homes)
    play.ask(coordinator_question(version, "theirs"), version)
    assert play.sent()[2] == coordinator_question(version, "theirs")


def test_a_group_that_has_the_name_of_a_transactional_id_is_a_group() -> None:
    play = Play(homes=HOMES)
    play.ask(FindCoordinatorRequest(key="id", key_type=0), 3)
    assert play.sent()[2].key == "id"


@pytest.mark.parametrize(("version", "wanted"), [(3, False), (9, False), (10, True), (13, True)])
def test_only_versions_that_can_name_addresses_are_looked_into(version: int, wanted: bool) -> None:
    assert PassedProduce().rewrites(context(), version, version) is wanted


def test_the_new_leader_stays_and_its_address_is_kproxys() -> None:
    leader = ProduceResponseLeaderIdAndEpoch(2, 5)
    row = ProduceResponsePartitionProduceResponse(index=0, error_code=6, current_leader=leader)
    response = ProduceResponse(
        responses=[ProduceResponseTopicProduceResponse(name="t", partition_responses=[row])],
        node_endpoints=[ProduceResponseNodeEndpoint(2, "h2", 9092, "rack")],
    )
    assert PassedProduce().brokers_in(response) == [(2, "h2", 9092)]
    answer = PassedProduce().lower(context(), Exchange(None, 12, 12), response, unbounded())
    assert isinstance(answer, ProduceResponse)
    assert answer.node_endpoints == [ProduceResponseNodeEndpoint(2, "proxy", 1002, "rack")]
    assert answer.responses[0].partition_responses[0].current_leader == leader
