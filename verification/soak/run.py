"""One run: a broker, a kproxy, the clients, and samples of what kproxy takes."""

import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from kproxy.codec._generated.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestDeleteRecordsPartition,
    DeleteRecordsRequestDeleteRecordsTopic,
    DeleteRecordsResponse,
)
from kproxy.testing.cluster_client import LATEST, ClusterClient
from kproxy.testing.kafka import RealKafka
from verification.chaos.kproxy_process import KproxyProcess, log_problems
from verification.soak import gauges
from verification.soak.clients import PARTITIONS, TOPIC
from verification.soak.crowd import Crowd
from verification.soak.sample import Sample

#: Beside those of the chaos run.
_OPTIONS: Final = {"transactions-home": "kproxy", "retry-window-ms": "120000", "log-level": "warning"}
_PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Job:
    """What to do: for so many seconds, with a sample every so many."""

    seconds: float
    every: float
    per_second: float
    threads: int
    seed: int
    kafka: bool
    options: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    samples: list[Sample]
    served: dict[str, int]
    failed: int
    #: The first errors of clients, and exceptions in kproxy's log.
    faults: list[str]


def run(job: Job, tell: Callable[[Sample], None]) -> Outcome:
    """Does it; ``tell`` receives each sample. KproxyFailed if kproxy ends."""
    with tempfile.TemporaryDirectory(prefix="kproxy-soak-") as name, _broker(kafka=job.kafka) as bootstrap:
        directory = Path(name)
        counts = directory / "gauges.json"
        program = ("-m", "verification.soak.gauges", str(counts))
        options = {**_OPTIONS, **job.options}
        kproxy = KproxyProcess("soak", bootstrap, directory, options, relayed=False, program=program)
        try:
            trio.run(kproxy.start)
            return _served(job, kproxy, counts, bootstrap, tell)
        finally:
            kproxy.kill()


@contextmanager
def _broker(*, kafka: bool) -> Iterator[str]:
    """A broker with the topic, until the block ends; its address."""
    if kafka:
        with RealKafka() as real:
            _make_topic(real.bootstrap)
            yield real.bootstrap
        return
    command = [sys.executable, "-m", "kproxy.testing.fake_broker"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            bootstrap = process.stdout.readline().strip()
            _make_topic(bootstrap)
            yield bootstrap
        finally:
            process.kill()


def _make_topic(bootstrap: str) -> None:
    with ClusterClient(bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS)


def _served(job: Job, kproxy: KproxyProcess, counts: Path, bootstrap: str, tell: Callable[[Sample], None]) -> Outcome:
    samples: list[Sample] = []
    began = time.monotonic()
    log_ends = [0] * PARTITIONS
    with Crowd(f"127.0.0.1:{kproxy.listen}", job.seed, job.per_second, job.threads) as crowd:
        while (due := began + len(samples) * job.every) <= began + job.seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            with crowd.at_rest():
                _wait_until_left(kproxy)
                samples.append(_sample(kproxy, counts, time.monotonic() - began, crowd.clients))
            tell(samples[-1])
            log_ends = _shorten(bootstrap, log_ends)
    faults = crowd.faults + log_problems(kproxy.log.read_text(encoding="utf-8", errors="replace"))
    return Outcome(samples, dict(crowd.served), crowd.failed, faults)


def _wait_until_left(kproxy: KproxyProcess) -> None:
    """Waits until kproxy has closed the connections of clients, and has written its counts after that."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = kproxy.metrics()
        if found and not found.get("kproxy_connections"):
            break
        time.sleep(_LOOK_SECONDS)
    time.sleep(2 * gauges.PAUSE_SECONDS)


def _sample(kproxy: KproxyProcess, counts: Path, seconds: float, clients: int) -> Sample:
    with urllib.request.urlopen(f"http://127.0.0.1:{kproxy.http}/metrics", timeout=_PATIENCE_SECONDS) as page:
        page_bytes = len(page.read())
    held, inside = kproxy.footprint(), gauges.read(counts)
    return Sample(
        seconds,
        clients,
        held.resident,
        held.descriptors,
        inside.tasks,
        inside.blocks,
        inside.heap_used,
        inside.heap_free,
        kproxy.cpu_seconds(),
        page_bytes,
    )


def _shorten(bootstrap: str, log_ends: list[int]) -> list[int]:
    """Deletes the records that were there a sample ago, so that a run of hours fits into memory; the ends now."""
    with ClusterClient(bootstrap) as client:
        rows = [DeleteRecordsRequestDeleteRecordsPartition(number, end) for number, end in enumerate(log_ends)]
        topic = DeleteRecordsRequestDeleteRecordsTopic(TOPIC, rows)
        client.any_broker().call(DeleteRecordsRequest([topic], timeout_ms=30_000), 1, DeleteRecordsResponse)
        return [client.offset(TOPIC, number, LATEST) for number in range(PARTITIONS)]
