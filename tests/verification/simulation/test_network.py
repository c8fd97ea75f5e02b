"""The network in memory."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from verification.simulation.clock import VirtualClock
from verification.simulation.network import Host, VirtualListener, VirtualNetwork
from verification.simulation.virtual_io import VirtualIO
from verification.simulation.wire import GIVE_UP_SECONDS


@pytest.fixture
def network(autojump_clock: MockClock) -> VirtualNetwork:
    return VirtualNetwork(3, VirtualClock(autojump_clock), lambda: 1000.0 + trio.current_time())


class Pair:
    """A client and a server that listens."""

    def __init__(self, network: VirtualNetwork) -> None:
        self.client, self.server = Host(network, "client", "none"), Host(network, "server", "client")
        self.listener: VirtualListener

    async def connect(self) -> tuple[VirtualIO, VirtualIO]:
        (self.listener,) = await self.server.listen("server", 9092, 5)
        near = await self.client.connect("server", 9092, 1000)
        return near, await self.listener.accept()


async def receive(io: VirtualIO) -> bytes:
    buffer = memoryview(bytearray(1 << 16))
    data = b""
    while True:
        count = io.receive_now([buffer])
        if count == 0:
            return data
        if count is None:
            await io.readable()
        else:
            data += buffer[:count]


async def test_what_is_written_is_read_however_little_room_there_is(
    network: VirtualNetwork, autojump_clock: MockClock
) -> None:
    near, far = await Pair(network).connect()
    assert (far.local_host, far.peer_host) == ("server", "client")
    sent = bytes(range(256)) * 1000

    async def send() -> None:
        await near.send_all([sent[:100], memoryview(sent)[100:]])
        near.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        assert await receive(far) == sent
    assert far.peer_closed()


async def test_what_goes_at_once_is_taken_out_of_the_list(network: VirtualNetwork, autojump_clock: MockClock) -> None:
    near, _ = await Pair(network).connect()
    buffers: list[bytes | bytearray | memoryview] = [bytes(50_000), bytes(50_000)]
    sent = near.send_at_once(buffers)
    assert sent + sum(map(len, buffers)) == 100_000
    assert 0 < sent < 100_000
    assert near.unacked() == sent


async def test_closing_with_unread_bytes_is_a_reset(network: VirtualNetwork, autojump_clock: MockClock) -> None:
    near, far = await Pair(network).connect()
    await near.send_all([b"abc"])
    await trio.sleep(1)
    far.close()
    await trio.sleep(1)
    with pytest.raises(ConnectionResetError):
        near.receive_now([memoryview(bytearray(1))])
    with pytest.raises(BrokenPipeError):
        await near.send_all([b"d"])
    assert not near.closed_well()
    near.close()
    assert not near.closed_well()


async def test_it_is_known_how_much_was_not_acknowledged_when_this_end_closed(
    network: VirtualNetwork, autojump_clock: MockClock
) -> None:
    near, _ = await Pair(network).connect()
    await near.send_all([b"abc"])
    near.close()
    await trio.sleep(1)
    assert near.unacked() == 3


async def test_an_end_in_good_order_is_no_reset(network: VirtualNetwork, autojump_clock: MockClock) -> None:
    near, far = await Pair(network).connect()
    near.close()
    await trio.sleep(1)
    assert far.peer_closed()
    assert far.closed_well()
    far.close()
    assert far.closed_well()
    assert not near.closed_well()


async def test_closing_wakes_who_reads_and_who_writes(network: VirtualNetwork, autojump_clock: MockClock) -> None:
    near, _ = await Pair(network).connect()

    async def read() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await near.readable()

    async def write() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await near.send_all([bytes(200_000)])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        assert near.stalled_at is not None
        near.close()
    with pytest.raises(OSError):
        near.receive_now([memoryview(bytearray(1))])


async def test_a_killed_host_leaves_on_the_way_what_it_wrote(
    network: VirtualNetwork, autojump_clock: MockClock
) -> None:
    pair = Pair(network)
    near, far = await pair.connect()
    await near.send_all([b"abc"])
    pair.client.kill()
    assert near.closed
    assert await receive(far) == b"abc"
    with pytest.raises(OSError):
        await pair.client.connect("server", 9092, 1000)
    pair.server.kill()
    other = Host(network, "other", "none")
    with pytest.raises(ConnectionRefusedError):
        await other.connect("server", 9092, 1000)


async def test_a_cut_resets_both_ends_and_loses_what_is_in_flight(
    network: VirtualNetwork, autojump_clock: MockClock
) -> None:
    near, far = await Pair(network).connect()
    await near.send_all([b"abc"])
    (link,) = network.live("client")
    link.cut()
    for io in (near, far):
        assert io.peer_closed()
        with pytest.raises(ConnectionResetError):
            io.receive_now([memoryview(bytearray(1))])
    assert near.unacked() == 3


async def test_a_cut_strikes_after_a_byte(network: VirtualNetwork, autojump_clock: MockClock) -> None:
    near, far = await Pair(network).connect()
    network.live("client")[0].cut_after(2, answers=False)
    await near.send_all([b"abc"])
    await trio.sleep(1)
    buffer = memoryview(bytearray(8))
    assert far.receive_now([buffer]) == 2
    with pytest.raises(ConnectionResetError):
        far.receive_now([buffer])


async def test_a_half_open_connection_is_given_up_by_the_kernels(
    network: VirtualNetwork, autojump_clock: MockClock
) -> None:
    near, far = await Pair(network).connect()
    network.live("client")[0].vanish()
    near.close()
    await trio.sleep(GIVE_UP_SECONDS - 1)
    assert not far.peer_closed()
    await trio.sleep(2)
    assert far.peer_closed()


async def test_ports_are_taken_once_and_any_free_one_is_available(
    network: VirtualNetwork, autojump_clock: MockClock
) -> None:
    host = Host(network, "server", "client")
    (one,) = await host.listen("server", 0, 1)
    (other,) = await host.listen("server", 0, 1)
    assert one.port != other.port
    with pytest.raises(OSError, match="in use"):
        await host.listen("server", one.port, 1)


async def test_a_process_does_not_see_the_time_of_day_jump(autojump_clock: MockClock) -> None:
    shift = [0.0]
    network = VirtualNetwork(3, VirtualClock(autojump_clock), lambda: 1000.0 + shift[0] + trio.current_time())
    before = Host(network, "a", "none")
    shift[0] = 500.0
    after = Host(network, "a", "none")
    assert after.wall() - before.wall() == pytest.approx(500.0)


async def test_a_host_that_is_held_up_receives_and_sends_later(
    network: VirtualNetwork, autojump_clock: MockClock
) -> None:
    near, far = await Pair(network).connect()
    network.hold("server", "client", 5.0)
    network.hold("server", "broker", 50.0)
    until = trio.current_time() + 5.0
    await near.send_all([b"before"])
    await far.send_all([b"back"])
    (listener,) = await Host(network, "server", "client").listen("server", 9093, 5)
    late = await Host(network, "client", "none").connect("server", 9093, 1000)
    accepted = await listener.accept()
    await late.send_all([b"new"])
    await trio.sleep_until(until - 0.1)
    assert not (far.pending() or near.pending() or accepted.pending())
    await trio.sleep_until(until + 0.5)
    assert far.pending()
    assert near.pending()
    assert accepted.pending()
