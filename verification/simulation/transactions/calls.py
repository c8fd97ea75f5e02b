"""The connections of one client process: one for each address, requests in order on each."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec.messages import Message
from verification.simulation.frames import FrameIO
from verification.simulation.network import Host
from verification.simulation.plan import TOPIC
from verification.simulation.transactions.routes import Route

if TYPE_CHECKING:
    from verification.simulation.link import Link

Address = tuple[str, int]

#: The exceptions of a lost connection or a missing response.
LOST: Final = (OSError, trio.ClosedResourceError, EOFError)
_CONNECT_MS: Final = 1000
_METADATA: Final = 4
_API_VERSIONS: Final = 3


def _at_once(_: Message) -> float:
    return 0.0


class Calls:
    """Asks, and closes a connection that gives no response in time."""

    def __init__(
        self,
        host: Host,
        client_id: str,
        timeout: float,
        bootstrap: Address,
        held_up: Callable[[Message], float] = _at_once,
        *,
        lingers: bool = True,
        software: str = "",
        route: Route | None = None,
    ) -> None:
        """``timeout`` of each request in seconds; ``held_up``: how long one is in flight beyond the usual.

        ``lingers``: the end of a connection on which one is held up arrives long after it, if ever; else at once.
        ``software``: what the client calls itself at the start of each connection (KIP-511); empty: nothing.
        ``route``: the kproxy that a connection goes to, whichever is named; None: the one that is named.
        """
        self._host = host
        self._client_id = client_id
        self._timeout = timeout
        self._bootstrap = bootstrap
        self._held_up = held_up
        self._lingers = lingers
        self._software = software
        self._route = route
        #: With the turn of the route after which each was made.
        self._ios: dict[Address, tuple[FrameIO, Link, int]] = {}
        self._unended: list[FrameIO] = []
        self._locks: dict[Address, trio.Lock] = {}
        self._leaders: dict[int, Address] = {}

    async def ask(self, place: Address, message: Message, version: int) -> Message:
        """The response; one of ``LOST`` if there is none."""
        answers = await self.ask_all(place, [message], version)
        if not answers:
            raise OSError("no answer")
        return answers[0]

    async def ask_all(self, place: Address, messages: Sequence[Message], version: int) -> list[Message]:
        """Sends requests one after another; the responses to the first of them, up to the one that has none."""
        answers: list[Message] = []
        if self._route is not None:
            place = (self._bootstrap[0], place[1])
        async with self._locks.setdefault(place, trio.Lock()):
            with trio.move_on_at(self._deadline(place)) as scope:
                try:
                    io = await self._connection(place, messages)
                    for message in messages:
                        await io.send(message, version)
                    while len(answers) < len(messages):
                        answers.append((await io.receive())[1])
                except LOST:
                    self._fail(place)
            if scope.cancelled_caught:
                self._fail(place)
        return answers

    def _deadline(self, place: Address) -> float:
        """The time until which a request to a place is waited for; a connection from before a turn ends now."""
        deadline = trio.current_time() + self._timeout
        if self._route is None:
            return deadline
        if place in self._ios and self._ios[place][2] != self._route.turns_taken:
            self._drop(place)
        return min(deadline, self._route.interrupted_at)

    def _fail(self, place: Address) -> None:
        self._drop(place)
        if self._route is not None:
            self._route.failed()

    async def _connection(self, place: Address, messages: Sequence[Message]) -> FrameIO:
        if place not in self._ios:
            turn, host = 0, place[0]
            if self._route is not None:
                turn, host = self._route.turns_taken, self._route.next_host()
            connection = await self._host.connect(host, place[1], _CONNECT_MS)
            self._ios[place] = FrameIO(connection, self._client_id), self._host.newest, turn
            await self._say_software(self._ios[place][0])
        io, link, _ = self._ios[place]
        link.up.stall(max(map(self._held_up, messages)))
        return io

    async def _say_software(self, io: FrameIO) -> None:
        if self._software:
            await io.send(ApiVersionsRequest(client_software_name=self._software), _API_VERSIONS)
            await io.receive()

    def _drop(self, place: Address) -> None:
        found = self._ios.pop(place, None)
        if found is None:
            return
        io, link, _ = found
        if link.up.holds and self._lingers:
            self._unended.append(io)  # its end is held up, too, and longer than what was sent
        else:
            io.close()

    async def bootstrap(self, message: Message, version: int) -> Message:
        """Asks where the client begins."""
        return await self.ask(self._bootstrap, message, version)

    async def leader(self, partition: int) -> Address:
        """The leader of a partition, by Metadata. OSError if there is no leader."""
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
        """Its leader has to be found again."""
        self._leaders.pop(partition, None)

    def close(self) -> None:
        """Closes all connections."""
        for place in list(self._ios):
            self._drop(place)
        for io in self._unended:
            io.close()
