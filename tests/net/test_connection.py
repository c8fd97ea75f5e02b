"""The pump of a connection: order, resends, back-pressure, what ends a connection, and that nothing is left of it."""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.metadata import MetadataResponse, MetadataResponseTopic
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.connection_state import ConnectionEvent
from kproxy.net.upstream import Upstream
from kproxy.testing.fake_broker import Answer, Call, Close, CloseAfter, Delay, Drop, Edit
from kproxy.testing.fake_broker.controls import Fault
from tests.net.harness import (
    FrameClient,
    Proxied,
    errors_of,
    eventually,
    fetch,
    metadata,
    produce,
    proxied,
    running,
    values_in,
)
from tests.net.retrying import Gate

pytestmark = pytest.mark.idle_clock

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_who_waits_until_a_connection_is_read_learns_that_it_waits_for_memory() -> None:
    """The one that waits may hold that memory."""
    async with proxied() as proxy, await proxy.client(1) as client:
        await client.call(metadata("t"), 4)
        (connection,) = proxy.server._connections
        told: list[bool] = []
        budget, elder, others = connection.budget, object(), object()
        await client.stream.send_all(client.encode(metadata("t"), 4)[:20])
        await eventually(lambda: connection._splitter.held == 20)
        budget.elder = elder
        budget.hold(others, 2 * proxy.config.buffer_memory)
        connection.tell_taken(lambda: told.append(connection.has_taken(connection.arrived())))
        await client.stream.send_all(b"more")
        await eventually(lambda: bool(told))
        assert told == [True]
        budget.hold(others, 0)


async def test_answers_come_in_the_order_of_the_requests_though_produce_is_slow() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=0.1))
        async with await proxy.client(1) as client:
            await client.send(produce("t", b"a"), 9)
            await client.send(metadata("t"), 4)
            await client.send(produce("t", b"b"), 3)
            newer = bytearray(client.encode(ApiVersionsRequest(), 4))
            newer[6:8] = b"\0\6"
            await client.stream.send_all(newer)  # answered by kproxy itself, at once
            await client.send(produce("t", b"c", acks=1), 7)
            assert errors_of(await client.receive()) == [0]
            assert (await client.receive()).topics[0].name == "t"
            assert errors_of(await client.receive()) == [0]
            frame = await client.frame()
            assert struct.unpack(">ihihhh", frame) == (4, ErrorCode.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, 0, 5)
            client._sent.pop(0)
            assert errors_of(await client.receive()) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c"]


async def test_many_requests_at_once_are_all_written_in_order() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client:
            frames = [client.encode(produce("t", b"%d" % number), 8) for number in range(200)]
            await client.stream.send_all(b"".join(frames))
            for _ in frames:
                assert errors_of(await client.receive()) == [0]
        assert values_in(proxy.brokers, "t") == [b"%d" % number for number in range(200)]


async def test_clients_at_once_do_not_get_each_others_bytes() -> None:
    count = 60
    async with proxied() as proxy:

        async def send(name: str) -> None:
            async with await proxy.client(1) as client:
                data = b"".join(
                    client.encode(produce(name, name.encode() * 30_000, b"%d" % number), 8) for number in range(count)
                )
                async with trio.open_nursery() as inner:
                    inner.start_soon(client.stream.send_all, data)
                    for _ in range(count):
                        assert errors_of(await client.receive()) == [0]

        async with trio.open_nursery() as nursery:
            for name in "abc":
                proxy.brokers.create_topic(name)
                nursery.start_soon(send, name)
        for name in "abc":
            values = values_in(proxy.brokers, name)
            assert values[1::2] == [b"%d" % number for number in range(count)]
            assert set(values[::2]) == {name.encode() * 30_000}


@pytest.mark.parametrize("acks", [0, 1])
async def test_weak_acks_are_strengthened_and_zero_gets_no_answer(acks: int) -> None:
    seen: list[int] = []
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")

        def look(call: Call) -> None:
            seen.append(call.request.acks)

        proxy.brokers.control(ApiKey.PRODUCE, look)
        async with await proxy.client(1) as client:
            await client.stream.send_all(client.encode(produce("t", b"a", acks=acks), 8, silent=acks == 0))
            if acks:
                assert errors_of(await client.receive()) == [0]
            assert (await client.call(metadata("t"), 1)).topics[0].name == "t"  # nothing of the first one before it
        await eventually(lambda: values_in(proxy.brokers, "t") == [b"a"])
    assert seen == [-1]


async def test_acks_0_is_written_though_the_client_goes_at_once() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=0.05))
        async with await proxy.client(1) as client:
            frames = [client.encode(produce("t", b"%d" % number, acks=0), 2 + number % 2 * 5) for number in (1, 3)]
            await client.stream.send_all(b"".join(frames))
        await eventually(lambda: values_in(proxy.brokers, "t") == [b"1", b"3"])


# -- resends


@pytest.mark.parametrize("fault", [CloseAfter(), Close()])
async def test_a_connection_lost_under_a_produce_neither_loses_nor_doubles(fault: Fault) -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda call: fault if b"x2" in call.request.topic_data[0].partition_data[
            0
        ].records.tobytes() else None, times=1)  # fmt: skip
        async with await proxy.client(1) as client:
            for number in range(5):
                await client.send(produce("t", b"x%d" % number), 8)
            for _ in range(5):
                assert errors_of(await client.receive()) == [0]
            assert errors_of(await client.call(produce("t", b"x5"), 8)) == [0]
        assert values_in(proxy.brokers, "t") == [b"x%d" % number for number in range(6)]


async def test_what_waits_after_a_lost_connection_is_sent_though_no_request_follows() -> None:
    """The second batch has to wait for the first of its producer id, whose connection is lost."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: CloseAfter(), times=1)
        async with await proxy.client(1) as client:
            await client.stream.send_all(b"".join(client.encode(produce("t", value), 8) for value in (b"a", b"b")))
            assert [errors_of(await client.receive()) for _ in range(2)] == [[0], [0]]
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


async def test_a_leader_that_moves_gets_the_batch_and_the_next_request_is_refused_once() -> None:
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", 1, 2)
        async with await proxy.client(1) as client, await proxy.client(2) as other:
            assert errors_of(await client.call(produce("t", b"a"), 8)) == [0]
            proxy.brokers.move_leader("t", 0, 2)
            assert errors_of(await client.call(produce("t", b"b"), 8)) == [0]
            told = produce("t", b"c")
            assert errors_of(await client.call(told, 8)) == [NOT_LEADER]
            assert errors_of(await client.call(told, 8)) == [0]
            assert errors_of(await other.call(produce("t", b"d"), 8)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d"]


async def test_what_a_client_sends_to_the_new_leader_waits_for_what_it_sent_to_the_former_one() -> None:
    """librdkafka counts requests in flight by broker: when it learns of the new leader it continues there at once."""
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", 1, 2)
        gate = Gate(proxy, b"a")
        async with await proxy.client(1) as client, await proxy.client(2) as other:
            await client.send(produce("t", b"a", timeout_ms=5000), 8)
            await gate.wait_reached()
            proxy.brokers.move_leader("t", 0, 2)
            await other.send(produce("t", b"b", timeout_ms=5000), 8)
            await trio.testing.wait_all_tasks_blocked(0.05)
            gate.release()
            assert errors_of(await client.receive()) == [0]
            assert errors_of(await other.receive()) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


async def test_a_connection_that_has_to_end_waits_for_no_outcome_of_another() -> None:
    """A client that waits for its end would wait as long."""
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", 1, 2)
        gate = Gate(proxy, b"a")
        async with await proxy.client(1) as client, await proxy.client(2) as other:
            await client.send(produce("t", b"a"), 8)
            await gate.wait_reached()
            proxy.brokers.move_leader("t", 0, 2)
            await other.send(produce("t", b"b"), 8)
            await trio.testing.wait_all_tasks_blocked(0.05)
            (ending,) = (one for one in proxy.server._connections if one.node_id == 2)
            ending.happens(ConnectionEvent.HAS_TO_END)
            await eventually(lambda: ending not in proxy.server._connections)
            gate.release()
            assert errors_of(await client.receive()) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]


async def test_a_broker_killed_and_back_under_load_loses_and_doubles_nothing() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client, trio.open_nursery() as nursery:

            async def restart() -> None:
                await eventually(lambda: len(values_in(proxy.brokers, "t")) > 10)
                await proxy.fake.stop_broker(1)
                await trio.sleep(0.05)
                await proxy.fake.start_broker(1)

            proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(after=0.002))
            nursery.start_soon(restart)
            await client.stream.send_all(b"".join(client.encode(produce("t", b"%d" % n), 8) for n in range(60)))
            for _ in range(60):
                assert errors_of(await client.receive()) == [0]
        assert values_in(proxy.brokers, "t") == [b"%d" % n for n in range(60)]
        assert proxy.stats.produce.resends


async def test_no_answer_in_time_counts_as_lost_also_for_the_first_request() -> None:
    async with proxied(upstream_request_timeout_ms=50, frame_timeout_ms=100) as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Drop(), times=1)
        async with await proxy.client(1) as client:
            await client.call(metadata("t"), 1)
            assert errors_of(await client.call(produce("t", b"a", timeout_ms=50), 8)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]
        assert proxy.stats.upstream.errors["timeout"] == 1


async def test_an_answer_that_is_garbage_ends_the_connection_and_the_batch_is_settled() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")

        no_answer_at_all = MetadataResponse(throttle_time_ms=1 << 30)
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Answer(no_answer_at_all), times=1)
        with trio.fail_after(120):
            async with await proxy.client(1) as client:
                await client.send(produce("t", b"a"), 8)
                assert await client.ended()
            await proxy.at_rest()
        assert values_in(proxy.brokers, "t") in ([], [b"a"])


async def test_an_answer_cut_in_the_middle_ends_the_clients_connection() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(produce("t", b"x" * 900_000), 8)) == [0]
        broker = proxy.brokers.brokers[1]
        real = broker.port

        async def cut(stream: trio.SocketStream) -> None:
            async with (
                stream,
                await trio.open_tcp_stream("127.0.0.1", real) as upstream,
                trio.open_nursery() as nursery,
            ):

                async def back() -> None:
                    sent = 0
                    async for data in upstream:
                        await stream.send_all(data[: max(400_000 - sent, 0)])
                        sent += len(data)
                        if sent > 400_000:
                            break
                    nursery.cancel_scope.cancel()

                nursery.start_soon(back)
                async for data in stream:
                    await upstream.send_all(data)

        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, cut, 0)
            known = proxy.cluster.map.brokers[1]
            known.address = known.address._replace(port=listeners[0].socket.getsockname()[1])
            async with await proxy.client(1) as client:
                await client.send(fetch("t"), 11)
                with pytest.raises((EOFError, trio.BrokenResourceError)):
                    await client.receive()
            nursery.cancel_scope.cancel()


# -- back-pressure


async def stalled_broker(task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
    """Accepts, and never reads."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    try:
        task_status.started(listener.getsockname()[1])
        await trio.sleep_forever()
    finally:
        listener.close()


async def pushed(client: FrameClient) -> None:
    """Sends large requests without a look at responses, for ever."""
    while True:
        await client.send(produce("t", b"x" * 300_000), 8)


@asynccontextmanager
async def at_a_stalled_broker(**options: Any) -> AsyncIterator[Proxied]:
    """A proxy whose only broker has stopped to read."""
    async with proxied(delivery_timeout_ms=50, **options) as proxy, trio.open_nursery() as nursery:
        proxy.brokers.create_topic("t")
        port = await nursery.start(stalled_broker)
        async with await proxy.client(1) as client:
            await client.call(metadata("t"), 1)
            known = proxy.cluster.map.brokers[1]
            versions = await proxy.cluster.versions(known)
            known.address = known.address._replace(port=port)
            known.versions = dict(versions)
            proxy.cluster.pool.has_witness = lambda _: True  # type: ignore[method-assign]  # it would not answer
            yield proxy
        nursery.cancel_scope.cancel()


async def test_a_broker_that_stops_reading_slows_the_client_and_bounds_what_is_held() -> None:
    held = 200_000
    async with at_a_stalled_broker(connection_buffer_bytes=held) as proxy, await proxy.client(1) as producer:
        with trio.move_on_after(0.4) as scope:
            for _ in range(2000):
                await producer.send(fetch("t", max_wait_ms=5, rack_id="r" * 20_000), 11)
                assert proxy.stats.clients.buffered_bytes < held + 2 * 262_144
        assert scope.cancelled_caught


@asynccontextmanager
async def others_wait_for_memory(proxy: Proxied) -> AsyncIterator[None]:
    """All of it is taken, and there is somebody who needs some."""
    budget = proxy.server._budget
    budget.hold("most", 1 << 30)
    await budget.admit("elder")
    budget.hold("waits", 1 << 20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.admit, "waits")
        yield
        nursery.cancel_scope.cancel()
    for owner in ("most", "elder", "waits"):
        budget.hold(owner, 0)
    proxy.stats.clients.buffered_bytes = budget.used


async def test_producers_at_a_stalled_broker_are_not_ended_though_others_wait_for_memory() -> None:
    """kproxy does not read from them, so that their requests are unfinished through no fault of theirs."""
    async with at_a_stalled_broker() as proxy, AsyncExitStack() as stack:
        producers = [await stack.enter_async_context(await proxy.client(1)) for _ in range(4)]
        async with trio.open_nursery() as nursery:
            for producer in producers:
                nursery.start_soon(pushed, producer)
            await eventually(lambda: bool(proxy.server._unfinished.used("127.0.0.1")))
            async with others_wait_for_memory(proxy):
                await trio.sleep(10)
            nursery.cancel_scope.cancel()
        assert not proxy.stats.refused.refusals


async def test_what_is_unfinished_of_a_client_that_was_ended_is_free_while_its_batches_are_settled() -> None:
    async with proxied(delivery_timeout_ms=60_000) as proxy, await proxy.client(1) as silent:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=30), times=1)
        half = struct.pack(">ihhih", 900_000, 0, 8, 1, -1) + bytes(800_000)
        sent = silent.encode(produce("t", b"in flight"), 8) + half
        await silent.stream.send_all(sent)
        [connection] = proxy.server.connections
        await eventually(lambda: connection.received == len(sent) and connection.listening)
        async with others_wait_for_memory(proxy):
            assert await silent.ended()
        assert proxy.stats.refused.refusals == {"evicted": 1}
        await trio.sleep(1)
        assert proxy.stats.produce.sends_in_flight == 1
        assert proxy.server._budget.used < 800_000


async def with_little_room(port: int | None) -> FrameClient:
    """A client whose kernel takes next to nothing before it reads."""
    assert port is not None
    plain = trio.socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await plain.connect(("127.0.0.1", port))
    return FrameClient(trio.SocketStream(plain), "little room")


async def test_half_a_request_of_a_client_that_reads_no_responses_is_in_the_way_of_others() -> None:
    """kproxy does not read from that client either, since it waits until it can write."""
    async with proxied() as proxy, await with_little_room(proxy.port) as client:
        requests = [client.encode(ApiVersionsRequest(), 0) for _ in range(5000)]
        half = struct.pack(">ihhih", 300_000, 0, 8, 1, -1) + bytes(50_000)
        await client.stream.send_all(b"".join(requests) + half)
        await eventually(lambda: any(one.client.stalled_at for one in proxy.server.connections))
        async with others_wait_for_memory(proxy):
            await eventually(lambda: proxy.stats.refused.refusals == {"evicted": 1})


async def test_a_client_that_never_reads_is_ended_when_it_is_idle_for_long() -> None:
    async with proxied(connections_max_idle_ms=200) as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(produce("t", b"x" * 900_000), 8)) == [0]
            with trio.move_on_after(3), suppress(trio.BrokenResourceError):
                for _ in range(400):
                    await client.send(fetch("t"), 11)
            await eventually(lambda: proxy.stats.clients.connections_open == 0)


@pytest.mark.parametrize("version", [3, 11])
async def test_a_broker_that_writes_a_long_answer_before_it_reads_on_is_no_deadlock(version: int) -> None:
    """The broker reads the second Produce only when its Fetch answer is read, and that waits for the first Produce."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("long")
        proxy.brokers.create_topic("t", 16)
        async with await proxy.client(1) as client:
            for _ in range(16):
                assert errors_of(await client.call(produce("long", b"x" * 900_000), 8)) == [0]
            proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=0.05), times=1)
            second = produce("t", b"y" * 900_000)
            for partition in range(1, 16):
                more = produce("t", b"y" * 900_000, partition=partition).topic_data[0].partition_data
                second.topic_data[0].partition_data += more
            with trio.fail_after(120):
                async with trio.open_nursery() as nursery:
                    frames = [
                        client.encode(produce("t", b"a"), 8),
                        client.encode(fetch("long", max_bytes=50_000_000), version),
                        client.encode(second, 8),
                    ]
                    nursery.start_soon(client.stream.send_all, b"".join(frames))
                    assert errors_of(await client.receive()) == [0]
                    assert len((await client.receive()).responses[0].partitions[0].records) > 14_000_000
                    assert errors_of(await client.receive()) == [0] * 16


async def test_what_kproxy_answered_itself_is_no_longer_held() -> None:
    async with proxied() as proxy, await proxy.client(1) as client:
        answer = await client.call(produce("t", b"x" * 500_000, acks=7), 8)
        assert errors_of(answer) == [ErrorCode.INVALID_REQUIRED_ACKS]
        await eventually(lambda: proxy.stats.clients.buffered_bytes == 0)


async def test_a_slow_client_gets_all_answers_whole_and_in_order() -> None:
    """Answers that kproxy writes itself, that it relays whole, and that it passes on as they come."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client:
            for _ in range(8):
                assert errors_of(await client.call(produce("t", b"x" * 500_000), 8)) == [0]
            for number in range(60):
                await client.send(fetch("t", number % 8, max_bytes=600_000 if number % 3 else 10_000), 11)
                await client.send(produce("t", b"", acks=7), 8)
                await client.send(fetch("t", 0), 4)
            await trio.sleep(0.2)
            for _ in range(60):
                assert (await client.receive()).responses[0].partitions[0].error_code == 0
                assert errors_of(await client.receive()) == [ErrorCode.INVALID_REQUIRED_ACKS]
                assert (await client.receive()).responses[0].partitions[0].error_code == 0


# -- what ends a connection


async def test_half_a_frame_does_not_hold_the_connection_for_ever() -> None:
    async with proxied(frame_timeout_ms=100) as proxy:
        async with await proxy.client() as client:
            await client.stream.send_all(struct.pack(">ih", 1000, 3))
            assert await client.ended()
        assert proxy.stats.refused.refusals == {"slow_frame": 1}


async def test_a_frame_that_waits_for_kproxy_itself_is_not_called_slow() -> None:
    async with proxied(frame_timeout_ms=100) as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=0.3), times=1)
        async with await proxy.client(1) as client:
            frames = [client.encode(produce("t", value), 8) for value in (b"a", b"b", b"c", b"d")]
            await client.stream.send_all(b"".join(frames)[:-50])
            await trio.sleep(0.3)
            await client.stream.send_all(frames[-1][-50:])
            for _ in range(4):
                assert errors_of(await client.receive()) == [0]
        assert not proxy.stats.refused.refusals


def stands_still(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Whatever is written to a broker waits for so long."""
    flush = Upstream.flush

    async def late(upstream: Upstream) -> None:
        await trio.sleep(seconds)
        await flush(upstream)

    monkeypatch.setattr(Upstream, "write", lambda upstream: bool(upstream._session.to_upstream))
    monkeypatch.setattr(Upstream, "flush", late)


async def test_a_broker_that_stood_still_leaves_a_client_its_time_for_the_rest_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with proxied(frame_timeout_ms=1000) as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(produce("t", b"a"), 8)) == [0]
            stands_still(monkeypatch, 5)
            data = client.encode(produce("t", b"b"), 8) + client.encode(produce("t", b"c"), 8)
            await client.stream.send_all(data[:-10])
            assert errors_of(await client.receive()) == [0]
            await trio.sleep(0.7)
            await client.stream.send_all(data[-10:])
            assert errors_of(await client.receive()) == [0]
        assert not proxy.stats.refused.refusals


async def test_a_client_is_idle_from_its_last_response_on() -> None:
    async with proxied(connections_max_idle_ms=1000) as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client:
            assert (await client.call(fetch("t", max_wait_ms=5000), 11)).error_code == 0
            await trio.sleep(0.7)
            assert (await client.call(metadata("t"), 1)).topics[0].name == "t"
            assert not proxy.stats.refused.refusals
            assert await client.ended()
        assert proxy.stats.refused.refusals == {"idle": 1}


async def test_a_response_that_kproxy_does_not_read_for_a_slow_client_is_not_late() -> None:
    async with proxied(upstream_request_timeout_ms=1000) as proxy:
        proxy.brokers.create_topic("long")
        proxy.brokers.create_topic("t")
        async with await with_little_room(proxy.cluster.map.brokers[1].port) as client:
            for _ in range(8):
                assert errors_of(await client.call(produce("long", b"x" * 900_000), 8)) == [0]
            proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=0.5), times=1)
            await client.send(fetch("long", max_bytes=50_000_000), 11)
            await client.send(produce("t", b"y", timeout_ms=1000), 8)
            await trio.sleep(10)
            assert len((await client.receive()).responses[0].partitions[0].records) > 7_000_000
            await client.receive()
        assert "timeout" not in proxy.stats.upstream.errors
        assert values_in(proxy.brokers, "t") == [b"y"]


async def test_a_request_that_came_while_a_broker_stood_still_is_answered_in_time_by_when_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not by when kproxy last read."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client:
            assert (await client.call(fetch("t"), 11)).error_code == 0
            stands_still(monkeypatch, 20)
            await client.send(fetch("t"), 11)
            await trio.sleep(19.5)
            await client.send(produce("t", b"a", timeout_ms=4000), 8)
            await trio.sleep(0.5)
            monkeypatch.undo()
            assert (await client.receive()).error_code == 0
            assert errors_of(await client.receive()) == [0]


async def test_an_idle_connection_is_closed_but_not_one_that_waits_for_its_answer() -> None:
    async with proxied(connections_max_idle_ms=100) as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client() as client, await proxy.client(1) as waiting:
            await waiting.send(fetch("t", max_wait_ms=300), 11)
            assert await client.ended()
            assert (await waiting.receive()).error_code == 0
        assert proxy.stats.refused.refusals["idle"] == 1


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 70_001])
async def test_a_length_out_of_range_ends_only_its_own_connection(length: int) -> None:
    async with proxied(max_frame_bytes=70_000) as proxy:
        async with await proxy.client() as client, await proxy.client() as other:
            await client.stream.send_all(struct.pack(">i", length) + bytes(100))
            assert await client.ended()
            assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0
        assert proxy.stats.refused.refusals == {"malformed": 1}


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", 3, 99, 1, -1),
        struct.pack(">hhih", 3, -1, 1, -1),
        struct.pack(">hhih", 0, 3, 1, -1) + b"\xff" * 7,
        struct.pack(">hhih", 78, 1, 1, -1) + bytes(10),
        struct.pack(">hhih", 3, 0, 1, 500),
        b"",
        b"\0\x03",
    ],
)
async def test_an_unknown_key_or_version_or_garbage_ends_only_its_own_connection(frame: bytes) -> None:
    async with proxied() as proxy:
        async with await proxy.client() as client, await proxy.client() as other:
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
            await client.stream.send_all(len(frame).to_bytes(4, "big") + frame)
            assert await client.ended()
            assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0
        assert proxy.stats.refused.refusals == {"malformed": 1}


async def test_a_broker_that_is_down_ends_its_clients_connection_and_serves_it_later() -> None:
    async with proxied(2) as proxy:
        await proxy.fake.stop_broker(2)
        async with await proxy.client(2) as client:
            await client.send(ApiVersionsRequest(), 0)
            with pytest.raises(trio.BrokenResourceError):  # franz-go treats an end in good order as a missing login
                await client.stream.receive_some(1)
        await proxy.fake.start_broker(2)
        async with await proxy.client(2) as client:
            assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
        assert proxy.stats.upstream.errors["connect"] == 1


async def test_a_client_continues_over_a_new_connection_when_the_broker_closes_an_idle_one() -> None:
    async with proxied() as proxy, await proxy.client(1) as client:
        assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0
        await proxy.fake.stop_broker(1)
        await proxy.fake.start_broker(1)
        await eventually(lambda: proxy.stats.upstream.connections_open == 0)
        assert (await client.call(ApiVersionsRequest(), 0)).error_code == 0


async def test_leases_differ_in_epoch_so_each_connection_begins_at_sequence_zero() -> None:
    seen: list[tuple[int, int, int]] = []

    def look(call: Call) -> None:
        batch = bytes(call.request.topic_data[0].partition_data[0].records)
        seen.append(struct.unpack_from(">qhi", batch, 43))

    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, look)
        for _ in range(3):
            async with await proxy.client(1) as client:
                assert errors_of(await client.call(produce("t", b"a"), 8)) == [0]
            await proxy.at_rest()
    assert {sequence for _, _, sequence in seen} == {0}
    assert all(pid == first and epoch > before and not at for (first, before, _), (pid, epoch, at) in pairwise(seen))


async def test_a_broker_that_gives_no_producer_id_does_not_keep_a_client_that_has_gone() -> None:
    async with proxied(upstream_request_timeout_ms=200) as proxy:
        proxy.brokers.create_topic("t")

        def refuse(response: object) -> None:
            response.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # type: ignore[attr-defined]

        proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda _: Edit(refuse))
        async with await proxy.client(1) as client:
            await client.send(produce("t", b"a"), 8)
            await eventually(lambda: proxy.stats.upstream.errors.get("init_producer_id", 0) > 2)
        await proxy.at_rest()


async def test_nothing_is_known_of_the_cluster_yet() -> None:
    async with running("127.0.0.1:1") as proxy:
        async with await proxy.client() as client:
            await client.send(ApiVersionsRequest(), 0)
            assert await client.ended()
        await proxy.at_rest()


@pytest.mark.parametrize("topics", [40_000, 140_000])
async def test_a_response_of_many_topics_is_served_or_ends_its_own_connection(topics: int) -> None:
    """More than ``buffer.memory`` allows: nothing of it is decoded."""
    rows = [MetadataResponseTopic(name=f"{number:x}") for number in range(topics)]
    limits = {"buffer_memory": 32 << 20, "max_frame_bytes": 16 << 20}
    async with proxied(**limits) as proxy, await proxy.client(1) as client, await proxy.client(1) as other:
        answer = MetadataResponse(brokers=(await other.call(metadata(), 1)).brokers, topics=rows)
        proxy.brokers.control(ApiKey.METADATA, lambda _: Answer(answer), times=1)
        await client.send(metadata(), 1)
        if topics > 65_536:
            assert await client.ended()
        else:
            assert len((await client.receive()).topics) == topics
        assert await other.call(metadata(), 1)
