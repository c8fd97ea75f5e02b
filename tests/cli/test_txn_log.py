import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from uuid import uuid4

import pytest
import trio

from kproxy.cli import main
from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec.batch import Record, build_batch
from kproxy.config import ExitCode
from kproxy.net.txn.log_topic import TOPIC
from kproxy.testing.fake_broker import FakeCluster, FakeServer, open_fake_cluster
from kproxy.txn.ids import log_partition
from kproxy.txn.log_records import Entry, RawRecord, encode
from tests.net.txn.log_harness import following

PID = 3 << 61 | 7
NONCE = bytes(range(16))
ORDERS = [
    encode(
        Entry("orders", TransactionClaim(nonce=NONCE, generation=1, producer_id=PID, epochs=64, client_id="loader"))
    ),
    encode(Entry("orders", TransactionDecision(nonce=NONCE, producer_id=PID, epoch=0, committed=True))),
]
AUDIT = [encode(Entry("audit", TransactionClaim(nonce=NONCE, generation=1, producer_id=PID + 8)))]
STRANGE: list[RawRecord] = [(b"\x00\x63", b"\x00\x00"), (b"", b"x")]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KPROXY_BOOTSTRAP_SERVERS", "KPROXY_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def append(fake: FakeCluster, partition: int, records: Sequence[RawRecord], pid: int = PID) -> None:
    rows = [Record(n, 0, key, value) for n, (key, value) in enumerate(records)]
    data = build_batch(rows, producer_id=pid, producer_epoch=0, base_sequence=0)
    part = fake.topics[TOPIC].partitions[partition]
    assert part.log.append(memoryview(data), part.leader_epoch, fake.clock()).error == 0
    fake.notify()


async def make_log(fake: FakeServer) -> None:
    async with following(fake.bootstrap):
        pass
    append(fake.cluster, log_partition("orders", 4), ORDERS)
    append(fake.cluster, log_partition("audit", 4), AUDIT)


async def command(fake: FakeServer, *arguments: str) -> Ended:
    given = ["txn", "log", "--bootstrap-servers", fake.bootstrap, *arguments]
    with trio.fail_after(120):
        # trio.run wants a thread of its own; signals are for the main thread, so a process is what is like life.
        result = await trio.run_process(
            [sys.executable, "-m", "kproxy", *given], capture_stdout=True, capture_stderr=True, check=False
        )
    return Ended(result.returncode, result.stdout.decode(), result.stderr.decode())


async def test_every_record_is_a_line() -> None:
    async with open_fake_cluster(1) as fake:
        await make_log(fake)
        code, out, err = await command(fake)
    assert (code, err) == (ExitCode.OK, "")
    lines = out.splitlines()
    assert len(lines) == 3
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 \d:\d ", line) for line in lines)
    assert sum("orders" in line for line in lines) == 2


async def test_one_id_alone() -> None:
    async with open_fake_cluster(1) as fake:
        await make_log(fake)
        append(fake.cluster, log_partition("audit", 4), STRANGE, pid=9)
        code, out, _ = await command(fake, "--transactional-id", "audit")
    [line] = out.splitlines()
    assert code == ExitCode.OK
    assert "audit" in line


async def test_json_of_one_partition() -> None:
    async with open_fake_cluster(1) as fake:
        await make_log(fake)
        append(fake.cluster, log_partition("orders", 4), STRANGE, pid=9)
        code, out, _ = await command(fake, "--json", "--partition", str(log_partition("orders", 4)))
    assert code == ExitCode.OK
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["offset"], row["kind"]) for row in rows] == [(0, "CLAIM"), (1, "DECISION"), (2, None), (3, None)]
    claim, decision, newer, damaged = rows
    assert (claim["transactional_id"], claim["producer_id"], claim["epoch"]) == ("orders", PID, 0)
    assert (claim["body"]["nonce"], claim["body"]["client_id"]) == (NONCE.hex(), "loader")
    assert decision["body"]["committed"] is True
    assert (newer["key"], damaged["value"]) == ("0063", "78")
    assert newer["unreadable"]


async def test_it_follows_until_it_is_interrupted() -> None:
    async with open_fake_cluster(1) as fake, trio.open_nursery() as nursery:
        await make_log(fake)
        arguments = [sys.executable, "-m", "kproxy", "txn", "log", "--follow", "--bootstrap-servers", fake.bootstrap]
        run = partial(trio.run_process, arguments, stdout=subprocess.PIPE, stderr=None, check=False)
        with trio.fail_after(120):
            process: trio.Process = await nursery.start(run)
            assert process.stdout is not None
            seen = b""
            while seen.count(b"\n") < 3:
                seen += await process.stdout.receive_some()
            append(fake.cluster, 0, [encode(Entry("late", TransactionDecision(nonce=uuid4().bytes)))])
            while b"late" not in seen:
                seen += await process.stdout.receive_some()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == ExitCode.OK


async def test_who_reads_may_go(capfd: pytest.CaptureFixture[str]) -> None:
    async with open_fake_cluster(1) as fake:
        await make_log(fake)
        read_end, write_end = os.pipe()
        os.close(read_end)
        arguments = [sys.executable, "-m", "kproxy", "txn", "log", "--bootstrap-servers", fake.bootstrap]
        with trio.fail_after(120):
            result = await trio.run_process(arguments, stdout=write_end, check=False)
        os.close(write_end)
    assert (result.returncode, capfd.readouterr().err) == (ExitCode.OK, "")


async def test_a_cluster_without_a_log_is_left_without() -> None:
    async with open_fake_cluster(1) as fake:
        code, _, err = await command(fake)
        assert TOPIC not in fake.cluster.topics
    assert code == ExitCode.FAILURE
    assert err.startswith("kproxy: there is no topic __kproxy_transaction_state: no kproxy has begun")


def test_no_broker_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txn", "log", "--bootstrap-servers", "127.0.0.1:1"]) == ExitCode.FAILURE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("kproxy: cannot read the transaction log: ")


def test_brokers_have_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txn", "log"]) == ExitCode.USAGE
    assert "bootstrap.servers is required" in capsys.readouterr().err
