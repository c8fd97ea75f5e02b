"""Clients that lose responses: record sets with fixed times, and ways for a connection to end."""

import socket
import struct
import time

import trio

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import Record, build_batch, iter_records
from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker import Call
from tests.net.harness import PATIENCE, FrameClient, Proxied

TIME_MS = int(time.time() * 1000) - 1000


def batch(*values: bytes, time_ms: int = TIME_MS, codec: int = 0) -> bytes:
    """A batch whose records have times that do not change from one sending to the next."""
    return bytes(build_batch([Record(at, time_ms, None, value, ()) for at, value in enumerate(values)], codec=codec))


def request(*parts: bytes, timeout_ms: int = 60_000, acks: int = -1, topic: str = "t") -> ProduceRequest:
    """Record sets for partitions 0, 1, and so on."""
    data = [ProduceRequestPartitionProduceData(index=at, records=records) for at, records in enumerate(parts)]
    topics = [ProduceRequestTopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def bases(response: object) -> list[int]:
    """The base offset of each partition in a Produce response."""
    return [row.base_offset for topic in response.responses for row in topic.partition_responses]  # type: ignore[attr-defined]


async def end(client: FrameClient, *, reset: bool = False) -> None:
    """Ends a connection by FIN, or by RST."""
    if reset:
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await trio.aclose_forcefully(client.stream)


class Gate:
    """Produce requests for topic ``t`` (with a value) wait at the broker until they are let go."""

    def __init__(self, proxy: Proxied, value: bytes | None = None) -> None:
        self._value = value
        self._open = trio.Event()
        self.reached = trio.Event()
        proxy.brokers.control(ApiKey.PRODUCE, self._hold)

    async def _hold(self, call: Call) -> None:
        for topic in call.request.topic_data:
            for part in topic.partition_data if topic.name == "t" else ():
                values = {record.value for record in iter_records(part.records, max_decompressed_bytes=1 << 20)}
                if self._value is None or self._value in values:
                    self.reached.set()
                    await self._open.wait()

    async def wait_reached(self) -> None:
        """Waits until one is held; trio.TooSlowError if none comes."""
        with trio.fail_after(PATIENCE):
            await self.reached.wait()

    def release(self) -> None:
        """Lets them go."""
        self._open.set()
