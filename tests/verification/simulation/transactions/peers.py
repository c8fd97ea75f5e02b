"""A host of the virtual network that answers requests as a test says."""

from collections.abc import Callable
from random import Random
from typing import Any

import trio

from kproxy.budget import unbounded
from kproxy.codec.frame import FrameSplitter
from kproxy.codec.header import decode_request_header, encode_response
from kproxy.codec.messages import Message, request_class
from verification.simulation.clock import VirtualClock
from verification.simulation.network import Host, VirtualNetwork
from verification.simulation.transactions.calls import Calls
from verification.simulation.transactions.plan import ProducerPlan
from verification.simulation.transactions.routes import Route
from verification.simulation.virtual_io import VirtualIO

ADDRESS = ("peer", 9092)


class Peer:
    """Answers requests in order; what has no response ends the connection, or (``silent``) is waited for in vain."""

    def __init__(self, nursery: trio.Nursery, answer: Callable[[Any, int], Message | None], *, silent: bool) -> None:
        self.network = VirtualNetwork(1, VirtualClock(trio.lowlevel.current_clock()), trio.current_time)
        #: What was asked, and over which connection.
        self.asked: list[tuple[int, Any]] = []
        self._nursery = nursery
        self._answer = answer
        self._silent = silent
        self._connections = 0
        #: That clients connected to, in order.
        self.hosts: list[str] = []
        self.listen(ADDRESS[0])

    def listen(self, host: str) -> tuple[str, int]:
        """Also answers what is asked at another host; its address."""
        self.network.takers[host, ADDRESS[1]] = ("client", self._take)
        return host, ADDRESS[1]

    def _take(self, io: VirtualIO) -> None:
        self._connections += 1
        self.hosts.append(io.local_host)
        self._nursery.start_soon(self._serve, io, self._connections)

    async def _serve(self, io: VirtualIO, number: int) -> None:
        splitter, buffer = FrameSplitter(1 << 20), memoryview(bytearray(1 << 14))
        while True:
            count = io.receive_now([buffer])
            if count is None:
                await io.readable()
                continue
            if not count:
                return
            for frame in splitter.feed(buffer[:count]):
                if not await self._one(io, memoryview(frame)[4:], number):
                    return

    async def _one(self, io: VirtualIO, frame: memoryview, number: int) -> bool:
        header = decode_request_header(frame)
        request = request_class(header.api_key).decode(frame[header.size :], header.api_version, unbounded())
        self.asked.append((number, request))
        answer = self._answer(request, header.api_version)
        if answer is not None:
            await io.send_all([encode_response(answer, header.api_version, header.correlation_id)])
        elif not self._silent:
            io.close()
            return False
        return True

    def calls(
        self,
        timeout: float = 2.0,
        held_up: Callable[[Message], float] = lambda _: 0.0,
        bootstrap: tuple[str, int] = ADDRESS,
        route: Route | None = None,
    ) -> Calls:
        """Of a client of it."""
        return Calls(Host(self.network, "client", "none"), "me", timeout, bootstrap, held_up, route=route)


def producer_plan(**more: Any) -> ProducerPlan:
    """One with an id of its own, without lives."""
    given: dict[str, Any] = {"number": 0, "transactional_id": "id", "second_version": False, "timeout_ms": 3_000}
    return ProducerPlan(**{**given, "lives": (), "renews": False, "request_timeout": 2.0, **more})


def rng() -> Random:
    """The same for each test."""
    return Random(7)
