"""How long the brokers let a transaction be open."""

from dataclasses import replace
from typing import Any

import pytest

from kproxy.codec._generated.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseDescribeConfigsResourceResult,
    DescribeConfigsResponseDescribeConfigsResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.broker.longest_transaction import LongestTransaction
from kproxy.testing.fake_broker import Answer, Edit
from kproxy.testing.fake_broker.apis import APIS
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.native_stage import stage


async def test_a_broker_tells_its_own_limit() -> None:
    async with stage() as cast:
        cast.server.cluster.config = replace(cast.server.cluster.config, transaction_max_timeout_ms=1_234)
        cluster = (await cast.kproxy()).cluster
        assert await LongestTransaction(cluster, 5_000).ms("id") == 1_234


def _without_settings(answer: Any) -> None:
    answer.api_keys = [row for row in answer.api_keys if row.api_key != ApiKey.DESCRIBE_CONFIGS]


async def test_where_brokers_do_not_serve_their_settings_kproxys_own_limit_counts() -> None:
    async with stage() as cast:
        cast.server.cluster.control(ApiKey.API_VERSIONS, lambda _: Edit(_without_settings))
        assert await LongestTransaction((await cast.kproxy()).cluster, 5_000).ms("id") == 5_000


async def test_where_brokers_refuse_to_tell_kproxys_own_limit_counts() -> None:
    async with stage() as cast:
        row = DescribeConfigsResponseDescribeConfigsResult(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        refused = Answer(DescribeConfigsResponse(results=[row]))
        cast.server.cluster.control(ApiKey.DESCRIBE_CONFIGS, lambda _: refused)
        assert await LongestTransaction((await cast.kproxy()).cluster, 5_000).ms("id") == 5_000


def _settings(told: str | None) -> Answer:
    rows = [
        DescribeConfigsResponseDescribeConfigsResourceResult("transaction.timeout.ms", "7"),
        DescribeConfigsResponseDescribeConfigsResourceResult("transaction.max.timeout.ms", told),
    ]
    return Answer(DescribeConfigsResponse(results=[DescribeConfigsResponseDescribeConfigsResult(configs=rows)]))


@pytest.mark.parametrize(("told", "ms"), [("1234", 1_234), (None, 5_000), ("", 5_000)])
async def test_of_the_settings_that_a_broker_tells_one_counts_if_it_has_a_value(told: str | None, ms: int) -> None:
    async with stage() as cast:
        cast.server.cluster.control(ApiKey.DESCRIBE_CONFIGS, lambda _: _settings(told))
        assert await LongestTransaction((await cast.kproxy()).cluster, 5_000).ms("id") == ms


async def test_a_broker_of_kafka_0_11_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_the_first(answer: Any) -> None:
        (row,) = (row for row in answer.api_keys if row.api_key == ApiKey.DESCRIBE_CONFIGS)
        row.min_version = row.max_version = 0

    monkeypatch.setitem(APIS, ApiKey.DESCRIBE_CONFIGS, replace(APIS[ApiKey.DESCRIBE_CONFIGS], versions=(0, 0)))
    async with stage() as cast:
        cast.server.cluster.control(ApiKey.API_VERSIONS, lambda _: Edit(only_the_first))
        cast.server.cluster.control(ApiKey.DESCRIBE_CONFIGS, lambda _: _settings("1234"))
        assert await LongestTransaction((await cast.kproxy()).cluster, 5_000).ms("id") == 1_234


async def test_after_an_error_the_coordinator_is_asked_for_again() -> None:
    async with stage(brokers=2) as cast:
        longest = LongestTransaction((await cast.kproxy()).cluster, 5_000)
        await longest.ms("id")
        coordinator = cast.server.cluster.coordinator_of("id")
        assert coordinator is not None
        await cast.server.stop_broker(coordinator.node_id)
        with pytest.raises(TxnError, match="no settings"):
            await longest.ms("id")
        assert await longest.ms("id") == 900_000


async def test_a_cluster_that_is_away_is_an_error_that_says_so() -> None:
    async with stage() as cast:
        kproxy = await cast.kproxy()
        await cast.server.stop_broker(1)
        with pytest.raises(TxnError, match="no settings") as caught:
            await LongestTransaction(kproxy.cluster, 5_000).ms("id")
        assert caught.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
