"""Owners of transactional ids at rest: their connections to brokers are closed, and opened again."""

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.txn.procedures import owner as module
from tests.net.harness import Proxied, proxied
from tests.net.txn.wire_producer import TV2, WireProducer

P0 = ("t", 0)
HOMES = pytest.mark.parametrize("home", [Home.KPROXY, Home.BROKER_FENCED])


def options(home: Home, **more: Any) -> dict[str, Any]:
    return {
        "coordinator": Transactions,
        "transactions_home": (HomeRule("theirs-*", Home.BROKER), HomeRule("*", home)),
        "transaction_state_log_num_partitions": 2,
        **more,
    }


def owners(proxy: Proxied) -> list[module.Owner]:
    coordinator = proxy.transactions.coordinator
    return [*coordinator.log, *coordinator.brokers]


@HOMES
async def test_an_owner_that_was_not_used_of_late_has_no_connection_and_its_client_does_not_notice(home: Home) -> None:
    async with proxied(1, **options(home)) as proxy:
        proxy.brokers.create_topic("t", 1)
        async with await proxy.client(1) as client:
            producer = WireProducer(client, "id", TV2)
            assert await producer.init() == 0
            for _ in range(2):
                assert await producer.produce("1", P0) == [0]
                (owner,) = owners(proxy)
                module.disconnect_idle([owner], trio.current_time() + 1000)
                assert owner.is_connected, "a transaction is open"
                assert await producer.end() == 0
                module.disconnect_idle([owner], owner.used_at + 59)
                assert owner.is_connected
                module.disconnect_idle([owner], owner.used_at + 61)
                assert not owner.is_connected


@HOMES
async def test_of_many_owners_at_rest_those_that_were_used_last_keep_their_connections(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_CONNECTED", 1)
    async with proxied(1, **options(home)) as proxy:
        proxy.brokers.create_topic("t", 1)
        async with await proxy.client(1) as client:
            for name in ("one", "two", "three"):
                producer = WireProducer(client, name, TV2)
                assert await producer.init() == 0
                assert await producer.produce(name, P0) == [0]
                assert await producer.end() == 0
        found = sorted(owners(proxy), key=lambda one: one.used_at)
        module.disconnect_idle(found, trio.current_time())
        assert [one.is_connected for one in found] == [False, False, True]


@HOMES
async def test_a_principal_is_refused_more_ids_than_it_may_have_and_keeps_those_that_it_has(home: Home) -> None:
    async with proxied(1, **options(home, transactional_id_limit=2)) as proxy, await proxy.client(1) as client:
        with capture_logs() as lines:
            found = [await WireProducer(client, name, TV2).init() for name in ("1", "2", "3", "4", "2")]
        refused = ErrorCode.POLICY_VIOLATION
        assert found == [0, 0, refused, refused, 0]
        assert len(owners(proxy)) == 2
        assert await WireProducer(client, "theirs-1", TV2).init() == 0
        told = [line for line in lines if "transactional ids as it may have" in line["event"]]
        assert [(line["principal"], line["limit"]) for line in told] == [("User:ANONYMOUS", 2)]
