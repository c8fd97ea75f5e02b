"""The worked example of deploy/upsert, as its README has it: orders in, totals by shop in a compacted topic."""

import json
import runpy
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kproxy.codec.batch import iter_records, read_header
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from verification.copiers.processes import Kproxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_DEPLOY = Path(__file__).parents[2] / "deploy"
_PARTITIONS = 2


def test_totals_are_those_of_all_orders(spark: "SparkSession", kafka: RealKafka, tmp_path: Path) -> None:
    options = ["--control-socket", str(tmp_path / "c.sock"), "--transactions-home", "auto"]
    with Kproxy("upsert", kafka.bootstrap, tmp_path, *options) as kproxy:
        kproxy.wait_ready()
        addresses = ["--bootstrap-servers", kproxy.bootstrap, "--control-socket", str(tmp_path / "c.sock")]
        topics = ["--source", "upsert-orders", "--sink", "upsert-totals", "--checkpoint", str(tmp_path / "checkpoint")]
        main = runpy.run_path(str(_DEPLOY / "upsert" / "shop_totals.py"))["main"]
        for first in (1, 101):
            made = ["--topic", "upsert-orders", "--first", str(first), "--orders", "100", *addresses[:2]]
            command = [sys.executable, str(_DEPLOY / "pipeline" / "make_orders.py"), *made]
            subprocess.run(command, timeout=60, check=True)
            main([*addresses, *topics, "--once"])
        written = _written(kproxy.bootstrap)
        commits = tmp_path / "checkpoint" / "commits"
        last = max(int(note.name) for note in commits.iterdir() if note.name.isdigit())
        for name in (f"{last}", f".{last}.crc"):  # the driver dies after kproxy's commit, before Spark's own note of it
            (commits / name).unlink()
        main([*addresses, *topics, "--once"])
        assert _written(kproxy.bootstrap) == written
    lines = runpy.run_path(str(_DEPLOY / "pipeline" / "make_orders.py"))["line"]
    orders, amounts = Counter[str](), Counter[str]()
    for number in range(1, 201):
        if number % 50:
            order = json.loads(lines(number))
            shop = order["shop"].strip().lower()
            orders[shop] += 1
            amounts[shop] += int(Decimal(order["amount"].replace(",", ".")) * 100)
    newest = {key: json.loads(value) for key, value in written}
    assert {shop: row["orders"] for shop, row in newest.items()} == orders
    assert {shop: int(Decimal(str(row["amount"])) * 100) for shop, row in newest.items()} == amounts
    assert len(written) == 2 * len(newest)


def _written(bootstrap: str) -> list[tuple[str, str]]:
    """Key and value of all that is in the topic, in the order of each partition, committed or not."""
    found = []
    with ClusterClient(bootstrap) as client:
        for partition in range(_PARTITIONS):
            data, at = client.read_all("upsert-totals", partition), 0
            while at < len(data):
                size = read_header(data, at).size
                for record in iter_records(memoryview(data)[at : at + size], max_decompressed_bytes=1 << 24):
                    found.append(((record.key or b"").decode(), (record.value or b"").decode()))
                at += size
    return found
