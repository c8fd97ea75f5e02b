"""Flink's exactly-once sink through kproxy: transactions that another process continues, with each coordinator.

Where the broker or kproxy decides, kproxy is killed, too; a transaction of `broker-fenced` would be aborted then.

A checkpoint holds the producer ids and epochs of transactions that are written and not committed. A process that is
killed then commits them when it is restarted, by producers that have never asked for these ids
(`FlinkKafkaInternalProducer`). `INTEROP_ALL=1` adds a second release.
"""

import subprocess
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.committed import CommittedReader
from tests.interop.jvm import INTEROP_ALL, running
from tests.interop.proxy import KproxyProcess
from tests.support.clients import java_program

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_NUMBERS: Final = 500
_PATIENCE_S: Final = 240.0
_FLINK: Final = ("flink-streaming-java", "flink-clients", "flink-connector-base")
_SLF4J: Final = "org.slf4j:slf4j-simple:1.7.36"
_OPENED: Final = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "time", "util")]
#: Of Flink, and of its connector for Kafka.
_RELEASES: Final = [("1.20.3", "3.4.0-1.20"), *([("2.0.1", "4.0.1-2.0")] if INTEROP_ALL else [])]


class Job:
    """A job with a sink for each of some topics, which continues at its last complete checkpoint."""

    def __init__(self, release: str, connector: str, directory: Path, sinks: dict[str, str]) -> None:
        """``sinks``: the bootstrap servers of each topic's."""
        artefacts = [f"org.apache.flink:{name}:{release}" for name in _FLINK]
        connector = f"org.apache.flink:flink-connector-kafka:{connector}"
        java, *command = java_program("flink", *artefacts, connector, _SLF4J).argv
        self._command = [java, *_OPENED, *command]
        self._directory = directory
        self._sinks = [f"{topic}={bootstrap}" for topic, bootstrap in sinks.items()]

    def run(self, failure: str, checkpoints: int) -> int:
        """Run until it ends; its exit code."""
        found = self._directory.glob("checkpoints/*/chk-*/_metadata")
        last = max(found, key=lambda path: path.stat().st_mtime_ns, default=None)
        former = "-" if last is None else str(last.parent)
        arguments = [str(_NUMBERS), str(self._directory / "checkpoints"), former, failure, str(checkpoints)]
        with running([*self._command, *arguments, *self._sinks], self._directory / "flink") as process:
            try:
                return process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"it does not end:\n{self.printed[-6000:]}") from None

    @property
    def printed(self) -> str:
        """What it has printed."""
        return (self._directory / "flink").read_text(encoding="utf-8")


@pytest.mark.parametrize(("release", "connector"), _RELEASES)
def test_what_was_written_before_a_checkpoint_is_committed_by_the_process_that_continues_from_it(
    kafka: RealKafka, tmp_path: Path, release: str, connector: str
) -> None:
    stage = f"flink-{uuid4().hex[:8]}"
    relayed, fenced, own = (f"{stage}-{home}" for home in ("auto", "broker-fenced", "kproxy"))
    with ClusterClient(kafka.bootstrap) as client:
        for topic in (relayed, fenced, own):
            client.create_topic(topic)
    with (
        KproxyProcess(kafka.bootstrap, tmp_path / "one", "--transactions-home", f"{own}*=kproxy") as killed,
        KproxyProcess(kafka.bootstrap, tmp_path / "other", "--transactions-home", f"{fenced}*=broker-fenced") as kept,
    ):
        job = Job(
            release,
            connector,
            tmp_path,
            {relayed: killed.bootstrap, fenced: kept.bootstrap, own: killed.bootstrap},
        )
        assert job.run("halt", 2) == 9, job.printed[-6000:]
        killed.kill()
        killed.__enter__()
        assert job.run("throw", 2) == 0, job.printed[-6000:]
        for topic in (relayed, fenced, own):
            assert f"resume transaction {topic}" in job.printed
        with (
            CommittedReader(kafka.bootstrap, [relayed, fenced]) as direct,
            CommittedReader(killed.bootstrap, [own]) as through,
        ):
            for topic, reader in ((relayed, direct), (fenced, direct), (own, through)):
                reader.until(
                    lambda topic=topic, reader=reader: reader.count(topic) >= _NUMBERS,
                    lambda topic=topic, reader=reader: f"{topic}: {reader.count(topic)}\n{job.printed[-6000:]}",
                )
                reader.read(0.5)
                assert [value for _, value in reader.rows(topic)] == [str(one) for one in range(1, _NUMBERS + 1)]
        assert "\nkproxy_transactions_resumed_total 1.0\n" in killed.metrics()  # it was open when kproxy was killed
        killed.check()
        kept.check()
