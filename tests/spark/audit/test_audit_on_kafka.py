"""The command on a real Kafka with kproxy between: a clean run, then one fault of each kind in the same topics.

One run continues where the other engine ended.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from kproxy.cli import main
from kproxy.config import ExitCode
from kproxy.spark.audit.catalogue import FINDINGS
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.proxy import KproxyProcess
from tests.spark.audit.planted import BEFORE, BEHIND, BILLS, LOG_PARTITIONS, ORDERS, Planter

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
SECONDS = 60
#: Producers are forgotten within a test's patience, so that the broker takes again what it has had.
FORGETFUL = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "200"}
UNREADABLE = {finding.name: int(finding.name == "unreadable_log") for finding in FINDINGS}
WITH_FAULTS = {name: 1 - count for name, count in UNREADABLE.items()} | {"torn_transactions": 2}


class Audits(NamedTuple):
    """What the command found, and how it ended: in a clean run, with faults, and with a log that can't be read.

    ``broken_here`` is without Spark, ``broken`` with it.
    """

    clean: dict[str, Any]
    clean_code: int
    broken_here: dict[str, Any]
    broken: dict[str, Any]
    broken_code: int
    unreadable: dict[str, Any]
    unreadable_code: int
    out: Path

    def counts(self, name: str) -> dict[str, int]:
        return {outcome["name"]: outcome["count"] for outcome in getattr(self, name)["outcomes"]}


def write_clean(bootstrap: str) -> None:
    """Records of a plain producer, transactions of both fates, and a group's offsets with one of them."""
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": False, "linger.ms": 0})
    for number in range(40):
        plain.produce(ORDERS, b"value", f"plain-{number}".encode(), partition=number % 2)
    assert not plain.flush(SECONDS)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "audited-group"})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "audited", "linger.ms": 0})
    producer.init_transactions(SECONDS)
    for number, committed in enumerate([True, False, True]):
        producer.begin_transaction()
        for place in ((ORDERS, 0), (BILLS, 0), (BILLS, 1)):
            producer.produce(place[0], b"value", f"txn-{place}-{number}".encode(), partition=place[1])
        offsets = [TopicPartition(ORDERS, 0, 5 + number)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
        assert not producer.flush(SECONDS)
        (producer.commit_transaction if committed else producer.abort_transaction)(SECONDS)
    consumer.close()
    behind = Consumer({"bootstrap.servers": bootstrap, "group.id": BEHIND})
    behind.commit(offsets=[TopicPartition(ORDERS, 0, 3)], asynchronous=False)
    behind.close()


@pytest.fixture(scope="module")
def audits(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audits]:
    directory = tmp_path_factory.mktemp("audit")
    out = directory / "out"
    options = ["--transactions-home", "kproxy", "--transaction-state-log-num-partitions", str(LOG_PARTITIONS)]
    with RealKafka(config=FORGETFUL) as kafka, ClusterClient(kafka.bootstrap) as client:
        for topic in (ORDERS, BILLS):
            client.create_topic(topic, 2)
        planter = Planter(client)
        with KproxyProcess(kafka.bootstrap, directory / "log", *options) as proxy:
            write_clean(proxy.bootstrap)
            planter.before()
            clean_code, clean = audit(out, proxy.bootstrap, "--engine", "duckdb")
            planter.faults()
            same = Path(shutil.copytree(out, directory / "same"))
            _, broken_here = audit(same, proxy.bootstrap, "--engine", "duckdb")
            broken_code, broken = audit(out, proxy.bootstrap, "--engine", "spark")
            planter.unreadable()
            more = ("--brokers", kafka.bootstrap, "--engine", "duckdb")
            unreadable_code, unreadable = audit(out, proxy.bootstrap, *more)
            yield Audits(clean, clean_code, broken_here, broken, broken_code, unreadable, unreadable_code, out)


def audit(out: Path, bootstrap: str, *more: str) -> tuple[int, dict[str, Any]]:
    arguments = ["audit", "--bootstrap-servers", bootstrap, "--topics", "audited-.*", "--out", str(out)]
    arguments += ["--key", "string(key)", "--open-limit", "0s", "--prepared-limit", "0s", "--fail-on", "warning"]
    code = main([*arguments, *more])
    (newest,) = sorted(out.glob("run=*"))[-1:]
    return code, json.loads((newest / "summary.json").read_text())


def test_a_clean_run_finds_nothing(audits: Audits) -> None:
    assert not any(audits.counts("clean").values()), audits.clean["sentence"]
    assert (audits.clean["verdict"], audits.clean_code) == ("held", ExitCode.OK)
    records = {(row["topic"], row["visibility"]): row["records"] for row in audits.clean["visibility"]}
    assert records[ORDERS, "committed"] == 40 + 2 + 3 * len(BEFORE)
    assert records[ORDERS, "aborted"] == 1
    assert records[BILLS, "committed"] == 4


def test_each_planted_fault_is_found(audits: Audits) -> None:
    assert audits.counts("broken") == WITH_FAULTS
    assert (audits.broken["verdict"], audits.broken_code) == ("broken", ExitCode.PROMISE_BROKEN)


def test_both_engines_say_the_same(audits: Audits) -> None:
    assert (audits.counts("broken_here"), audits.broken_here["verdict"]) == (WITH_FAULTS, "broken")
    same = ("totals", "repeated_over_time", "former_run", "oldest", "newest")
    for name in (*same, "visibility", "protection", "stable_offsets"):
        assert audits.broken_here[name] == audits.broken[name]
    # but for the time since, which a later run finds longer
    for here, there in zip(audits.broken_here["outcomes"], audits.broken["outcomes"], strict=True):
        rows = [[{**row, "seconds": None} for row in outcome["worst"]] for outcome in (here, there)]
        assert rows[0] == rows[1]


def test_the_second_run_began_where_the_first_one_ended(audits: Audits) -> None:
    assert audits.broken["former_run"] == audits.clean["run"]
    assert audits.broken["totals"]["records"] < audits.clean["totals"]["records"]
    state = json.loads((audits.out / "state.json").read_text())
    assert state["run"] == audits.broken["run"]


def test_the_report_says_what_was_asked(audits: Audits) -> None:
    assert audits.clean["options"]["--topics"] == "audited-.*"
    assert audits.clean["oldest"] <= audits.clean["newest"]
    assert ", " in audits.clean["cluster"]


def test_a_repeated_record_is_drawn_once(audits: Audits) -> None:
    # three with sequences that were there before, one with a key, and in a run of eight equal ones all but the first
    assert sum(bucket["repeated"] for bucket in audits.broken["repeated_over_time"]) == 3 + 1 + 7


def test_a_log_that_cannot_be_read_is_reported_and_judged_is_nothing(audits: Audits) -> None:
    assert audits.counts("unreadable") == UNREADABLE
    assert audits.unreadable_code == ExitCode.PROMISE_BROKEN
    assert audits.unreadable["totals"]["records"] == 0


def test_what_a_run_leaves(audits: Audits) -> None:
    run = audits.out / f"run={audits.broken['run']}"
    assert {path.name for path in run.iterdir()} >= {*WITH_FAULTS, "report.html", "report.png", "transaction_log"}
    assert audits.broken["sentence"] in (run / "report.html").read_text(encoding="utf-8")
    assert not list(audits.out.glob(".run=*"))
