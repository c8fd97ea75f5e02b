"""An application that knows nothing of transactions, in frames through kproxy: OffsetCommits end its transactions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kproxy.codec._generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproxy.codec._generated.leave_group import LeaveGroupRequest
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.service import Transactions
from kproxy.proxy.applications import CommitRule
from tests.net.harness import FrameClient, Proxied, errors_of, eventually, produce, proxied
from tests.net.retrying import Gate
from tests.net.txn.test_rpcs_whole import committed_values

OPTIONS: dict[str, Any] = {"coordinator": Transactions, "transaction_state_log_num_partitions": 4, "instance_id": "box"}
RULES = (CommitRule("out-*", group="g-*"), CommitRule("loud", consumer="quiet"), CommitRule("same-*"))
NAMES = [("out-1", "any", "g-1"), ("loud", "quiet", "h"), ("same-1", "same-1", "h")]
REWIND = ErrorCode.ILLEGAL_GENERATION


@asynccontextmanager
async def stage() -> AsyncIterator[Proxied]:
    async with proxied(**OPTIONS, on_offset_commit=RULES) as proxy:
        proxy.brokers.create_topic("t", 2)
        proxy.brokers.create_topic("in", 1)
        yield proxy


async def write(client: FrameClient, *values: bytes, partition: int = 0) -> list[int]:
    return errors_of(await client.call(produce("t", *values, partition=partition), 7))


async def commit(client: FrameClient, offset: int, *, group: str = "g-1", version: int = 2) -> int:
    """OffsetCommit of one partition; its error code."""
    topics = [OffsetCommitRequestTopic("in", partitions=[OffsetCommitRequestPartition(0, offset)])]
    answer = await client.call(OffsetCommitRequest(group_id=group, topics=topics), version)
    return int(answer.topics[0].partitions[0].error_code)


async def fetched(client: FrameClient, group: str = "g-1") -> int:
    """OffsetFetch of one partition; the offset."""
    answer = await client.call(OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic("in", [0])]), 1)
    return int(answer.topics[0].partitions[0].committed_offset)


async def join(client: FrameClient, group: str = "g-1", protocol: str = "range") -> None:
    """A consumer without a member id joins and, as it is the first, leads."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(protocol, b"")],
    )
    await client.call(request, 0)


async def rewind(client: FrameClient) -> None:
    """What the first refused commit of a consumer makes it do."""
    assert await commit(client, 0) == REWIND


@pytest.mark.parametrize(("producer", "consumer", "group"), NAMES)
@pytest.mark.parametrize("version", [0, 1, 2, 8])
async def test_what_is_written_between_two_commits_shows_with_the_second(
    producer: str, consumer: str, group: str, version: int
) -> None:
    async with (
        stage() as proxy,
        await proxy.client(client_id=producer) as out,
        await proxy.client(client_id=consumer) as reader,
    ):
        assert await commit(reader, 0, group=group) == REWIND
        for at in (1, 2):
            assert await write(out, b"%d" % at) == [0]
            assert await write(out, b"%d" % at, partition=1) == [0]
            assert len(committed_values(proxy)) == at - 1
            assert await commit(reader, at, group=group, version=version) == 0
            assert committed_values(proxy) == committed_values(proxy, 1) == [str(one) for one in range(1, at + 1)]
            assert await fetched(reader, group) == at


async def test_other_clients_write_and_commit_as_ever() -> None:
    async with stage() as proxy, await proxy.client(client_id="other") as client:
        assert await write(client, b"plain") == [0]
        assert await commit(client, 7, group="other") == 0
        assert await fetched(client, "other") == 7


async def test_until_the_consumer_is_known_to_have_begun_at_its_offsets_nothing_is_committed() -> None:
    """A kproxy that has just begun can't know what its former self had aborted."""
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        assert await write(out, b"1") == [ErrorCode.INVALID_TXN_STATE]
        assert await commit(reader, 1) == REWIND
        assert await fetched(reader) == -1
        assert await write(out, b"2") == [0]
        assert await commit(reader, 2) == 0
        assert committed_values(proxy) == ["2"]


async def test_a_consumer_that_joins_and_asks_for_its_offsets_has_begun() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await join(reader)
        await fetched(reader)
        assert await write(out, b"1") == [0]
        assert committed_values(proxy) == []


async def test_a_rebalance_aborts_what_is_open_and_what_comes_late() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await rewind(reader)
        assert await write(out, b"lost") == [0]
        await join(reader)
        assert await write(out, b"late") == [ErrorCode.INVALID_TXN_STATE]
        assert await fetched(reader) == -1
        assert await write(out, b"again") == [0]
        assert await commit(reader, 1) == 0
        assert committed_values(proxy) == ["again"]


async def test_a_consumer_that_keeps_its_partitions_is_told_to_rewind() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await rewind(reader)
        assert await write(out, b"lost") == [0]
        await join(reader, protocol="cooperative-sticky")
        await fetched(reader)
        assert await commit(reader, 1) == REWIND
        assert committed_values(proxy) == []


async def test_a_consumer_that_leaves_takes_what_is_open_with_it() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await rewind(reader)
        assert await write(out, b"lost") == [0]
        await reader.call(LeaveGroupRequest(group_id="g-1", member_id="m"), 0)
        assert await commit(reader, 1) == REWIND
        assert committed_values(proxy) == []


async def test_a_consumers_connection_that_ends_aborts_what_is_open() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out:
        async with await proxy.client() as reader:
            await rewind(reader)
            assert await write(out, b"lost") == [0]
        await eventually(lambda: proxy.stats.clients.connections_open == 1)
        async with await proxy.client() as reader:
            assert await commit(reader, 1) == REWIND
            assert await write(out, b"again") == [0]
            assert await commit(reader, 1) == 0
        assert committed_values(proxy) == ["again"]


async def test_a_producers_connection_that_ends_before_its_answer_aborts_what_is_open() -> None:
    async with stage() as proxy, await proxy.client() as reader:
        await rewind(reader)
        gate = Gate(proxy)
        async with await proxy.client(client_id="out-1") as out:
            await out.send(produce("t", b"1"), 7)
            await gate.wait_reached()
        await eventually(lambda: proxy.stats.clients.connections_open == 1)
        gate.release()
        async with await proxy.client(client_id="out-1") as out:
            assert await write(out, b"1") == [ErrorCode.INVALID_TXN_STATE]
            assert await commit(reader, 1) == REWIND
            assert await write(out, b"1") == [0]
            assert await commit(reader, 1) == 0
        assert committed_values(proxy) == ["1"]


async def test_a_refused_batch_aborts_what_is_open() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await rewind(reader)
        assert await write(out, b"lost") == [0]
        broken = produce("t", b"2")
        broken.topic_data[0].partition_data[0].records = b"nonsense"
        assert errors_of(await out.call(broken, 7)) == [ErrorCode.INVALID_RECORD]
        assert await commit(reader, 1) == REWIND
        assert await fetched(reader) == -1
        assert await write(out, b"3") == [0]
        assert await commit(reader, 1) == 0
        assert committed_values(proxy) == ["3"]


async def test_commits_that_are_sent_without_a_wait_are_decided_in_order() -> None:
    async with stage() as proxy, await proxy.client(client_id="same-1") as client:
        assert await commit(client, 0, group="h") == REWIND
        for at in range(1, 6):
            await client.send(produce("t", b"%d" % at), 7)
            topics = [OffsetCommitRequestTopic("in", partitions=[OffsetCommitRequestPartition(0, at)])]
            await client.send(OffsetCommitRequest(group_id="h", topics=topics), 2)
        for _ in range(5):
            assert errors_of(await client.receive()) == [0]
            assert (await client.receive()).topics[0].partitions[0].error_code == 0
        assert await fetched(client, "h") == 5
        assert committed_values(proxy) == ["1", "2", "3", "4", "5"]


async def test_applications_that_do_nothing_are_forgotten_when_there_are_many() -> None:
    async with stage() as proxy, await proxy.client(client_id="same-1") as client:
        implicit_transactions = proxy.transactions.implicit_transactions
        assert await commit(client, 0, group="h") == REWIND
        kept = implicit_transactions.of_consumer("same-1", "h")
        for at in range(2_500):
            assert implicit_transactions.of(f"same-x{at}") is not None
        assert implicit_transactions.of_consumer("same-1", "h") is kept
        assert await write(client, b"1") == [0]
        assert await commit(client, 1, group="h") == 0
        assert len(implicit_transactions._applications._applications) <= 1_000


async def test_each_request_is_a_transaction() -> None:
    async with proxied(**OPTIONS, per_request=("one-*",)) as proxy, await proxy.client(client_id="one-1") as client:
        proxy.brokers.create_topic("t", 2)
        both = produce("t", b"1")
        both.topic_data[0].partition_data += produce("t", b"1", partition=1).topic_data[0].partition_data
        assert errors_of(await client.call(both, 7)) == [0, 0]
        assert committed_values(proxy) == committed_values(proxy, 1) == ["1"]
        both.topic_data[0].partition_data[1].records = b"nonsense"
        errors = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_RECORD]
        assert errors_of(await client.call(both, 7)) == errors
        assert await write(client, b"2") == [0]
        assert committed_values(proxy) == ["1", "2"]


async def test_a_partition_that_can_not_be_written_takes_the_request_with_it() -> None:
    async with proxied(**OPTIONS, per_request=("one-*",)) as proxy, await proxy.client(client_id="one-1") as client:
        proxy.brokers.create_topic("t", 2)
        both = produce("t", b"1")
        both.topic_data[0].partition_data += produce("t", b"1", partition=9).topic_data[0].partition_data
        assert all(errors_of(await client.call(both, 7)))
        for at in range(5):
            await client.send(produce("t", b"%d" % at), 7)
        for _ in range(5):
            assert errors_of(await client.receive()) == [0]
        assert committed_values(proxy) == ["0", "1", "2", "3", "4"]
