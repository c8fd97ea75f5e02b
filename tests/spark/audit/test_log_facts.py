from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from kproxy.spark.audit.log_facts import decoded_log, log_facts
from kproxy.txn.log_records import Entry, encode
from tests.spark.audit.frames import Found
from verification.models.transaction_log.bodies import claim, decision, producer

pytestmark = pytest.mark.spark
PLAIN = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
BEGAN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("few", [False, True])
def test_each_partition_of_the_log_is_read_in_order(spark: SparkSession, few: bool) -> None:
    rows = []
    for partition in range(3):
        first = producer(100 + partition, 0)
        records = [claim(1, first), decision(1, first, True, [first], copies={first: {("t", partition): {0: 4}}})]
        for offset, body in enumerate(records):
            rows.append((*encode(Entry(f"id-{partition}", body)), "log", partition, offset, BEGAN))
    # neither the order of rows nor their place in the table says anything
    log = spark.createDataFrame(rows[::-1], PLAIN).repartition(2)
    found = Found(log_facts(log, {0: 0, 1: 0, 2: 0}, few=few))
    names = ("fact", "transactional_id", "producer_id", "topic", "partition", "offset", "log_partition", "at")
    moment = found.all("at")[0][0]
    decided = [("decided", f"id-{at}", producer(100 + at, 0).producer_id, "t", at, 5, at, moment) for at in range(3)]
    assert [row for row in found.all(*names) if row[0] == "decided"] == decided
    texts = Found(decoded_log(log, few=few)).all("kind", "log_partition", "log_offset", "committed")
    assert texts == [("CLAIM", at, 0, None) for at in range(3)] + [("DECISION", at, 1, True) for at in range(3)]
