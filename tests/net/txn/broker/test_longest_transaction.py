"""How long the brokers let a transaction be open."""

from dataclasses import replace
from typing import Any

import pytest

from kproxy.codec._generated.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseDescribeConfigsResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.broker.longest_transaction import LongestTransaction
from kproxy.testing.fake_broker import Answer, Edit
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


async def test_a_cluster_that_is_away_is_an_error_that_says_so() -> None:
    async with stage() as cast:
        kproxy = await cast.kproxy()
        await cast.server.stop_broker(1)
        with pytest.raises(TxnError, match="no settings") as caught:
            await LongestTransaction(kproxy.cluster, 5_000).ms("id")
        assert caught.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
