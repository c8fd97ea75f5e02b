"""kproxy on a virtual host."""

import trio
import trio.testing

from kproxy.testing.fake_broker import open_fake_cluster
from verification.simulation.clock import VirtualClock
from verification.simulation.history import History
from verification.simulation.instance import PORT, Instance
from verification.simulation.network import Host, VirtualNetwork
from verification.simulation.streams import BrokerStream


async def test_it_listens_until_it_is_killed_and_again_when_it_is_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = VirtualNetwork(1, VirtualClock(autojump_clock), trio.current_time)
    async with open_fake_cluster(1, listen=False) as fake, trio.open_nursery() as nursery:
        broker = fake.cluster.brokers[1]
        network.takers[broker.host, broker.port] = (
            "broker",
            lambda io: nursery.start_soon(fake.serve, BrokerStream(io), 1),
        )
        instance = Instance("kproxy-0", network, fake.bootstrap, History(), {})
        for _ in range(2):
            await nursery.start(instance.run)
            assert instance.up
            io = await Host(network, "client", "none").connect("kproxy-0", PORT, 1000)
            await trio.sleep(0.1)
            assert "connections_open=1" in instance.leftovers
            instance.kill()
            assert not instance.up
            await trio.sleep(0.1)
            assert io.peer_closed()
        nursery.cancel_scope.cancel()
