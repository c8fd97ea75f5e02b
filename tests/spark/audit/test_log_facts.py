from datetime import UTC, datetime

from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.log_facts import make_decoded, make_facts
from kproxy.spark.audit.tables import PLAIN, table
from kproxy.txn.log_records import Entry, encode
from tests.spark.audit.frames import Found
from tests.txn.bodies import claim, decision, producer

BEGAN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_each_partition_of_the_log_is_read_in_order(engine: Engine) -> None:
    rows = []
    for partition in range(3):
        first = producer(100 + partition, 0)
        records = [claim(1, first), decision(1, first, True, [first], copies={first: {("t", partition): {0: 4}}})]
        for offset, body in enumerate(records):
            rows.append((*encode(Entry(f"id-{partition}", body)), "log", partition, offset, BEGAN))
    # the order of rows says nothing
    engine.put("audit_log", table(PLAIN, rows[::-1]))
    make_facts(engine, {0: 0, 1: 0, 2: 0})
    names = ("fact", "transactional_id", "producer_id", "topic", "partition", "offset", "log_partition", "at")
    decided = [("decided", f"id-{at}", producer(100 + at, 0).producer_id, "t", at, 5, at, BEGAN) for at in range(3)]
    found = Found(engine, "select * from audit_facts where fact = 'decided'")
    assert found.all(*names) == decided
    make_decoded(engine)
    texts = Found(engine, "select * from audit_decoded").all("kind", "log_partition", "log_offset", "committed")
    assert texts == [("CLAIM", at, 0, None) for at in range(3)] + [("DECISION", at, 1, True) for at in range(3)]
