"""Whether a group is at the generation under which its offsets were read: classic groups, and the newer ones."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kproxy.codec._generated.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from kproxy.codec._generated.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseDescribedGroup,
    ConsumerGroupDescribeResponseMember,
)
from kproxy.codec._generated.heartbeat import HeartbeatResponse
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.txn.group_checks import check_member
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.upstream_stats import UpstreamStats
from kproxy.testing.fake_broker import Answer, Close, Edit, FakeServer, open_fake_cluster
from kproxy.testing.fake_broker.apis import APIS
from kproxy.testing.fake_broker.consumer_groups import Group, GroupState
from kproxy.testing.fake_broker.fake_api import Api, Call
from kproxy.testing.fake_broker.group_members import Member
from kproxy.txn.txn_error import TxnError
from tests.net.brokers.coordinator_pauses import hurry
from tests.net.txn.instances import Client, stage
from tests.net.txn.log_harness import configured


@asynccontextmanager
async def clustered(brokers: int = 1) -> AsyncIterator[tuple[FakeServer, Cluster]]:
    """A fake cluster that has a group ``g`` at generation 3 with a member ``m``."""
    async with open_fake_cluster(brokers) as fake:
        put_group(fake)
        cluster = Cluster(configured(fake.bootstrap), UpstreamStats(), ClusterMap(), SocketNetwork())
        try:
            yield fake, cluster
        finally:
            cluster.close()


def put_group(fake: FakeServer, generation: int = 3) -> Group:
    group = Group("g", GroupState.STABLE, generation)
    group.members["m"] = Member("m", None, "c", "h", 1 << 50, 1 << 50, 0)
    fake.cluster.groups["g"] = group
    return group


def offsets(generation: int, member: str, instance: str | None = None) -> TransactionOffsets:
    return TransactionOffsets(group_id="g", generation_id=generation, member_id=member, group_instance_id=instance)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.mark.parametrize(
    ("generation", "member", "error"),
    [
        (3, "m", ErrorCode.NONE),
        (2, "m", ErrorCode.ILLEGAL_GENERATION),
        (3, "n", ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, "", ErrorCode.NONE),
        (-1, "n", ErrorCode.UNKNOWN_MEMBER_ID),
        (3, "", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_members_of_classic_groups(generation: int, member: str, error: ErrorCode) -> None:
    async with clustered(3) as (_, cluster):
        assert await check_member(cluster, offsets(generation, member)) == error


async def test_while_members_are_asked_to_join_again_the_generation_is_the_old_one() -> None:
    async with clustered() as (fake, cluster):
        fake.cluster.groups["g"].prepare_rebalance(fake.cluster.clock())
        assert await check_member(cluster, offsets(3, "m")) == 0


@pytest.mark.parametrize(
    ("generation", "member", "error"),
    [
        (3, "m", ErrorCode.NONE),
        (2, "m", ErrorCode.STALE_MEMBER_EPOCH),
        (4, "m", ErrorCode.STALE_MEMBER_EPOCH),
        (3, "n", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_a_member_of_a_newer_group_commits_offsets_at_its_own_epoch_only(
    monkeypatch: pytest.MonkeyPatch, generation: int, member: str, error: ErrorCode
) -> None:
    """KIP-848: a member that was assigned other partitions has a higher epoch; offsets it read before are void."""
    unknown = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    members = [ConsumerGroupDescribeResponseMember(member_id="m", member_epoch=3)]
    described = ConsumerGroupDescribeResponse(
        groups=[ConsumerGroupDescribeResponseDescribedGroup(group_id="g", members=members)]
    )

    def newer(answer: Message) -> None:
        assert isinstance(answer, ApiVersionsResponse)
        answer.api_keys.append(ApiVersionsResponseApiVersion(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1))

    async def describe(call: Call) -> Message:
        return described

    key = ApiKey.CONSUMER_GROUP_DESCRIBE
    monkeypatch.setitem(APIS, key, Api(key, (0, 1), describe))
    async with clustered() as (fake, cluster):
        fake.cluster.control(ApiKey.API_VERSIONS, lambda _: Edit(newer))
        fake.cluster.control(ApiKey.HEARTBEAT, lambda _: Answer(unknown))
        assert await check_member(cluster, offsets(generation, member)) == error


async def test_what_the_coordinator_says_of_an_instance_is_returned() -> None:
    async with clustered() as (fake, cluster):
        answer = HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
        fake.cluster.control(ApiKey.HEARTBEAT, lambda _: Answer(answer))
        assert await check_member(cluster, offsets(3, "m", "i")) == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(("newest", "instance"), [(2, None), (3, "i"), (4, "i")])
async def test_brokers_are_asked_with_the_instance_unless_they_are_too_old(newest: int, instance: str | None) -> None:
    def limited(answer: Message) -> None:
        assert isinstance(answer, ApiVersionsResponse)
        answer.api_keys = [row for row in answer.api_keys if row.api_key != ApiKey.HEARTBEAT]
        answer.api_keys.append(ApiVersionsResponseApiVersion(ApiKey.HEARTBEAT, 0, newest))

    async with clustered() as (fake, cluster):
        fake.cluster.control(ApiKey.API_VERSIONS, lambda _: Edit(limited))
        asked: list[str | None] = []
        fake.cluster.control(ApiKey.HEARTBEAT, lambda call: asked.append(call.request.group_instance_id))
        fake.cluster.groups["g"].members["m"].instance_id = instance
        assert await check_member(cluster, offsets(3, "m", "i")) == 0
        assert asked == [instance]


async def test_it_is_asked_again_where_the_coordinator_moves_and_not_for_ever() -> None:
    async with clustered() as (fake, cluster):
        moved = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
        fake.cluster.control(ApiKey.HEARTBEAT, lambda _: Answer(moved), times=2)
        fake.cluster.control(ApiKey.HEARTBEAT, lambda _: Close(), times=2)
        assert await check_member(cluster, offsets(3, "m")) == 0
        fake.cluster.control(ApiKey.HEARTBEAT, lambda _: Answer(moved))
        assert await check_member(cluster, offsets(3, "m")) == ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestTransactions:
    async def test_a_rebalance_between_offsets_and_commit_aborts(self) -> None:
        async with stage() as cast:
            put_group(cast.fake)
            a, client = await cast.instance(), Client("id")
            await client.init(a)
            await client.write(a, "zombie's", ("t", 0))
            await client.offsets(a, "g", 5, 3, "m")
            cast.fake.cluster.groups["g"].generation = 4
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(a)
            assert cast.visible(a.transactions.views) == []
            assert not list(a.transactions.views.unmirrored_offsets("g"))

    async def test_offsets_of_two_generations_are_refused(self) -> None:
        async with stage() as cast:
            group = put_group(cast.fake)
            a, client = await cast.instance(), Client("id")
            await client.init(a)
            await client.offsets(a, "g", 5, 3, "m")
            await client.offsets(a, "g", 6, 3, "m")
            group.generation = 4
            with pytest.raises(TxnError, match="ILLEGAL_GENERATION"):
                await client.offsets(a, "g", 7, 4, "m")
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(a)
