"""Transactions while kproxy is stopped and started again, or replaced: none is broken off, none torn."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from kproxy.config import ExitCode
from kproxy.testing.fake_broker import open_fake_cluster
from kproxy.testing.ports import free_ports
from tests.support.processes import Process, kproxy, serving
from tests.support.transactional_load import TransactionalLoad

_PRODUCERS = 3


def flags(path: Path, ports: range) -> Sequence[str]:
    return [
        "--listen", f"127.0.0.1:{ports[0]}", "--broker-ports", f"{ports[1]}-{ports[-1]}", "--instance-id", "gateway",
        "--handover-socket", str(path), "--transactions-home", "kproxy", "--transaction-state-log-num-partitions", "2",
        "--shutdown-grace-ms", "60000",
    ]  # fmt: skip


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
        load = TransactionalLoad("t", ports[:1])
        async with trio.open_nursery() as nursery:
            for index in range(_PRODUCERS):
                nursery.start_soon(load.run, index)
            await load.past(20)
            if not by_hand_over:
                await stopped(old)
            async with kproxy(fake.bootstrap, *arguments, *(["--replace"] if by_hand_over else [])) as new:
                await serving(new)
                await old.said("stopped; nothing is left")
                await load.past(20)
                load.stop.set()
                await load.ended(_PRODUCERS)
                await load.check()
