"""``kproxy run --replace``: one process takes over from another, while clients continue."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import trio

from kproxy.config import ExitCode
from kproxy.net.fleet_log import TOPIC as FLEET
from kproxy.proxy.announcements import decode_value
from kproxy.proxy.fleet_view import FleetView
from kproxy.testing.fake_broker import FakeServer, open_fake_cluster
from kproxy.testing.ports import free_ports
from tests.net.harness import FrameClient, errors_of, produce, records_in, values_in
from tests.support.processes import kproxy, serving

_CLIENTS = 4
_ENOUGH = 150


def flags(path: Path, ports: range) -> Sequence[str]:
    return [
        "--listen", f"127.0.0.1:{ports[0]}", "--broker-ports", f"{ports[1]}-{ports[-1]}",
        "--handover-socket", str(path), "--producer-state-log-num-partitions", "1", "--instance-id", "gateway",
        "--fleet-announce-interval-ms", "1000",
    ]  # fmt: skip


class Load:
    """Clients that write numbers, each its own, one after the other; what has no response is sent again."""

    def __init__(self, port: int) -> None:
        self.acknowledged = [0] * _CLIENTS
        self.reconnects = 0
        self.stop = trio.Event()
        self._port = port

    async def run(self, client: int) -> None:
        """Raises OSError if a connection is refused."""
        name, connection = f"client-{client}", None
        for number in count():
            request = produce("t", f"{number}".encode(), partition=client)
            while True:
                if connection is None:
                    connection = FrameClient(await trio.open_tcp_stream("127.0.0.1", self._port), name)
                try:
                    if errors_of(await connection.call(request, 8)) == [0]:
                        break
                except (EOFError, OSError, trio.BrokenResourceError, trio.TooSlowError):
                    await trio.aclose_forcefully(connection.stream)
                    connection, self.reconnects = None, self.reconnects + 1
            self.acknowledged[client] = number + 1
            await trio.sleep(0.01)  # leaves the processor to who starts
            if number % 10 == client or self.stop.is_set():
                await trio.aclose_forcefully(connection.stream)
                connection = None
            if self.stop.is_set():
                return

    async def past(self, more: int) -> None:
        """Until each client has written so many more."""
        wanted = [number + more for number in self.acknowledged]
        with trio.fail_after(90):
            while any(has < want for has, want in zip(self.acknowledged, wanted, strict=True)):  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_no_connection_is_refused_and_nothing_lost_or_doubled(tmp_path: Path) -> None:
    ports = free_ports(4)
    arguments = flags(tmp_path / "handover.sock", ports)
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *arguments) as old:
        fake.cluster.create_topic("t", _CLIENTS)
        await serving(old)
        former = await announced(fake, 0)
        load = Load(ports[0])
        async with trio.open_nursery() as nursery:
            for client in range(_CLIENTS):
                nursery.start_soon(load.run, client)
            await load.past(20)
            async with kproxy(fake.bootstrap, *arguments, "--replace") as new:
                await new.said("the former kproxy has ended")
                with trio.fail_after(90):
                    assert await old.process.wait() == ExitCode.OK
                await old.said("stopped; nothing is left")
                await serving(new)
                await load.past(20)
                await announced(fake, former)
                assert (tmp_path / "handover.sock").exists()
                load.stop.set()
                with trio.fail_after(90):
                    while nursery.child_tasks:  # noqa: ASYNC110 - a nursery has no event for it
                        await trio.sleep(0.01)
        check(fake, load)


async def announced(fake: FakeServer, before_ms: int) -> int:
    """When the process began, in ms, that announced itself last; waits for one that began after ``before_ms``.

    Until then no process took the announcement back, and the name was not used by two at once.
    """
    with trio.fail_after(90):
        while True:
            made = fake.cluster.topics.get(FLEET)
            places = range(len(made.partitions)) if made is not None else ()
            entries = [record for place in places for record in records_in(fake.cluster, FLEET, place)]
            assert all(row.value is not None for row in entries)
            if entries and (began := decode_value("gateway", entries[-1].value or b"").started_ms) > before_ms:
                break
            await trio.sleep(0.05)
    view = FleetView()
    view.apply(entries)
    [row] = view.fleet(entries[-1].timestamp, announces=True, incomplete=False).instances
    assert (row.instance_id, row.started_ms) == ("gateway", began)
    assert not any("two processes" in problem for problem in row.problems)
    return began


def check(fake: FakeServer, load: Load) -> None:
    assert load.reconnects > 0
    for client in range(_CLIENTS):
        expected = [f"{number}".encode() for number in range(load.acknowledged[client])]
        assert values_in(fake.cluster, "t", client) == expected
