"""A connection of the virtual network as a stream of trio's, for the fake broker."""

import trio

from verification.simulation.virtual_io import VirtualIO

_READ = 1 << 16


class BrokerStream(trio.abc.Stream):
    """The stream that ``FakeServer.serve`` reads and writes.

    A call that need not wait is no checkpoint: half of all steps of a run would be checkpoints.
    """

    def __init__(self, io: VirtualIO) -> None:
        self._io = io
        self._buffer = memoryview(bytearray(_READ))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """trio.BrokenResourceError if the connection is closed."""
        try:
            await self._io.send_all([bytes(data)])
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def wait_send_all_might_not_block(self) -> None:
        """Never waits."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes, empty at the end; trio.BrokenResourceError if the connection is closed."""
        try:
            while (count := self._io.receive_now([self._buffer])) is None:
                await self._io.readable()
        except OSError as error:
            raise trio.BrokenResourceError from error
        return bytes(self._buffer[:count])

    async def aclose(self) -> None:
        """Ends the connection."""
        self._io.close()
        await trio.lowlevel.checkpoint()
