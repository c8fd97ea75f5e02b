"""How long the brokers let a transaction be open."""

from dataclasses import replace

import pytest

from kproxy.codec._generated.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseDescribeConfigsResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.net.txn.broker.longest_transaction import LongestTransaction
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.native_stage import stage


async def test_a_broker_tells_its_own_limit() -> None:
    async with stage() as cast:
        cast.server.cluster.config = replace(cast.server.cluster.config, transaction_max_timeout_ms=1_234)
        cluster = (await cast.kproxy()).cluster
        assert await LongestTransaction(cluster, 5_000).ms("id") == 1_234


@pytest.mark.parametrize("why", ["not served", "refused"])
async def test_where_it_is_not_told_kproxys_own_counts(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as cast:
        cluster = (await cast.kproxy()).cluster
        broker = await cluster.coordinator("id", 1)
        assert broker is not None
        if why == "not served":
            broker.versions = {key: row for key, row in (await cluster.versions(broker)).items() if key != 32}
        else:
            await cluster.versions(broker)
            client = await cluster.client(broker.address)
            call = client.call

            async def refused(request: Message, version: int | None = None) -> Message:
                if request.API_KEY != ApiKey.DESCRIBE_CONFIGS:
                    return await call(request, version)
                row = DescribeConfigsResponseDescribeConfigsResult(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                return DescribeConfigsResponse(results=[row])

            monkeypatch.setattr(client, "call", refused)
        assert await LongestTransaction(cluster, 5_000).ms("id") == 5_000


async def test_a_cluster_that_is_away_is_an_error_that_says_so() -> None:
    async with stage() as cast:
        kproxy = await cast.kproxy()
        await cast.server.stop_broker(1)
        with pytest.raises(TxnError, match="no settings") as caught:
            await LongestTransaction(kproxy.cluster, 5_000).ms("id")
        assert caught.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
