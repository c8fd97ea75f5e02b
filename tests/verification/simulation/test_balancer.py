"""A balancer that ends TCP, routes that are cut, and clients that close in good order."""

import pytest
import trio
from trio.testing import MockClock

from tests.verification.simulation.worlds import client, fault, plan, send
from verification.simulation.balancer import Balancer
from verification.simulation.clock import VirtualClock
from verification.simulation.network import Host, VirtualListener, VirtualNetwork
from verification.simulation.plan import Relay
from verification.simulation.virtual_io import VirtualIO
from verification.simulation.world import Outcome, run


@pytest.fixture
def network(autojump_clock: MockClock) -> VirtualNetwork:
    return VirtualNetwork(3, VirtualClock(autojump_clock), trio.current_time)


class Relayed:
    """A client, a balancer and a server."""

    def __init__(self, network: VirtualNetwork, nursery: trio.Nursery, relay: Relay = Relay.UNKNOWN) -> None:
        self.balancer = Balancer(network, nursery)
        self.client = Host(network, "client", "none", lambda *place: self.balancer.connect(relay, *place))
        self.server = Host(network, "server", "client")
        self.listener: VirtualListener

    async def connect(self) -> tuple[VirtualIO, VirtualIO]:
        (self.listener,) = await self.server.listen("server", 9092, 5)
        near = await self.client.connect("server", 9092, 1000)
        return near, await self.listener.accept()


def read(io: VirtualIO) -> bytes:
    buffer = memoryview(bytearray(1 << 12))
    count = io.receive_now([buffer])
    return bytes(buffer[: count or 0])


@pytest.mark.parametrize("relay", [Relay.NAMED, Relay.UNKNOWN])
async def test_it_passes_bytes_on_and_may_say_that_it_is_there(
    network: VirtualNetwork, autojump_clock: MockClock, relay: Relay
) -> None:
    async with trio.open_nursery() as nursery:
        near, far = await Relayed(network, nursery, relay).connect()
        assert far.balanced is (relay is Relay.NAMED)
        assert far.peer_host == "client"
        await near.send_all([b"there"])
        await far.send_all([b"back"])
        await trio.sleep(1)
        assert (read(far), read(near)) == (b"there", b"back")
        near.close()
        await trio.sleep(1)
        assert far.peer_closed()
        assert far.closed_well()
        nursery.cancel_scope.cancel()


async def test_it_acknowledges_what_its_client_never_gets_and_closes_in_good_order(
    network: VirtualNetwork, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        one = Relayed(network, nursery)
        near, far = await one.connect()
        network.live("balancer")[0].stall(9)
        await far.send_all([b"success"])
        await trio.sleep(1)
        one.balancer.restart()
        await trio.sleep(1)
        assert far.peer_closed()
        assert (far.closed_well(), far.unacked()) == (True, 0)
        assert not near.closed_well()
        nursery.cancel_scope.cancel()


async def test_nobody_connects_over_a_route_that_is_cut(network: VirtualNetwork, autojump_clock: MockClock) -> None:
    client, server = Host(network, "client", "none"), Host(network, "server", "client")
    await server.listen("server", 9092, 5)
    network.cut_route("client", "server", 4.0, back=False)
    began = trio.current_time()
    with pytest.raises(TimeoutError):
        await client.connect("server", 9092, 1000)
    assert trio.current_time() - began == pytest.approx(1.0)
    await client.connect("server", 9092, 60_000)
    assert 4.0 <= trio.current_time() - began < 6.0  # when its kernel tries again


def opened(outcome: Outcome) -> int:
    return sum(" opens " in line for line in outcome.trace)


@pytest.mark.parametrize(("closes", "connections"), [(False, 2), (True, 6)])
def test_a_process_for_each_record_has_connections_of_its_own(closes: bool, connections: int) -> None:
    sends = [send(b"%d" % nth, gap=0.5) for nth in range(3)]
    outcome = run(plan(client(*sends, closes_each=closes)))
    assert (outcome.broken, outcome.acknowledged) == (None, 3)
    assert opened(outcome) == connections  # one of them for Metadata


def test_a_client_finishes_when_its_cut_route_is_healed() -> None:
    sends = [send(b"%d" % nth, gap=0.5) for nth in range(6)]
    outcome = run(plan(client(*sends), faults=(fault("route", 1.2, much=0.6),)))
    assert (outcome.broken, outcome.acknowledged) == (None, 6)


def test_equal_records_of_one_clock_second_have_one_timestamp() -> None:
    sends = [send(b"x", gap=0.1) for _ in range(3)]
    outcome = run(plan(client(*sends, clock_ms=1000)))
    assert (outcome.broken, outcome.acknowledged) == (None, 3)
