"""The worked example of deploy/pipeline, as its README has it: a Kafka, a kproxy, an old client and Spark."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyarrow import dataset

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.spark_home import spark_environment
from tests.interop.proxy import KproxyProcess

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

EXAMPLE = Path(__file__).parents[3] / "deploy" / "pipeline"
PATIENCE_S = 300
ORDERS = 1300
"""A second apart from noon on: the windows until 12:20 are closed by the first orders after 12:21."""


@pytest.fixture
def environ(kafka: RealKafka, spark_home: Path, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """A kproxy runs, and these variables lead the example to it."""
    socket = f"/tmp/kproxy-test-{os.getpid()}.sock"  # a longer path is none for a socket
    with KproxyProcess(kafka.bootstrap, tmp_path / "kproxy.log", "--control-socket", socket) as kproxy:
        found = {
            "ORDERS_KPROXY": kproxy.bootstrap,
            "ORDERS_CONTROL": socket,
            "ORDERS_DIR": str(tmp_path),
            "ORDERS_IN": "example-raw",
            "ORDERS_OUT": "example-clean",
            "TOTALS_OUT": "example-totals",
            **spark_environment(spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with ClusterClient(kproxy.bootstrap) as client:
            for topic in (found["ORDERS_OUT"], found["TOTALS_OUT"]):
                client.create_topic(topic, 1)
        yield os.environ | found


def make_orders(environ: Mapping[str, str], first: int, orders: int) -> None:
    command = [sys.executable, str(EXAMPLE / "make_orders.py"), "--bootstrap-servers", environ["ORDERS_KPROXY"]]
    command += ["--topic", environ["ORDERS_IN"], "--first", str(first), "--orders", str(orders)]
    subprocess.run(command, env=environ, timeout=60, check=True)


def pipeline(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kproxy", "pipeline", *arguments]


def read(environ: Mapping[str, str], topic: str, until: int) -> list[tuple[str, dict[str, Any]]]:
    """Keys and values that a read_committed consumer sees, up to the end of the topic."""
    settings = {
        "bootstrap.servers": environ["ORDERS_KPROXY"],
        "group.id": "example",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(environ[topic], 0, 0)])
    found = []
    deadline = time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                break
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            found.append((key.decode(), json.loads(value)))
    finally:
        consumer.close()
    assert len(found) >= until
    return found


def check_topics(environ: Mapping[str, str], orders: int, windows: int) -> None:
    """Each order is there once, and the totals are those of the orders in the windows that are closed."""
    clean = read(environ, "ORDERS_OUT", 1)
    numbers = [int(key.removeprefix("o-")) for key, _ in clean]
    assert sorted(numbers) == [number for number in range(1, orders + 1) if number % 50]
    totals = read(environ, "TOTALS_OUT", 1)
    wanted: dict[tuple[str, int], Decimal] = {}
    for number, (_, order) in zip(numbers, clean, strict=True):
        window = number // 600
        if window < windows:
            place = order["shop"], window
            wanted[place] = wanted.get(place, Decimal()) + Decimal(str(order["amount"]))
    found = {(key, int(row["began"][14]) // 1): Decimal(str(row["amount"])) for key, row in totals}
    assert found == wanted
    assert len(totals) == len(wanted)
    rejected = dataset.dataset(f"{environ['ORDERS_DIR']}/rejected", partitioning="hive").to_table()
    assert rejected.num_rows == orders // 50


def test_old_orders_become_two_topics(environ: Mapping[str, str]) -> None:
    make_orders(environ, 1, ORDERS)
    line = subprocess.run(
        pipeline("run", "--submit", "orders.yaml"), cwd=EXAMPLE, env=environ, text=True, capture_output=True, check=True
    ).stdout
    # From another directory, as the line is copied.
    subprocess.run(line, shell=True, cwd=environ["ORDERS_DIR"], env=environ, timeout=PATIENCE_S, check=True)
    check_topics(environ, ORDERS, windows=2)

    # More comes, and the pipeline continues where it was, until it is stopped.
    make_orders(environ, ORDERS + 1, 700)
    text = (EXAMPLE / "orders.yaml").read_text().replace("trigger: availableNow", "trigger: {continuous: 1 seconds}")
    file = Path(environ["ORDERS_DIR"], "orders.yaml")
    file.write_text(text.replace("path: .", f"path: {EXAMPLE}"))
    with subprocess.Popen(pipeline("run", "--json", str(file)), env=environ, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        seen: dict[str, int] = {}
        for output in run.stdout:
            seen |= {name: rows for name, rows in json.loads(output)["rows_out"].items() if rows}
            if seen.keys() >= {"example-totals", f"{environ['ORDERS_DIR']}/rejected"}:
                run.send_signal(signal.SIGTERM)
                break
        rest = run.stdout.read()
        assert run.wait(PATIENCE_S) == 0, rest
    check_topics(environ, ORDERS + 700, windows=3)
