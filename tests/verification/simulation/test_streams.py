"""Connections as streams, for the fake broker."""

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from verification.simulation.clock import VirtualClock
from verification.simulation.network import Host, VirtualNetwork
from verification.simulation.streams import BrokerStream

if TYPE_CHECKING:
    from verification.simulation.virtual_io import VirtualIO


async def test_a_stream_reads_writes_and_ends(autojump_clock: trio.testing.MockClock) -> None:
    network = VirtualNetwork(1, VirtualClock(autojump_clock), trio.current_time)
    taken: list[VirtualIO] = []
    network.takers["broker", 1] = ("broker", taken.append)
    near = await Host(network, "client", "none").connect("broker", 1, 1000)
    stream = BrokerStream(taken[0])
    await near.send_all([b"abc"])
    assert b"".join([await stream.receive_some() for _ in range(1)])[:1] == b"a"
    await stream.wait_send_all_might_not_block()
    await stream.send_all(b"def")
    await trio.sleep(1)
    near.close()
    await trio.sleep(1)
    with pytest.raises(trio.BrokenResourceError):
        while True:
            await stream.receive_some()
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(b"ghi")
    await stream.aclose()
