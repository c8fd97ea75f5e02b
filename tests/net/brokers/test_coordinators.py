"""Requests to coordinators: found where they are now, asked again, at versions that they serve."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
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
from kproxy.net.brokers import coordinators as coordinator_lookup
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.coordinators import TRANSACTION, ask_coordinator, errors_in, serves
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import Answer, Close, FakeServer, open_fake_cluster
from kproxy.testing.fake_broker.fake_api import Call
from tests.net.txn.log_harness import configured

END = EndTxnRequest("id", 1, 0, True)


@asynccontextmanager
async def clustered(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FakeServer, Cluster, list[int]]]:
    """Three brokers, kproxy's own connections to them, and the versions of the EndTxn requests that come."""
    monkeypatch.setattr(coordinator_lookup, "_PAUSE_SECONDS", 0.005)
    versions: list[int] = []

    def note(call: Call) -> None:
        versions.append(call.version)

    async with open_fake_cluster(3) as fake:
        fake.cluster.control(ApiKey.END_TXN, note)
        cluster = Cluster(configured(fake.bootstrap), Stats(), ClusterMap(), SocketNetwork())
        try:
            yield fake, cluster, versions
        finally:
            cluster.close()


async def test_versions_are_as_new_as_allowed_or_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(monkeypatch) as (_, cluster, versions):
        trimmed: list[int] = []
        for version, newest in ((None, 99), (None, 3), (1, 99)):
            answer = await ask_coordinator(
                cluster,
                "id",
                END,
                version,
                key_type=TRANSACTION,
                newest=newest,
                trim=lambda request, at: trimmed.append(at),
            )
            assert isinstance(answer, EndTxnResponse)
            assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert versions == trimmed == [5, 3, 1]


async def test_it_is_asked_again_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(monkeypatch) as (fake, cluster, versions):
        busy = EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        fake.cluster.control(ApiKey.END_TXN, lambda _: Answer(busy), times=2)
        fake.cluster.control(ApiKey.END_TXN, lambda _: Close(), times=2)
        assert await ask_coordinator(cluster, "id", END, key_type=TRANSACTION) is not None
        assert len(versions) == 5
        fake.cluster.control(ApiKey.END_TXN, lambda _: Answer(busy))
        assert await ask_coordinator(cluster, "id", END, key_type=TRANSACTION) is None
        assert len(versions) == 15


async def test_what_a_coordinator_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(monkeypatch) as (_, cluster, _versions):
        assert await serves(cluster, "g", ApiKey.TXN_OFFSET_COMMIT)
        assert not await serves(cluster, "g", ApiKey.CONSUMER_GROUP_DESCRIBE)


def test_errors_are_found_in_the_answer_and_in_its_rows() -> None:
    assert errors_in(EndTxnResponse(error_code=7)) == {7}
    rows = [OffsetCommitResponsePartition(0, 3), OffsetCommitResponsePartition(1, 4)]
    assert errors_in(OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=rows)])) == {0, 3, 4}
    told = [OffsetFetchResponseTopic("t", [OffsetFetchResponsePartition(0, 1, error_code=5)])]
    assert errors_in(OffsetFetchResponse(topics=told, error_code=6)) == {5, 6}
