"""What brokers are asked: requests by kind, bytes, and the busiest second."""

from collections import Counter
from dataclasses import dataclass, field

import trio

from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker import Call, FakeCluster
from verification.simulation.streams import BrokerStream
from verification.simulation.virtual_io import VirtualIO


@dataclass(slots=True)
class Load:
    """Of one stretch of time."""

    began: float
    requests: Counter[str] = field(default_factory=Counter)
    #: By whole second of trio's clock.
    seconds: Counter[int] = field(default_factory=Counter)
    bytes_in: int = 0
    bytes_out: int = 0
    ended: float = 0.0

    @property
    def lasted(self) -> float:
        """Seconds."""
        return self.ended - self.began

    @property
    def total(self) -> int:
        """Requests."""
        return self.requests.total()

    @property
    def peak(self) -> int:
        """Requests in the busiest second."""
        return max(self.seconds.values(), default=0)


class Meter:
    """Counts at all brokers of a cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        """Counts from now on."""
        self.load = Load(trio.current_time())
        for key in ApiKey:
            cluster.control(key, self._note)

    def _note(self, call: Call) -> None:
        self.load.requests[type(call.request).__name__.removesuffix("Request")] += 1
        self.load.seconds[int(trio.current_time())] += 1

    def take(self) -> Load:
        """The load since the last call."""
        load, self.load = self.load, Load(trio.current_time())
        load.ended = self.load.began
        return load


class MeteredStream(BrokerStream):
    """A connection to a broker whose bytes are counted."""

    def __init__(self, io: VirtualIO, meter: Meter) -> None:
        """Of the broker's end."""
        super().__init__(io)
        self._meter = meter

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As ``BrokerStream``."""
        self._meter.load.bytes_out += len(data)
        await super().send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """As ``BrokerStream``."""
        data = await super().receive_some(max_bytes)
        self._meter.load.bytes_in += len(data)
        return data
