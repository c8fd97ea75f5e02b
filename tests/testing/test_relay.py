"""The fault relay between a client and an echo that speaks in Kafka's frames."""

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ApiKey
from kproxy.testing.relay import Drop, Ending, FaultRelay, Faults, Frame

PATIENCE_S = 60.0


def request(number: int, api_key: int = ApiKey.PRODUCE, body: bytes = b"body") -> bytes:
    return struct.pack(">ihhi", 8 + len(body), api_key, 0, number) + body


def answer(number: int, body: bytes = b"body") -> bytes:
    return struct.pack(">ii", 4 + len(body), number) + body


class Echo:
    """Answers every frame with its correlation id and body, except those that say they want none."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.endings: list[str] = []

    async def handle(self, stream: trio.SocketStream) -> None:
        buffer = bytearray()
        try:
            while data := await stream.receive_some():
                self.received += data
                buffer += data
                while len(buffer) >= 12 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4])):
                    number, body = int.from_bytes(buffer[8:12]), bytes(buffer[12 : 4 + size])
                    del buffer[: 4 + size]
                    if body != b"no answer":
                        await stream.send_all(answer(number, body))
            self.endings.append("fin")
        except trio.BrokenResourceError:
            self.endings.append("rst")
        finally:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def relayed(faults: Faults | None = None, seed: int = 1) -> AsyncIterator[tuple[FaultRelay, Echo]]:
    echo = Echo()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, echo.handle, listeners)
            relay = FaultRelay(("127.0.0.1", listeners[0].socket.getsockname()[1]), faults=faults, seed=seed)
            await nursery.start(relay.serve)
            yield relay, echo
            nursery.cancel_scope.cancel()


async def connect(relay: FaultRelay) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", relay.port)


async def read(stream: trio.SocketStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := await stream.receive_some(size - len(data))):
        data += part
    return bytes(data)


async def read_to_end(stream: trio.SocketStream) -> tuple[bytes, str]:
    data = bytearray()
    try:
        while part := await stream.receive_some():
            data += part
    except trio.BrokenResourceError:
        return bytes(data), "rst"
    return bytes(data), "fin"


async def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the awaited change happens at the other end of sockets
        await trio.sleep(0.005)


async def test_frames_pass_and_are_counted_by_api() -> None:
    async with relayed() as (relay, _), await connect(relay) as client:
        await client.send_all(request(1) + request(2, ApiKey.METADATA))
        expected = answer(1) + answer(2)
        assert await read(client, len(expected)) == expected
        assert relay.counts.requests == {ApiKey.PRODUCE: 1, ApiKey.METADATA: 1}
        assert relay.counts.answers == {ApiKey.PRODUCE: 1, ApiKey.METADATA: 1}
        assert relay.connections == relay.counts.connections == 1


async def test_the_end_of_each_side_is_passed_on() -> None:
    async with relayed() as (relay, echo), await connect(relay) as client:
        await client.send_all(request(1))
        await client.send_eof()
        assert await read_to_end(client) == (answer(1), "fin")
        assert echo.endings == ["fin"]
        await wait_for(lambda: relay.connections == 0)
        assert relay.counts.cuts == 0


async def test_what_is_no_kafka_passes_as_it_is() -> None:
    garbage = b"\xff" * 20 + request(1)
    async with relayed() as (relay, echo), await connect(relay) as client:
        await client.send_all(garbage)
        await wait_for(lambda: len(echo.received) == len(garbage))
        assert echo.received == garbage


async def test_half_a_frame_is_passed_on_when_its_sender_ends() -> None:
    async with relayed() as (relay, echo), await connect(relay) as client:
        await client.send_all(request(1)[:-1])
        await client.send_eof()
        assert await read_to_end(client) == (b"", "fin")
        assert echo.received == request(1)[:-1]


@pytest.mark.parametrize("ending", list(Ending))
async def test_every_nth_answer_of_the_api_is_dropped_and_the_connection_ended(ending: Ending) -> None:
    async with relayed(Faults(drop_answers=Drop(every=2, ending=ending))) as (relay, echo), await connect(relay) as one:
        await one.send_all(request(1) + request(2, ApiKey.FETCH) + request(3, ApiKey.FETCH))
        assert await read(one, 3 * len(answer(1))) == answer(1) + answer(2) + answer(3)
        await one.send_all(request(4))
        assert await read_to_end(one) == (b"", ending.value)
        await wait_for(lambda: len(echo.endings) == 1)
        assert echo.endings == [ending.value]
        assert relay.counts.dropped_answers == {ApiKey.PRODUCE: 1}
        assert relay.counts.cuts == 1
        async with await connect(relay) as two:
            await two.send_all(request(5))
            assert await read(two, len(answer(5))) == answer(5)


async def test_a_dropped_frame_may_leave_its_connection_alive() -> None:
    faults = Faults(drop_requests=Drop(every=2, api_key=ApiKey.METADATA, ending=None))
    async with relayed(faults) as (relay, _), await connect(relay) as client:
        await client.send_all(b"".join(request(number, ApiKey.METADATA) for number in range(4)))
        assert await read(client, 2 * len(answer(0))) == answer(0) + answer(2)
        assert relay.counts.dropped_requests == {ApiKey.METADATA: 2}


async def test_requests_without_an_answer_do_not_confuse_the_answers() -> None:
    async with relayed() as (relay, _), await connect(relay) as client:
        await client.send_all(request(1, body=b"no answer") + request(2, ApiKey.METADATA))
        assert await read(client, len(answer(2))) == answer(2)
        assert relay.counts.answers == {ApiKey.METADATA: 1}


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
async def test_the_same_seed_drops_the_same_share(share: float) -> None:
    async def kept(seed: int) -> bytes:
        faults = Faults(drop_requests=Drop(share=share, ending=None))
        async with relayed(faults, seed) as (relay, _), await connect(relay) as client:
            await client.send_all(b"".join(request(number) for number in range(200)))
            await client.send_eof()
            return (await read_to_end(client))[0]

    first = await kept(7)
    assert first == await kept(7)
    assert 200 * (1 - share) - 40 <= len(first) / len(answer(0)) <= 200 * (1 - share) + 40


@pytest.mark.parametrize("position", [0, 1, 5, 16, 20])
async def test_a_connection_is_cut_at_the_byte(position: int) -> None:
    async with relayed(Faults(cut_requests_at=position)) as (relay, echo), await connect(relay) as client:
        await client.send_all(request(1) + request(2))
        assert (await read_to_end(client))[1] == "fin"
        await wait_for(lambda: len(echo.endings) == 1)
        assert echo.received == (request(1) + request(2))[:position]


async def test_answers_are_cut_at_the_byte() -> None:
    faults = Faults(cut_answers_at=9, cut_ending=Ending.FIN)
    async with relayed(faults) as (relay, _), await connect(relay) as client:
        await client.send_all(request(1))
        assert await read_to_end(client) == (answer(1)[:9], "fin")


async def test_requests_are_delayed_by_api() -> None:
    faults = Faults(request_delays={ApiKey.FETCH: 3600.0, ApiKey.METADATA: 0.01})
    async with relayed(faults) as (relay, echo), await connect(relay) as one, await connect(relay) as two:
        await one.send_all(request(1, ApiKey.FETCH) + request(2))
        await two.send_all(request(3) + request(4, ApiKey.METADATA))
        assert await read(two, 2 * len(answer(3))) == answer(3) + answer(4)
        assert echo.received == request(3) + request(4, ApiKey.METADATA)


async def test_answers_are_delayed_by_api() -> None:
    faults = Faults(answer_delays={ApiKey.FETCH: 3600.0})
    async with relayed(faults) as (relay, echo), await connect(relay) as client:
        await client.send_all(request(1) + request(2, ApiKey.FETCH) + request(3))
        assert await read(client, len(answer(1))) == answer(1)
        await wait_for(lambda: relay.counts.answers[ApiKey.FETCH] == 1)
        await wait_for(lambda: echo.received == request(1) + request(2, ApiKey.FETCH) + request(3))
        assert relay.counts.answers[ApiKey.PRODUCE] == 1


async def test_a_half_open_connection_swallows_both_ways_and_shows_nothing() -> None:
    async with relayed() as (relay, echo), await connect(relay) as client:
        await client.send_all(request(1))
        assert await read(client, len(answer(1))) == answer(1)
        relay.faults.swallow_requests = True
        await client.send_all(request(2))
        await client.send_eof()
        await wait_for(lambda: relay.counts.swallowed_bytes == len(request(2)))
        assert echo.received == request(1)
        assert echo.endings == []


async def test_paused_nothing_passes_and_resumed_nothing_is_lost() -> None:
    async with relayed() as (relay, echo), await connect(relay) as client:
        relay.pause()
        await client.send_all(request(1))
        await wait_for(lambda: relay.counts.requests[ApiKey.PRODUCE] == 1)
        assert not echo.received
        relay.resume()
        assert await read(client, len(answer(1))) == answer(1)


@pytest.mark.parametrize("ending", list(Ending))
async def test_all_connections_are_cut_now(ending: Ending) -> None:
    async with relayed() as (relay, _), await connect(relay) as one, await connect(relay) as two:
        await wait_for(lambda: relay.connections == 2)
        assert relay.cut_all(ending) == 2
        assert [await read_to_end(one), await read_to_end(two)] == [(b"", ending.value)] * 2
        await one.aclose()
        await two.aclose()
        await wait_for(lambda: relay.connections == 0)


async def test_later_connections_go_to_the_new_upstream() -> None:
    async with relayed() as (relay, old), relayed() as (other, new), await connect(relay) as one:
        await one.send_all(request(1))
        assert await read(one, len(answer(1))) == answer(1)
        relay.upstream = ("127.0.0.1", other.port)
        async with await connect(relay) as two:
            await two.send_all(request(2))
            assert await read(two, len(answer(2))) == answer(2)
        assert old.received == request(1)
        assert new.received == request(2)


async def test_without_an_upstream_or_not_accepting_clients_are_reset() -> None:
    async with relayed() as (relay, _):
        relay.faults.accepting = False
        async with await connect(relay) as client:
            assert (await read_to_end(client))[1] == "rst"
        relay.faults.accepting = True
        relay.upstream = ("127.0.0.1", 1)
        async with await connect(relay) as client:
            assert (await read_to_end(client))[1] == "rst"


async def test_a_slow_relay_passes_every_byte() -> None:
    async with relayed(Faults(bytes_per_second=50_000.0)) as (relay, _), await connect(relay) as client:
        body = bytes(range(256)) * 20
        await client.send_all(request(1, body=body))
        assert await read(client, len(answer(1, body))) == answer(1, body)


async def test_frames_are_seen_when_they_arrive_also_those_that_are_dropped() -> None:
    seen: list[Frame] = []
    async with relayed(Faults(drop_answers=Drop(every=1))) as (relay, _):
        relay.watch = seen.append
        async with await trio.open_tcp_stream("127.0.0.1", relay.port) as stream:
            await stream.send_all(request(7))
            while len(seen) < 2:
                await trio.testing.wait_all_tasks_blocked()
    produce = int(ApiKey.PRODUCE)
    assert seen == [
        Frame(1, False, produce, request(7), False, relay.upstream),
        Frame(1, True, produce, answer(7), True, relay.upstream),
    ]


async def test_connections_that_open_at_the_same_time_have_numbers_of_their_own() -> None:
    seen: set[int] = set()
    async with relayed() as (relay, _):
        relay.watch = lambda frame: seen.add(frame.connection)
        clients = [await trio.open_tcp_stream("127.0.0.1", relay.port) for _ in range(5)]
        for client in clients:
            await client.send_all(request(1))
            await client.receive_some()
            await client.aclose()
    assert seen == {1, 2, 3, 4, 5}
