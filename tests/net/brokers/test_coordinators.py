"""Requests to coordinators: found where they are now, asked again, at versions that they serve."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult,
)
from kproxy.codec._generated.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseDescribedGroup,
)
from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
)
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.find_coordinator import FindCoordinatorResponse
from kproxy.codec._generated.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproxy.codec._generated.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.version_choice import ANY, NoCommonVersion, VersionRange
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.coordinators import TRANSACTION, errors_in
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.produce_stats import ProduceStats
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.upstream_stats import UpstreamStats
from kproxy.testing.fake_broker import Answer, Close, FakeServer, open_fake_cluster
from kproxy.testing.fake_broker.fake_api import Call
from tests.net.brokers.coordinator_pauses import hurry
from tests.net.txn.log_harness import PATIENCE, configured

END = EndTxnRequest("id", 1, 0, True)


@asynccontextmanager
async def clustered(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FakeServer, Cluster, list[int]]]:
    """Three brokers, kproxy's own connections to them, and the versions of the EndTxn requests that come."""
    hurry(monkeypatch)
    versions: list[int] = []

    def note(call: Call) -> None:
        versions.append(call.version)

    async with open_fake_cluster(3) as fake:
        fake.cluster.control(ApiKey.END_TXN, note)
        cluster = Cluster(configured(fake.bootstrap), UpstreamStats(), ClusterMap(), SocketNetwork())
        try:
            yield fake, cluster, versions
        finally:
            cluster.close()


async def ask(cluster: Cluster, versions: VersionRange = ANY) -> EndTxnResponse:
    return await cluster.coordinators.ask("id", END, EndTxnResponse, versions, key_type=TRANSACTION)


async def test_versions_are_as_new_as_allowed_and_what_they_can_not_say_is_taken_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with clustered(monkeypatch) as (_, cluster, versions):
        trimmed: list[int] = []
        for wanted in (ANY, (0, 3), (1, 1)):
            answer = await cluster.coordinators.ask(
                "id", END, EndTxnResponse, wanted, key_type=TRANSACTION, trim=lambda request, at: trimmed.append(at)
            )
            assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert versions == trimmed == [5, 3, 1]
        with pytest.raises(NoCommonVersion):
            await ask(cluster, (90, 99))


async def test_it_is_asked_again_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(monkeypatch) as (fake, cluster, versions):
        busy = EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        fake.cluster.control(ApiKey.END_TXN, lambda _: Answer(busy), times=2)
        fake.cluster.control(ApiKey.END_TXN, lambda _: Close(), times=2)
        assert (await ask(cluster)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert len(versions) == 5
        fake.cluster.control(ApiKey.END_TXN, lambda _: Answer(busy))
        with pytest.raises(OSError, match="no coordinator of id"):
            await ask(cluster)
        assert len(versions) == 15


async def test_it_is_searched_for_once_and_again_when_it_is_elsewhere_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(monkeypatch) as (fake, cluster, _):
        found: list[str] = []
        fake.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: found.append(call.request.key))
        for _ in range(3):
            await ask(cluster)
        assert found == ["id"]
        elsewhere = EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
        fake.cluster.control(ApiKey.END_TXN, lambda _: Answer(elsewhere), times=1)
        await ask(cluster)
        assert found == ["id"] * 2
        fake.cluster.control(ApiKey.END_TXN, lambda _: Close(), times=1)
        await ask(cluster)
        assert found == ["id"] * 3


async def test_who_asks_hears_of_each_request_that_may_have_taken_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(monkeypatch) as (fake, cluster, _):
        codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE]
        left = [Close(), *(Answer(EndTxnResponse(error_code=code)) for code in codes)]
        seen: list[int] = []
        fake.cluster.control(ApiKey.END_TXN, lambda _: left.pop(0) if left else None)
        await cluster.coordinators.ask(
            "id", END, EndTxnResponse, key_type=TRANSACTION, left_open=lambda: seen.append(len(left))
        )
        assert seen == [3, 2, 0]
        await cluster.coordinators.ask(
            "id", END, EndTxnResponse, key_type=TRANSACTION, left_open=lambda: seen.append(len(left))
        )
        assert seen == [3, 2, 0]


async def test_a_name_longer_than_any_topic_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(monkeypatch) as (fake, cluster, _):
        found: list[str] = []
        fake.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: found.append(call.request.key))
        for name in ("n" * 249, "n" * 250):
            for _ in range(2):
                await cluster.coordinators.find(name)
        assert [len(name) for name in found] == [249, 250, 250]


async def test_over_connections_of_its_own_an_id_waits_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(monkeypatch) as (fake, cluster, _), trio.open_nursery() as nursery:
        held, go = trio.Event(), trio.Event()

        async def hold(_: Call) -> None:
            if not held.is_set():
                held.set()
                await go.wait()

        async def over(own: WriterConnections) -> None:
            with trio.fail_after(PATIENCE):
                await cluster.coordinators.ask("id", END, EndTxnResponse, key_type=TRANSACTION, connect=own.connect)

        fake.cluster.control(ApiKey.END_TXN, hold)
        config = configured(fake.bootstrap)
        first, second = (
            WriterConnections(cluster, config, ProduceStats(), nursery, EndOfTurn(nursery)) for _ in range(2)
        )
        async with trio.open_nursery() as asking:
            asking.start_soon(over, first)
            await held.wait()
            await over(second)
            go.set()
        nursery.cancel_scope.cancel()


async def test_what_a_coordinator_serves_and_that_it_can_not_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(monkeypatch) as (fake, cluster, _):
        broker, served = await cluster.coordinators.broker("g")
        assert broker.node_id in cluster.map.brokers
        assert ApiKey.TXN_OFFSET_COMMIT in served
        assert ApiKey.CONSUMER_GROUP_DESCRIBE not in served
        none = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        fake.cluster.control(ApiKey.FIND_COORDINATOR, lambda _: Answer(none), times=1)
        with pytest.raises(OSError, match="other has no coordinator"):
            await cluster.coordinators.broker("other")
        await cluster.coordinators.broker("other")


def test_errors_are_found_in_the_answer_and_in_its_rows() -> None:
    assert errors_in(EndTxnResponse(error_code=7)) == [7]
    assert errors_in(EndTxnResponse()) == []
    rows = [OffsetCommitResponsePartition(0, 3), OffsetCommitResponsePartition(1), OffsetCommitResponsePartition(2, 4)]
    assert errors_in(OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=rows)])) == [3, 4]
    told = [OffsetFetchResponseTopic("t", [OffsetFetchResponsePartition(0, 1, error_code=5)])]
    assert errors_in(OffsetFetchResponse(topics=told, error_code=6)) == [6, 5]
    added = AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult(0, 8)
    topics = [AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult("t", results_by_partition=[added])]
    assert errors_in(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)) == [8]
    state = DescribeTransactionsResponseTransactionState(error_code=9)
    assert errors_in(DescribeTransactionsResponse(transaction_states=[state])) == [9]
    group = ConsumerGroupDescribeResponseDescribedGroup(error_code=10)
    assert errors_in(ConsumerGroupDescribeResponse(groups=[group])) == [10]
