"""Many requests in flight on one connection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from kproxy.budget import standalone
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ApiKey, Message
from kproxy.codec.version_choice import NoCommonVersion
from kproxy.net.brokers.pipelined_client import PipelinedClient, reader_of, writer_of
from kproxy.net.brokers.response_room import ResponseRoom
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.routing import Address
from kproxy.testing.fake_broker import Call, Close, Delay, Drop, FakeServer, open_fake_cluster
from tests.net.harness import eventually

pytestmark = pytest.mark.idle_clock

Answers = list[Message | None]
METADATA, COORDINATOR = reader_of(MetadataResponse, standalone), reader_of(FindCoordinatorResponse, standalone)


VERSIONS = {ApiKey.FIND_COORDINATOR: (0, 6)}


@asynccontextmanager
async def client(timeout_ms: int = 5000) -> AsyncIterator[tuple[FakeServer, PipelinedClient]]:
    """A fake broker and a connection to it."""
    async with open_fake_cluster() as fake, trio.open_nursery() as nursery:
        address = Address("127.0.0.1", fake.cluster.brokers[1].port)
        io = await SocketNetwork().connect(*address, 1000)
        yield (
            fake,
            PipelinedClient(io, address, VERSIONS, timeout_ms, nursery, EndOfTurn(nursery), ResponseRoom()),
        )
        nursery.cancel_scope.cancel()


async def test_answers_come_in_the_order_of_the_requests_which_do_not_wait_for_them() -> None:
    async with client() as (fake, asked):
        gate, seen = trio.Event(), []

        async def hold(_: Call) -> None:
            await gate.wait()

        fake.cluster.control(ApiKey.METADATA, hold)
        fake.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: seen.append(call.request.key))
        answers: Answers = []
        asked.send(writer_of(MetadataRequest(topics=[])), 12, METADATA, answers.append)
        for group in ("a", "b"):
            asked.send(writer_of(FindCoordinatorRequest(key=group)), 3, COORDINATOR, answers.append)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        gate.set()
        await eventually(lambda: len(answers) == 3)
        assert [type(answer) for answer in answers] == [
            MetadataResponse,
            FindCoordinatorResponse,
            FindCoordinatorResponse,
        ]
        assert seen == ["a", "b"]
        assert not asked.closed


async def test_what_the_kernel_does_not_take_at_once_is_written_later_in_order() -> None:
    async with client() as (fake, asked):
        answers: Answers = []
        seen: list[int] = []
        fake.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: seen.append(len(call.request.key)))
        for size in range(20_000, 20_200):
            asked.send(writer_of(FindCoordinatorRequest(key="x" * size)), 3, COORDINATOR, answers.append)
        await eventually(lambda: len(answers) == 200)
        assert seen == list(range(20_000, 20_200))


async def test_it_has_no_room_for_ever_more() -> None:
    async with client() as (fake, asked):
        fake.cluster.control(ApiKey.METADATA, lambda _: Delay(before=100))
        answers: Answers = []
        count = 0
        while asked.has_room:
            asked.send(writer_of(MetadataRequest(topics=[])), 12, METADATA, answers.append)
            count += 1
            assert count < 1000
        asked.close()
        await eventually(lambda: len(answers) == count)
        assert set(answers) == {None}
        with pytest.raises(OSError, match="closed"):
            asked.send(writer_of(MetadataRequest(topics=[])), 12, METADATA, answers.append)
        assert len(answers) == count


@pytest.mark.parametrize("fault", [Close(), Drop()])
async def test_what_gets_no_response_fails_and_all_after_it(fault: Close | Drop) -> None:
    async with client(timeout_ms=100) as (fake, asked):
        fake.cluster.control(ApiKey.METADATA, lambda _: fault)
        answers: Answers = []
        asked.send(writer_of(FindCoordinatorRequest(key="a")), 3, COORDINATOR, answers.append)
        asked.send(writer_of(MetadataRequest(topics=[])), 12, METADATA, answers.append)
        asked.send(writer_of(FindCoordinatorRequest(key="b")), 3, COORDINATOR, answers.append)
        if isinstance(fault, Drop):
            await eventually(lambda: len(answers) >= 1)
        await eventually(lambda: len(answers) == 3 and asked.closed)
        assert isinstance(answers[0], FindCoordinatorResponse)
        assert answers[1] is None


async def test_an_idle_connection_has_no_time_out_and_a_request_may_have_its_own() -> None:
    async with client(timeout_ms=20) as (fake, asked):
        fake.cluster.control(ApiKey.METADATA, lambda _: Delay(before=0.1))
        answers: Answers = []
        asked.send(writer_of(FindCoordinatorRequest(key="a")), 3, COORDINATOR, answers.append)
        await eventually(lambda: len(answers) == 1)
        await trio.sleep(0.05)
        asked.send(writer_of(MetadataRequest(topics=[])), 12, METADATA, answers.append, extra_ms=4000)
        await eventually(lambda: len(answers) == 2)
        assert isinstance(answers[1], MetadataResponse)


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\x04\0\0\0\x63",
        b"\0\0\0\x06\0\0\0\x01\0\0",
        b"\xff\0\0\0",
        encode_response(FindCoordinatorResponse(), 3, 2),
    ],
)
async def test_an_answer_that_makes_no_sense_ends_it(frame: bytes) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(frame)
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        address = Address("127.0.0.1", listener.socket.getsockname()[1])
        io = await SocketNetwork().connect(*address, 1000)
        asked = PipelinedClient(io, address, {}, 5000, nursery, EndOfTurn(nursery), ResponseRoom())
        answers: Answers = []
        asked.send(writer_of(FindCoordinatorRequest(key="a")), 3, COORDINATOR, answers.append)
        await eventually(lambda: answers == [None])
        assert asked.closed
        nursery.cancel_scope.cancel()


async def test_the_end_of_its_nursery_closes_it() -> None:
    answers: Answers = []
    async with client() as (fake, asked):
        fake.cluster.control(ApiKey.METADATA, lambda _: Delay(before=100))
        asked.send(writer_of(MetadataRequest(topics=[])), 12, METADATA, answers.append)
    assert (asked.closed, answers) == (True, [None])


async def test_who_calls_waits_for_its_answer_or_for_the_end() -> None:
    async with client() as (fake, asked):
        request = FindCoordinatorRequest(key="a")
        assert isinstance(await asked.call(request, FindCoordinatorResponse, (0, 3)), FindCoordinatorResponse)
        with pytest.raises(NoCommonVersion):
            await asked.call(request, FindCoordinatorResponse, (90, 99))
        assert not asked.closed
        fake.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: Close())
        with pytest.raises(OSError, match="ended"):
            await asked.call(request, FindCoordinatorResponse, (0, 3))
        with pytest.raises(OSError, match="closed"):
            await asked.call(request, FindCoordinatorResponse, (0, 3))
