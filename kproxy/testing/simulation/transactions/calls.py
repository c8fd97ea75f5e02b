"""The connections of one client process: one for each address, one request at a time on each."""

from typing import Final

import trio

from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec.messages import Message
from kproxy.testing.simulation.frames import FrameIO
from kproxy.testing.simulation.network import Host
from kproxy.testing.simulation.plan import TOPIC

Address = tuple[str, int]

#: What a lost connection or a missing answer looks like.
LOST: Final = (OSError, trio.ClosedResourceError, EOFError)
_CONNECT_MS: Final = 1000
_METADATA: Final = 4


class Calls:
    """Asks, and closes a connection that gives no answer in time."""

    def __init__(self, host: Host, client_id: str, timeout: float, bootstrap: Address) -> None:
        """``timeout`` of each request in seconds."""
        self._host = host
        self._client_id = client_id
        self._timeout = timeout
        self._bootstrap = bootstrap
        self._ios: dict[Address, FrameIO] = {}
        self._locks: dict[Address, trio.Lock] = {}
        self._leaders: dict[int, Address] = {}

    async def ask(self, place: Address, message: Message, version: int, *, wait: float = 0.0) -> Message:
        """The answer; one of ``LOST`` if there is none. ``wait``: so many seconds more are given."""
        async with self._locks.setdefault(place, trio.Lock()):
            try:
                with trio.move_on_after(self._timeout + wait):
                    io = self._ios.get(place)
                    if io is None:
                        connection = await self._host.connect(*place, _CONNECT_MS)
                        io = self._ios[place] = FrameIO(connection, self._client_id)
                    await io.send(message, version)
                    return (await io.receive())[1]
                raise OSError("no answer in time")
            except LOST:
                self._drop(place)
                raise

    def _drop(self, place: Address) -> None:
        io = self._ios.pop(place, None)
        if io is not None:
            io.close()

    async def bootstrap(self, message: Message, version: int) -> Message:
        """Asks where the client begins."""
        return await self.ask(self._bootstrap, message, version)

    async def leader(self, partition: int) -> Address:
        """Where a partition is led, as Metadata had it. OSError if there is no leader."""
        if partition not in self._leaders:
            answer = await self.bootstrap(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), _METADATA)
            assert isinstance(answer, MetadataResponse)
            brokers = {row.node_id: (row.host, row.port) for row in answer.brokers}
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.leader_id in brokers:
                        self._leaders[row.partition_index] = brokers[row.leader_id]
        if partition not in self._leaders:
            raise OSError(f"partition {partition} has no leader")
        return self._leaders[partition]

    def forget(self, partition: int) -> None:
        """Its leader is to be asked for anew."""
        self._leaders.pop(partition, None)

    def close(self) -> None:
        """Closes all connections."""
        for place in list(self._ios):
            self._drop(place)
