"""Burrow 1.2.1, which Debian has: it asks each partition's leader for its end by requests that Kafka 4 has dropped."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kproxy.testing.kafka import RealKafka
from kproxy.testing.ports import free_ports
from tests.interop import session
from tests.interop.conftest import Target
from tests.interop.jvm import running
from tests.interop.records import PARTITIONS
from tests.support.patience import PATIENCE_S, eventually
from verification.agents.packages import unpack

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_TOPIC = "burrow"


def _settings(directory: Path, bootstrap: str, zookeeper: str, port: int) -> str:
    return f"""
[general]
pidfile = "{directory}/burrow.pid"
[logging]
filename = "{directory}/burrow.log"
[zookeeper]
servers = ["{zookeeper}"]
root-path = "/burrow"
[client-profile.old]
client-id = "burrow"
kafka-version = "0.10.0"
[cluster.local]
class-name = "kafka"
servers = ["{bootstrap}"]
client-profile = "old"
topic-refresh = 2
offset-refresh = 1
[httpserver.default]
address = "127.0.0.1:{port}"
[storage.default]
class-name = "inmemory"
"""


def _get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v3/kafka/local/{path}", timeout=PATIENCE_S) as answer:
        return json.load(answer)


def test_it_sees_the_ends_of_the_partitions(target: Target, tmp_path: Path) -> None:
    session.create_topics(target.kafka.bootstrap, [_TOPIC])
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for partition in range(PARTITIONS):
        for _ in range(partition + 1):
            producer.produce(_TOPIC, b"value", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    unpacked = unpack(["burrow"])
    [port] = free_ports(1)
    log = tmp_path / "burrow.log"
    log.touch()
    command = [str(unpacked.one("usr/bin/Burrow")), "--config-dir", str(tmp_path)]

    def ends() -> bool:
        try:
            found = _get(port, f"topic/{_TOPIC}")
        except OSError:
            return False
        return bool(found["offsets"] == [partition + 1 for partition in range(PARTITIONS)])

    # It does not start without a ZooKeeper, where it keeps only who of several Burrows warns.
    with RealKafka(version="2.8.2") as other:
        settings = _settings(tmp_path, target.bootstrap, other.zookeeper, port)
        (tmp_path / "burrow.toml").write_text(settings, encoding="utf-8")
        with running(command, tmp_path / "printed") as process:
            eventually(lambda: process.poll() is not None or ends(), otherwise=log.read_text)
            assert process.poll() is None, log.read_text()
