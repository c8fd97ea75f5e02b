"""Produce of clients that are idempotent themselves: relayed, without any broker's address."""

import pytest

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponseLeaderIdAndEpoch,
    ProduceResponseNodeEndpoint,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.proxy.handlers.base import Exchange
from kproxy.proxy.handlers.produce import PassedProduce
from tests.proxy.playbook import context


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
    answer = PassedProduce().lower(context(), Exchange(None, 12, 12), response)
    assert isinstance(answer, ProduceResponse)
    assert answer.node_endpoints == [ProduceResponseNodeEndpoint(2, "proxy", 1002, "rack")]
    assert answer.responses[0].partition_responses[0].current_leader == leader
