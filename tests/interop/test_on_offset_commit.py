"""An application of the 0.9 protocol that consumes, transforms and produces is exactly-once through kproxy, as it is.

`INTEROP_KILLS` is how often it, or kproxy, is killed with SIGKILL in the middle of its work.
"""

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from kproxy.codec.batch import Record, build_batch, iter_records
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop import session
from tests.interop.committed import CommittedReader
from tests.interop.proxy import KproxyProcess
from tests.support.clients import Command, python_driver
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.java]
PARTITIONS = 2
#: Every so many kills it is kproxy's turn.
_KPROXYS_TURN = 3


def _application() -> Command:
    extras = ["lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0", "six==1.17.0"]
    return python_driver("transform.py", "kafka-python==1.4.7", *extras)


@contextmanager
def _running(command: Command, job: dict[str, object], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The application, until the block ends: then it is killed."""
    with (
        log.open("ab") as output,
        subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=command.whole_environment,
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(json.dumps(job).encode())
        process.stdin.close()
        try:
            yield process
        finally:
            process.kill()


def _values(bootstrap: str, topic: str, isolation_level: int) -> list[list[str]]:
    """The values in each partition."""
    with ClusterClient(bootstrap) as client:
        return [
            [
                (row.value or b"").decode()
                for row in iter_records(
                    client.read_all(topic, partition, isolation_level=isolation_level), max_decompressed_bytes=1 << 20
                )
            ]
            for partition in range(PARTITIONS)
        ]


def _fill(client: ClusterClient, topic: str, start: int, count: int) -> None:
    now_ms = int(time.time() * 1000)
    for partition in range(PARTITIONS):
        rows = [Record(at, now_ms, None, f"{partition}-{start + at}".encode()) for at in range(count)]
        assert client.produce(topic, partition, build_batch(rows)).error_code == 0


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """The work of an application for each coordinator, side by side: a group keeps a killed member's place a while."""
    homes = session.asked(request, "home")
    with ThreadPoolExecutor(len(homes)) as pool:
        yield {home: pool.submit(_work_and_kill, kafka, tmp_path_factory.mktemp(home), home) for home in homes}


@pytest.mark.parametrize("home", ["kproxy", "broker"])
def test_output_is_exactly_once_however_often_it_is_killed(runs: dict[str, Future[None]], home: str) -> None:
    runs[home].result()


def _work_and_kill(kafka: RealKafka, tmp_path: Path, home: str) -> None:
    kills, rounds = int(os.environ.get("INTEROP_KILLS", "5")), 200
    name = f"transform-{uuid4().hex[:8]}"
    source, target = f"{name}-in", f"{name}-out"
    with ClusterClient(kafka.bootstrap) as client:
        for topic in (source, target):
            client.create_topic(topic, PARTITIONS)
    options = ("--on-offset-commit", name, "--instance-id", name, "--transactions-home", home)
    chance, command, written = random.Random(7), _application(), 0
    job: dict[str, object] = {
        "bootstrap": "",
        "version": [0, 9],
        "client_id": name,
        "group": name,
        "source": source,
        "target": target,
    }
    kproxy = KproxyProcess(kafka.bootstrap, tmp_path / "log", *options)
    with kproxy, CommittedReader(kproxy.bootstrap, [target], PARTITIONS) as reader:
        job["bootstrap"] = kproxy.bootstrap
        for kill in range(kills + 1):
            with _running(command, job, tmp_path / "application") as process, ClusterClient(kafka.bootstrap) as client:
                _fill(client, source, written, rounds)
                written += rounds
                _until_written(reader, target, written * PARTITIONS - rounds, process, tmp_path)
                if kill == kills:
                    _until_written(reader, target, written * PARTITIONS, process, tmp_path)
                    break
                time.sleep(chance.random() / 10)
                if kill % _KPROXYS_TURN == _KPROXYS_TURN - 1:
                    kproxy.kill()
                    kproxy.__enter__()
        kproxy.check()
        expected = [[f"{partition}-{at}" for at in range(written)] for partition in range(PARTITIONS)]
        _compare(_values(kproxy.bootstrap, target, 1), expected)
        everything = sum(map(len, _values(kafka.bootstrap, target, 0)))
        print(f"{home}: {written * PARTITIONS} in, out once and in order; {everything} written, aborted ones included")
        if home == "broker":
            _compare(_committed(kafka.bootstrap, target, written * PARTITIONS), expected)


def _compare(found: list[list[str]], expected: list[list[str]]) -> None:
    """Fails with the first difference of each partition."""
    for partition, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        at = next((at for at, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), len(theirs))
        assert ours == theirs, (
            f"partition {partition}: {len(ours)} of {len(theirs)}, at {at} {ours[max(0, at - 3) : at + 5]}"
        )


def _committed(bootstrap: str, topic: str, count: int) -> list[list[str]]:
    """What a read_committed consumer has of each partition, without kproxy: until there are so many, and no more."""
    options = {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer({**options, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values: list[list[str]] = [[] for _ in range(PARTITIONS)]
    ends, deadline = set(), time.monotonic() + PATIENCE_S
    try:
        while (sum(map(len, values)) < count or len(ends) < PARTITIONS) and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                ends.discard(message.partition())
                values[message.partition()].append((message.value() or b"").decode())
            elif message is not None:
                ends.add(message.partition())
    finally:
        consumer.close()
    return values


def _until_written(
    reader: CommittedReader, topic: str, count: int, process: subprocess.Popen[bytes], directory: Path
) -> None:
    def logs() -> str:
        texts = [(directory / name).read_text()[-4000:] for name in ("application", "log")]
        return f"{reader.count(topic)} of {count}; the application's exit code: {process.poll()}\n" + "\n".join(texts)

    def holds() -> bool:
        assert process.poll() is None, logs()
        return reader.count(topic) >= count

    reader.until(holds, logs)
