"""Transactions while kproxy is stopped and started again, or replaced: none is broken off, none torn."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
import trio

from kproxy.codec.batch import iter_records
from kproxy.config import ExitCode
from kproxy.testing.chaos.ports import free_ports
from kproxy.testing.fake_broker import open_fake_cluster
from tests.net.harness import FrameClient, fetch
from tests.net.txn.wire_producer import WireProducer
from tests.support.processes import Process, kproxy, serving

_PRODUCERS = 3
_PLACES = [("t", 0), ("t", 1)]
_LOST = (EOFError, OSError, trio.BrokenResourceError, trio.TooSlowError)


def flags(path: Path, ports: range) -> Sequence[str]:
    return [
        "--listen", f"127.0.0.1:{ports[0]}", "--broker-ports", f"{ports[1]}-{ports[-1]}", "--instance-id", "gateway",
        "--handover-socket", str(path), "--transactions-home", "kproxy", "--transaction-state-log-num-partitions", "2",
        "--shutdown-grace-ms", "60000",
    ]  # fmt: skip


class Load:
    """Producers that write each number into two partitions, a transaction each."""

    def __init__(self, port: int) -> None:
        self.committed: list[str] = []
        #: Numbers whose transactions ended otherwise than by a commit.
        self.broken: list[str] = []
        self.reconnects = 0
        self.stop = trio.Event()
        self._port = port

    async def run(self, name: str) -> None:
        """Until told to stop."""
        producer = WireProducer(await self._connect(name), name)
        assert await producer.init() == 0
        for number in count():
            if self.stop.is_set():
                await trio.aclose_forcefully(producer.client.stream)
                return
            await self._begin(producer)
            value = f"{name}-{number}"
            try:
                done = not any(await producer.produce(value, *_PLACES)) and await producer.end() == 0
            except _LOST:
                done = False
            (self.committed if done else self.broken).append(value)
            await trio.sleep(0.01)  # leaves the processor to who starts

    async def _begin(self, producer: WireProducer) -> None:
        """Here a connection may end: nothing has begun yet."""
        while True:
            try:
                if not any(await producer.add(*_PLACES)):
                    return
                await trio.sleep(0.02)
            except _LOST:
                await trio.aclose_forcefully(producer.client.stream)
                producer.client = await self._connect(producer.transactional_id)
                self.reconnects += 1

    async def _connect(self, name: str) -> FrameClient:
        while True:
            try:
                return FrameClient(await trio.open_tcp_stream("127.0.0.1", self._port), name)
            except OSError:
                await trio.sleep(0.02)  # between two processes

    async def past(self, more: int) -> None:
        """Until so many more are committed."""
        wanted = len(self.committed) + more
        with trio.fail_after(90):
            while len(self.committed) < wanted:  # noqa: ASYNC110 - a counter that nobody announces
                await trio.sleep(0.01)


async def stopped(old: Process) -> None:
    old.process.terminate()
    with trio.fail_after(90):
        assert await old.process.wait() == ExitCode.OK


@pytest.mark.parametrize("by_hand_over", [True, False], ids=["hand-over", "stop-and-start"])
async def test_no_transaction_is_broken_off(tmp_path: Path, by_hand_over: bool) -> None:
    ports = free_ports(4)
    arguments = flags(tmp_path / "handover.sock", ports)
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *arguments) as old:
        fake.cluster.create_topic("t", 2)
        await serving(old)
        load = Load(ports[0])
        async with trio.open_nursery() as nursery:
            for number in range(_PRODUCERS):
                nursery.start_soon(load.run, f"p{number}")
            await load.past(20)
            if not by_hand_over:
                await stopped(old)
            async with kproxy(fake.bootstrap, *arguments, *(["--replace"] if by_hand_over else [])) as new:
                await serving(new)
                await old.said("stopped; nothing is left")
                await load.past(20)
                load.stop.set()
                with trio.fail_after(90):
                    while nursery.child_tasks:  # noqa: ASYNC110 - the nursery does not tell
                        await trio.sleep(0.01)
                assert load.reconnects > 0
                assert load.broken == []
                async with await new.client() as reader:
                    for partition in (0, 1):
                        assert sorted(await committed_in(reader, partition)) == sorted(load.committed)


async def committed_in(reader: FrameClient, partition: int) -> list[str]:
    """What a reader of committed data sees."""
    request = fetch("t", max_bytes=1 << 24, isolation_level=1)
    request.topics[0].partitions[0].partition = partition
    part = (await reader.call(request, 11)).responses[0].partitions[0]
    assert part.last_stable_offset == part.high_watermark
    return [(record.value or b"").decode() for record in iter_records(part.records, max_decompressed_bytes=1 << 24)]
