"""Producers that share one transactional id, each at its own kproxy, which decide its transactions in one log."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.codec.batch import iter_records
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker import open_fake_cluster
from tests.net.harness import Proxied, eventually, running
from tests.verification.chaos.twin_runs import count, run
from verification.chaos.raw_transactions import FIRST, SECOND, Protocol
from verification.chaos.recorder import Recorder, now
from verification.chaos.shared_ids import INPUTS
from verification.chaos.twins import Shared, Twin
from verification.chaos.unaware import places_of
from verification.history import Kind, Operation, Outcome, Poll, check, read_history

OPTIONS: dict[str, Any] = {
    "coordinator": Transactions,
    "transactions_home": (HomeRule("*", Home.KPROXY),),
    "transaction_state_log_num_partitions": 4,
}
PARTITIONS = 3


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that was fenced takes the id over again soon."""
    monkeypatch.setattr("verification.chaos.twins._AWAY_S", (0.05, 0.2))
    monkeypatch.setattr("verification.chaos.twins._BACKOFF_S", 0.02)
    monkeypatch.setattr("verification.chaos.twins._ZOMBIE_S", (0.0, 0.2))


@asynccontextmanager
async def two_kproxies() -> AsyncIterator[list[Proxied]]:
    async with open_fake_cluster() as fake:
        fake.cluster.create_topic("t", PARTITIONS)
        fake.cluster.create_topic(INPUTS, 1)
        async with (
            running(fake.bootstrap, instance_id="a", **OPTIONS) as a,
            running(fake.bootstrap, instance_id="b", **OPTIONS) as b,
        ):
            for each in (a, b):
                await eventually(lambda each=each: each.stats.upstream.ready)  # type: ignore[misc]
            yield [a, b]


def read_committed(port: int) -> Iterator[Operation]:
    """Everything that a kproxy shows of committed data."""
    with ClusterClient(f"127.0.0.1:{port}") as client:
        for partition in range(PARTITIONS):
            data = client.read_all("t", partition, isolation_level=1)
            records = iter_records(data, max_decompressed_bytes=1 << 20)
            values = tuple((one.offset, (one.value or b"").decode()) for one in records)
            polls = (Poll("t", partition, values),)
            yield Operation(f"end {port}", Kind.POLL, Outcome.OK, now(), now(), polls=polls, final=True)


@pytest.mark.parametrize("protocol", [FIRST, SECOND], ids=["first", "second"])
async def test_each_input_is_copied_once_and_no_zombie_succeeds(tmp_path: Path, protocol: Protocol) -> None:
    def enough(history: list[Operation]) -> bool:
        both = all(count(history, Kind.TXN, Outcome.OK, name) > 3 for name in ("one", "two"))
        return both and count(history, Kind.END, Outcome.FAIL) > 3 and count(history, Kind.INIT, Outcome.OK) > 6

    with Recorder(tmp_path) as recorder:
        async with two_kproxies() as kproxies:
            shared = Shared("shared", places_of(["t"], PARTITIONS), protocol, (INPUTS, 0))
            ends = zip(("one", "two"), kproxies, strict=True)
            twins = [Twin(name, shared, ("127.0.0.1", each.port), recorder, 1) for name, each in ends]
            await run(recorder, twins, enough)
            await twins[1].read_position()
            for each in kproxies:
                read = await trio.to_thread.run_sync(lambda port=each.port: list(read_committed(port)))  # type: ignore[misc]
                for operation in read:
                    recorder.add(operation)
        recorder.flush()
        history = list(read_history(recorder.path))
    assert check(history) == []
    assert recorder.unexpected == {}
