"""Two kproxies on a real Kafka: ``kproxy fleet`` lists both, and the one that was killed as silent."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kproxy.codec._generated.list_offsets import ListOffsetsRequest
from kproxy.codec.header import encode_request
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess

pytestmark = pytest.mark.kafka

#: Short, so that the test need not wait for minutes.
ANNOUNCE: Final = ("--fleet-announce-interval-ms", "2000")
PATIENCE_SECONDS: Final = 120.0


def fleet_until(kproxy: KproxyProcess, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The fleet, once it is so; a busy machine may make an instance late, or a broker not answer at once."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        command = [sys.executable, "-m", "kproxy", "fleet", "--json", "--url", kproxy.http]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        if done.returncode == 0 and holds(found := dict(json.loads(done.stdout))):
            return found
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(1)


def names(found: dict[str, Any]) -> list[str]:
    """The instances of this test: others of the folder may have announced themselves at the same Kafka."""
    return sorted(row["instance_id"] for row in found["instances"] if row["instance_id"].startswith("fleet-"))


def old_clients(found: dict[str, Any]) -> list[str]:
    return [row["client_id"] for row in found["legacy_clients"]]


def troubles(found: dict[str, Any]) -> dict[str, list[str]]:
    return {row["instance_id"]: row["problems"] for row in found["instances"]}


def ask_like_an_old_client(kproxy: KproxyProcess) -> None:
    """ListOffsets v0, which Kafka 4 removed."""
    host, port = kproxy.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as client:
        client.sendall(encode_request(ListOffsetsRequest(replica_id=-1, topics=[]), 0, 1, "old-loader"))
        assert client.recv(4)


def test_two_instances_see_each_other_and_a_killed_one_is_silent(kafka: RealKafka, tmp_path: Path) -> None:
    with (
        KproxyProcess(kafka.bootstrap, tmp_path / "one", "--instance-id", "fleet-one", *ANNOUNCE) as one,
        KproxyProcess(kafka.bootstrap, tmp_path / "two", "--instance-id", "fleet-two", *ANNOUNCE) as two,
        KproxyProcess(kafka.bootstrap, tmp_path / "three", "--instance-id", "fleet-three", *ANNOUNCE) as three,
    ):
        ask_like_an_old_client(two)
        everybody = ["fleet-one", "fleet-three", "fleet-two"]
        found = fleet_until(one, lambda seen: names(seen) == everybody and "old-loader" in old_clients(seen))
        assert (found["announces"], found["ignored"], found["old"]) == (True, 0, 0)
        assert names(fleet_until(two, lambda seen: names(seen) == everybody)) == everybody
        three.__exit__()  # in good order: it takes its announcement back
        two.kill()
        silent = fleet_until(one, lambda seen: bool(troubles(seen).get("fleet-two")))
        assert names(silent) == ["fleet-one", "fleet-two"]
        assert troubles(silent)["fleet-one"] == []
        assert troubles(silent)["fleet-two"][0].startswith("silent since ")
        one.check()
