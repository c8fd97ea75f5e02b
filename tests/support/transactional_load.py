"""Producers in frames that write in transactions while kproxy is stopped, started and replaced."""

from collections import Counter
from collections.abc import Sequence
from itertools import count

import trio

from kproxy.codec.batch import iter_records
from kproxy.codec.topic_partition import TopicPartition
from kproxy.testing.cluster_client import ClusterClient
from tests.net.harness import FrameClient
from tests.net.txn.wire_producer import WireProducer

_LOST = (EOFError, OSError, trio.BrokenResourceError, trio.TooSlowError)
#: Seconds that a response may take: other programs have the processor, too.
_PATIENCE = 120.0


class TransactionalLoad:
    """Producers that write each number into two partitions of a topic, a transaction each."""

    def __init__(self, topic: str, ports: Sequence[int]) -> None:
        """``ports`` of gateways: a producer that finds no one at its own goes to the next, and begins again there."""
        self.committed: list[str] = []
        #: Numbers whose transactions ended otherwise than by a commit.
        self.broken: list[str] = []
        self.reconnects = 0
        self.stop = trio.Event()
        self._ended = 0
        self._places = [(topic, 0), (topic, 1)]
        self._ports = ports

    async def run(self, index: int) -> None:
        """One producer, until told to stop."""
        name = f"{self._places[0][0]}-{index}"
        producer = WireProducer(await self._connect(name, index), name)
        while await producer.init():  # noqa: ASYNC110 - the log may have to be made
            await trio.sleep(0.05)
        for number in count():
            if self.stop.is_set():
                await trio.aclose_forcefully(producer.client.stream)
                self._ended += 1
                return
            await self._begin(producer, index)
            value = f"{index}-{number}"
            try:
                done = not any(await producer.produce(value, *self._places)) and await producer.end() == 0
            except _LOST:
                done = False
            (self.committed if done else self.broken).append(value)
            await trio.sleep(0.01)  # leaves the processor to who starts

    async def _begin(self, producer: WireProducer, index: int) -> None:
        """Here a connection may end: nothing has begun yet."""
        while True:
            try:
                if not any(await producer.add(*self._places)):
                    return
                await trio.sleep(0.02)
                if len(self._ports) > 1:
                    await producer.init()  # another gateway had the transactional id
            except _LOST:
                await trio.aclose_forcefully(producer.client.stream)
                producer.client = await self._connect(producer.transactional_id, index)
                self.reconnects += 1

    async def _connect(self, name: str, index: int) -> FrameClient:
        while True:
            for turn in range(len(self._ports)):
                try:
                    port = self._ports[(index + turn) % len(self._ports)]
                    return FrameClient(await trio.open_tcp_stream("127.0.0.1", port), name, _PATIENCE)
                except OSError:
                    await trio.sleep(0.02)  # between two processes

    async def past(self, more: int) -> None:
        """Until so many more are committed."""
        wanted = len(self.committed) + more
        with trio.fail_after(90):
            while len(self.committed) < wanted:  # noqa: ASYNC110 - a counter that nobody announces
                await trio.sleep(0.01)

    async def ended(self, producers: int) -> None:
        """Until so many producers have ended."""
        with trio.fail_after(90):
            while self._ended < producers:  # noqa: ASYNC110 - as above
                await trio.sleep(0.01)

    async def check(self) -> None:
        """What a reader of committed data sees is what was committed, once, in both partitions, at every port."""
        assert self.reconnects > 0
        assert self.broken == []
        wanted = Counter(self.committed)
        for port in self._ports:
            for place, values in (await trio.to_thread.run_sync(_committed, port, self._places)).items():
                seen = Counter(values)
                assert (seen - wanted, wanted - seen) == (Counter(), Counter()), (port, place)


def _committed(port: int, places: Sequence[TopicPartition]) -> dict[TopicPartition, list[str]]:
    with ClusterClient(f"127.0.0.1:{port}", timeout=_PATIENCE) as client:
        read = {}
        for place in places:
            assert client.offset(*place, isolation_level=1) == client.offset(*place)  # nothing is left undecided
            data = client.read_all(*place, isolation_level=1)
            records = iter_records(data, max_decompressed_bytes=1 << 24)
            read[place] = [(record.value or b"").decode() for record in records]
        return read
