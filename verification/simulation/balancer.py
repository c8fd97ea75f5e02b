"""A balancer that ends TCP: it acknowledges for the clients, and closes in good order what breaks on the other side."""

import trio

from verification.simulation.link import Link
from verification.simulation.network import VirtualNetwork
from verification.simulation.plan import Relay
from verification.simulation.virtual_io import VirtualIO

#: Of connections from clients to a balancer; those from it to kproxy have the leg of the port.
LEG = "balancer"
_READ = 1 << 14
#: Seconds for which it still reads a connection that it has ended.
_READS_ON = 5.0


class Balancer:
    """Relays connections, each for as long as both sides last."""

    def __init__(self, network: VirtualNetwork, nursery: trio.Nursery) -> None:
        """Its tasks are the nursery's."""
        self._network = network
        self._nursery = nursery
        self._pairs: list[tuple[Link, Link]] = []

    def connect(self, relay: Relay, source: str, host: str, port: int) -> Link:
        """A client's connection, as far as the balancer. ConnectionRefusedError if kproxy does not listen."""
        inner = self._network.connect(source, host, port)
        inner.far.balanced = relay is Relay.NAMED
        outer = self._network.join(LEG, (source, LEG))
        outer.beyond = inner
        self._pairs.append((outer, inner))
        self._nursery.start_soon(self._pump, outer.far, inner.near)
        self._nursery.start_soon(self._pump, inner.near, outer.far)
        return outer

    def restart(self) -> None:
        """Ends all connections in good order towards kproxy; what it has read and not passed on is lost."""
        for outer, inner in self._pairs:
            if not outer.over:
                outer.cut()
            self._finish(inner.near)
        self._pairs.clear()

    async def _pump(self, source: VirtualIO, sink: VirtualIO) -> None:
        buffer = memoryview(bytearray(_READ))
        try:
            while (count := source.receive_now([buffer])) != 0:
                if count is None:
                    await source.readable()
                else:
                    await sink.send_all([bytes(buffer[:count])])
        except (OSError, trio.ClosedResourceError):
            pass
        self._finish(sink)
        self._finish(source)

    def _finish(self, io: VirtualIO) -> None:
        """Ends a connection in good order: what was not read, and what still comes, is read and dropped."""
        io.finish()
        self._nursery.start_soon(_drop, io)


async def _drop(io: VirtualIO) -> None:
    buffer = memoryview(bytearray(_READ))
    with trio.move_on_after(_READS_ON):
        try:
            while (count := io.receive_now([buffer])) != 0:
                if count is None:
                    await io.readable()
        except (OSError, trio.ClosedResourceError):
            pass
    io.close()
