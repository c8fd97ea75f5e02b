"""A consumer that its group has replaced, and whose producer says nothing of that: offsets of versions before KIP-447.

It has read its input, and its successor reads the same: what both write of it is two copies, if both are committed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproxy.codec._generated.leave_group import LeaveGroupRequest
from kproxy.codec._generated.sync_group import SyncGroupRequest
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.txn.ids import is_transactional_producer_id
from tests.net.harness import FrameClient, Proxied, eventually, proxied
from tests.net.txn.broker.native_stage import values
from tests.net.txn.test_rpcs_whole import OPTIONS, committed_values
from tests.net.txn.wire_producer import TV1, WireProducer

HOMES = pytest.mark.parametrize("home", [Home.KPROXY, Home.BROKER_FENCED])
PLACE = ("t", 0)
#: Of librdkafka before 1.6, Java before 2.5, kafkajs: nothing is said of members.
OLD = {**TV1, ApiKey.TXN_OFFSET_COMMIT: 2}
REFUSED = ErrorCode.INVALID_TXN_STATE
SESSION_MS = 10_000


@dataclass
class Member:
    """A consumer in frames."""

    client: FrameClient
    member_id: str = ""
    generation: int = -1

    async def join(self) -> None:
        """JoinGroup and SyncGroup, under the former member id."""
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest(
            "g", SESSION_MS, SESSION_MS, self.member_id, protocol_type="consumer", protocols=protocols
        )
        answer: Any = await self.client.call(request, 2)
        assert not answer.error_code
        self.member_id, self.generation = answer.member_id, answer.generation_id
        sync = SyncGroupRequest("g", self.generation, self.member_id)
        assert not (await self.client.call(sync, 1)).error_code

    async def beat(self) -> int:
        """Heartbeat; the error code."""
        answer = await self.client.call(HeartbeatRequest("g", self.generation, self.member_id), 1)
        return int(answer.error_code)

    async def leave(self) -> None:
        """LeaveGroup."""
        await self.client.call(LeaveGroupRequest("g", self.member_id), 1)


@dataclass
class Copier:
    """A consumer and a producer with one client.id."""

    member: Member
    producer: WireProducer

    async def write(self, value: str) -> None:
        """Of a transaction, all but the offsets and the end."""
        assert await self.producer.add(PLACE) == [0]
        assert await self.producer.produce(value, PLACE) == [0]
        assert await self.producer.add_offsets("g") == 0

    async def offsets(self, offset: int) -> int:
        """The offsets; the error code."""
        [error] = await self.producer.commit_offsets("g", [("t", 1, offset)])
        return error

    async def copy(self, value: str, offset: int) -> bool:
        """A transaction; whether it was committed. It is aborted where anything is refused."""
        await self.write(value)
        done = not await self.offsets(offset) and not await self.producer.end()
        if not done:
            await self.producer.end(committed=False)
        return done


@asynccontextmanager
async def scene(home: Home) -> AsyncIterator[Proxied]:
    async with proxied(**{**OPTIONS, "transactions_home": (HomeRule("*", home),)}) as proxy:
        proxy.brokers.create_topic("t", 2)
        yield proxy


@asynccontextmanager
async def copier(proxy: Proxied, name: str, client_id: str | None = "copier", **versions: int) -> AsyncIterator[Copier]:
    async with await proxy.client(client_id=client_id) as reader, await proxy.client(client_id=client_id) as writer:
        made = Copier(Member(reader), WireProducer(writer, name, {**OLD, ApiKey.TXN_OFFSET_COMMIT: 2, **versions}))
        assert await made.producer.init() == 0
        yield made


def output(proxy: Proxied) -> list[str]:
    """What a reader of committed records sees, in either home."""
    log = proxy.brokers.topics["t"].partitions[0].log
    data = log.read(0, 1 << 30, whole_first_batch=True)
    own = bool(data) and is_transactional_producer_id(int.from_bytes(data[43:51], "big"))
    return committed_values(proxy) if own else values(proxy.brokers)


def replace(proxy: Proxied) -> None:
    """The group takes the member for dead."""
    group = proxy.brokers.groups["g"]
    group.members.clear()
    group.generation += 1


@HOMES
@pytest.mark.parametrize("version", [0, 2, 3])
async def test_a_zombies_offsets_are_refused_and_its_output_is_not_a_second_copy(home: Home, version: int) -> None:
    async with scene(home) as proxy, copier(proxy, "one") as zombie, copier(proxy, "two", "other") as next_one:
        zombie.producer.versions = {**OLD, ApiKey.TXN_OFFSET_COMMIT: version}
        await zombie.member.join()
        assert await zombie.copy("1", 1)
        await zombie.write("2")
        replace(proxy)
        await next_one.member.join()
        assert await next_one.copy("2", 2)
        refused = ErrorCode.UNKNOWN_MEMBER_ID if version >= 3 else REFUSED
        assert await zombie.offsets(2) == refused
        assert await zombie.producer.end(committed=False) == 0
        await eventually(lambda: output(proxy) == ["1", "2"])


@HOMES
async def test_a_member_that_has_joined_again_continues(home: Home) -> None:
    async with scene(home) as proxy, copier(proxy, "one") as one:
        await one.member.join()
        assert await one.copy("1", 1)
        await one.member.join()
        assert await one.copy("2", 2)
        replace(proxy)
        assert not await one.copy("3", 3)
        assert await one.member.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        one.member.member_id = ""
        await one.member.join()
        assert await one.copy("3", 3)
        await eventually(lambda: output(proxy) == ["1", "2", "3"])


@HOMES
async def test_who_is_known_by_its_heartbeats_is_checked_as_well(home: Home) -> None:
    """kproxy was restarted meanwhile, or another has had its members."""
    async with (
        scene(home) as proxy,
        copier(proxy, "one") as one,
        await proxy.client(client_id="elsewhere") as elsewhere,
    ):
        joined = Member(elsewhere)
        await joined.join()
        one.member.member_id, one.member.generation = joined.member_id, joined.generation
        replace(proxy)
        assert await one.copy("1", 1), "nothing is known of a connection that has not spoken"
        assert await one.member.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert not await one.copy("2", 2)


@HOMES
@pytest.mark.parametrize("version", [0, 2, 3])
async def test_a_zombie_whose_consumer_connects_again_is_refused_once(home: Home, version: int) -> None:
    """Java's consumer takes its coordinator for gone when it wakes. It may be at another kproxy from then on."""
    async with scene(home) as proxy, copier(proxy, "one") as one:
        one.producer.versions = {**OLD, ApiKey.TXN_OFFSET_COMMIT: version}
        await one.member.join()
        await one.member.client.stream.aclose()
        await eventually(lambda: proxy.stats.clients.connections_open == 1)
        assert await one.copy("1", 1), "it is a member as long as its group waits for it"
        replace(proxy)
        assert not await one.copy("2", 2)
        assert await one.copy("2", 2)
        await eventually(lambda: output(proxy) == ["1", "2"])


@HOMES
async def test_who_was_not_polled_and_has_left_by_itself_is_refused_until_it_is_a_member_again(home: Home) -> None:
    async with scene(home) as proxy, copier(proxy, "one") as slow:
        await slow.member.join()
        await slow.member.leave()
        replace(proxy)
        assert not await slow.copy("1", 1)
        assert not await slow.copy("1", 1)
        slow.member.member_id = ""
        await slow.member.join()
        assert await slow.copy("1", 1)
        await eventually(lambda: output(proxy) == ["1"])


@HOMES
@pytest.mark.parametrize("member_id", [None, ""])
async def test_who_joins_again_in_a_transaction_may_have_read_what_is_anothers(
    home: Home, member_id: str | None
) -> None:
    async with scene(home) as proxy, copier(proxy, "one") as one:
        await one.member.join()
        await one.write("1")
        if member_id is not None:
            replace(proxy)
            one.member.member_id = member_id
        await one.member.join()
        assert await one.offsets(1) == REFUSED
        assert await one.producer.end(committed=False) == 0
        assert await one.copy("1", 1)
        await eventually(lambda: output(proxy) == ["1"])


@HOMES
@pytest.mark.parametrize("who", ["closed", "another's", "nobody's", "two"])
async def test_offsets_stay_as_they_were_sent_where_it_is_not_sure_whose_they_are(home: Home, who: str) -> None:
    client_id = {"another's": "other", "nobody's": ""}.get(who, "copier")
    async with (
        scene(home) as proxy,
        copier(proxy, "one", client_id if who == "nobody's" else "copier") as one,
        await proxy.client(client_id=client_id) as second,
    ):
        member = Member(second) if who == "another's" else one.member
        await member.join()
        if who == "two":
            proxy.brokers.groups["g"].members["n"] = proxy.brokers.groups["g"].members[member.member_id]
            await Member(second, "n", 1).beat()
        if who == "closed":
            await member.leave()
            await member.client.stream.aclose()
            await eventually(lambda: proxy.stats.clients.connections_open == 2)
        replace(proxy)
        assert await one.copy("1", 1)
