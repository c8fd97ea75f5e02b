"""Frames of model clients."""

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec.header import decode_request_header, encode_response
from verification.simulation.clock import VirtualClock
from verification.simulation.frames import FrameIO
from verification.simulation.network import Host, VirtualNetwork

if TYPE_CHECKING:
    from verification.simulation.virtual_io import VirtualIO


async def test_requests_are_numbered_and_answers_found_their_version(autojump_clock: trio.testing.MockClock) -> None:
    network = VirtualNetwork(1, VirtualClock(autojump_clock), trio.current_time)
    ends: list[VirtualIO] = []
    network.takers["b", 1] = ("broker", ends.append)
    frames = FrameIO(await Host(network, "a", "none").connect("b", 1, 1000), "me")
    await frames.send(ApiVersionsRequest(), 0, silent=True)
    await frames.send(ApiVersionsRequest(), 3)
    await trio.sleep(1)
    buffer = memoryview(bytearray(1000))
    assert ends[0].receive_now([buffer])
    first = decode_request_header(buffer[4:])
    assert (first.client_id, first.correlation_id) == ("me", 1)
    answer = encode_response(ApiVersionsResponse(error_code=7), 3, 2)
    await ends[0].send_all([answer[:5]])
    await trio.sleep(1)
    await ends[0].send_all([answer[5:]])
    number, response = await frames.receive()
    assert isinstance(response, ApiVersionsResponse)
    assert (number, response.error_code) == (2, 7)
    assert not frames.has_answer
    await frames.send(ApiVersionsRequest(), 3)
    await frames.send(ApiVersionsRequest(), 3)
    await trio.sleep(1)
    assert ends[0].receive_now([buffer])
    await ends[0].send_all([encode_response(ApiVersionsResponse(), 3, 3), encode_response(ApiVersionsResponse(), 3, 4)])
    await trio.sleep(1)
    assert (await frames.receive())[0] == 3
    assert frames.has_answer
    assert (await frames.receive())[0] == 4
    assert not frames.has_answer
    ends[0].close()
    with pytest.raises(EOFError):
        await frames.receive()
    frames.close()
