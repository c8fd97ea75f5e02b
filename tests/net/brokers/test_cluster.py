"""kproxy's own view of the cluster."""

import gc
from typing import Self

import pytest
import trio
import trio.testing

from kproxy.budget import RequestBudget
from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.primitives import Buffer
from kproxy.dedup.producer_ids import FIRST_RESERVED
from kproxy.errors import RemoteProtocolError
from kproxy.testing.fake_broker import Answer, Delay
from tests.net.harness import eventually, proxied, running


async def test_a_coordinator_is_the_brokers() -> None:
    async with proxied(3) as proxy:
        for group in ("a", "b", "c", "d"):
            broker = await proxy.cluster.coordinators.find(group)
            wanted = proxy.brokers.coordinator_of(group)
            assert wanted is not None
            assert broker.node_id == wanted.node_id


async def test_a_producer_id_is_asked_for_again_while_a_broker_has_none_to_give() -> None:
    async with proxied() as proxy:
        none = Answer(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        control = proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda _: none, times=3)
        first, second = await proxy.cluster.new_producer_id(), await proxy.cluster.new_producer_id()
        assert (control.hits, second > first >= 0) == (3, True)
        proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda _: none)
        with pytest.raises(OSError, match="error 14"):
            await proxy.cluster.new_producer_id()


async def test_an_id_of_kproxys_own_range_is_asked_for_again() -> None:
    async with proxied() as proxy:
        high = Answer(InitProducerIdResponse(producer_id=FIRST_RESERVED))
        control = proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda _: high, times=3)
        assert 0 <= await proxy.cluster.new_producer_id() < FIRST_RESERVED
        assert control.hits == 3
        proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda _: high)
        with pytest.raises(OSError, match=r"ids of 2\^61 and more"):
            await proxy.cluster.new_producer_id()


async def test_questions_go_to_the_next_broker_when_one_fails() -> None:
    async with proxied(2) as proxy:
        await proxy.fake.stop_broker(1)
        assert (await proxy.cluster.coordinators.find("g")).node_id == 2


async def test_a_slow_answer_holds_up_no_other_question() -> None:
    async with proxied() as proxy, trio.open_nursery() as nursery:
        await proxy.cluster.coordinators.find("known")
        proxy.brokers.control(ApiKey.FIND_COORDINATOR, lambda _: Delay(3600), times=1)
        nursery.start_soon(proxy.cluster.coordinators.find, "slow")
        await trio.testing.wait_all_tasks_blocked(0.05)
        with trio.fail_after(120):
            await proxy.cluster.coordinators.find("fast")
        nursery.cancel_scope.cancel()


async def test_a_broker_is_asked_over_four_connections_at_most() -> None:
    async with proxied() as proxy, trio.open_nursery() as nursery:
        control = proxy.brokers.control(ApiKey.FIND_COORDINATOR, lambda _: Delay(3600))
        for number in range(12):
            nursery.start_soon(proxy.cluster.coordinators.find, f"slow {number}")
            await trio.testing.wait_all_tasks_blocked(0.05)
        assert control.hits == 4  # each waits for the response to one
        nursery.cancel_scope.cancel()


async def test_versions_are_asked_once_and_again_after_a_loss() -> None:
    asked: list[int] = []
    async with proxied() as proxy:
        broker = proxy.cluster.map.brokers[1]
        proxy.brokers.control(ApiKey.API_VERSIONS, lambda call: asked.append(call.connection))
        first = await proxy.cluster.versions(broker)
        before = len(asked)
        assert await proxy.cluster.versions(broker) is first
        assert len(asked) == before
        broker.versions = None
        assert await proxy.cluster.versions(broker) == first
        assert len(asked) == before + 1


async def test_a_cluster_that_is_down_at_the_start_is_warned_of_once_and_found_when_it_is_there(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with proxied() as there:
        port = there.fake.cluster.brokers[1].port
        await there.fake.stop_broker(1)
        async with running(f"127.0.0.1:{port}") as proxy:
            await eventually(lambda: proxy.stats.upstream.errors.get("metadata", 0) > 3)
            assert not proxy.stats.upstream.ready
            await there.fake.start_broker(1)
            await eventually(lambda: proxy.stats.upstream.ready)
            assert proxy.stats.upstream.brokers == 1
    said = capfd.readouterr()
    assert (said.out + said.err).count("no broker reachable") == 1


async def test_a_doubt_brings_a_refresh_soon() -> None:
    async with proxied(2) as proxy:
        await proxy.fake.stop_broker(2)
        async with await proxy.client(2) as client:
            await client.stream.send_all(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")
            assert await client.ended()
        await eventually(lambda: proxy.stats.upstream.brokers == 1)
        chosen = {broker.node_id for broker in (proxy.cluster.any_broker() for _ in range(4)) if broker is not None}
        assert chosen == {1}


async def test_a_broker_that_knows_of_no_broker_is_not_believed() -> None:
    """Once kproxy served nobody until its next refresh."""
    async with proxied() as proxy:
        proxy.brokers.control(ApiKey.METADATA, lambda _: Answer(MetadataResponse()), times=1)
        with pytest.raises(RemoteProtocolError, match="no brokers"):
            await proxy.cluster.refresh()
        assert proxy.cluster.any_broker() is not None
        await proxy.cluster.refresh()


async def test_a_failed_question_leaves_nothing_in_memory() -> None:
    """Once a wrong response stayed in memory until Python's collector found it."""
    async with proxied() as proxy:
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                with pytest.raises(OSError):
                    await proxy.cluster.ask_any(MetadataRequest(topics=[]), Refused)
            assert not [one for one in gc.get_objects() if isinstance(one, Refused)]
        finally:
            gc.enable()


class Refused(MetadataResponse):
    """A response that is refused once it is read."""

    @classmethod
    def _read(cls, buf: Buffer, pos: int, version: int, budget: RequestBudget) -> tuple[Self, int]:
        read, _ = super()._read(buf, pos, version, budget)
        raise OSError(f"{len(read.brokers)} brokers")
