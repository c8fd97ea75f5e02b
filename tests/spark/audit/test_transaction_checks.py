from typing import Any

import pytest

from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.transaction_checks import (
    open_transactions,
    prepared_transactions,
    stuck_partitions,
    torn_transactions,
    unknown_producers,
    unreadable_log,
)
from tests.spark.audit.frames import LIMITS, OURS, Found, Row, ago, batch, fact, span, tables


def ours(topic: str, offset: int, records: int, sequence: int, **columns: Any) -> Row:
    return batch(topic, offset, records, sequence, **{"producer_id": OURS, **columns})


def decided(topic: str, end: int, **columns: Any) -> Row:
    row = {"topic": topic, "partition": 0, "producer_id": OURS, "producer_epoch": 0, "offset": end, "bound": 0}
    return fact("decided", **{**row, **columns})


OLD, HIDDEN = {"max_timestamp": ago(2000), "visibility": "undecided"}, {"visibility": "undecided"}
BATCHES = [
    ours("whole", 3, 5, 0),
    batch("whole", 8, 2),
    ours("whole", 10, 5, 5),
    ours("whole", 20, 1, 0, producer_epoch=1, **HIDDEN),
    ours("end", 0, 5, 0),
    ours("middle", 0, 5, 0),
    ours("middle", 14, 1, 14),
    ours("beginning", 5, 10, 5),
    ours("not-seen", 0, 15, 0, visibility="aborted"),
    ours("of-another-epoch", 0, 15, 0, producer_epoch=9),
    ours("edges", 95, 10, 5),
    batch("at-broker", 0, 15, producer_id=4001, producer_epoch=7, base_sequence=0, last_sequence=14),
    batch("at-broker-torn", 0, 15, producer_id=4001, producer_epoch=8, base_sequence=0, last_sequence=14),
    # undecided
    batch("stuck", 0, 5),
    batch("stuck", 5, 5, producer_id=9, **OLD),
    batch("stuck", 10, 5, **HIDDEN),
    batch("moving", 0, 5, **HIDDEN),
    batch("moving", 5, 5, **OLD),
    batch("old", 0, 5, max_timestamp=ago(9000)),
    ours("unknown", 5, 5, 0, producer_id=OURS + 1, **HIDDEN),
    ours("unknown", 10, 5, 5, producer_id=OURS + 1, **HIDDEN),
    ours("unknown", 15, 5, 0, producer_id=OURS + 2, visibility="aborted"),
]
FACTS = [
    decided("whole", 15),
    decided("whole", 21, producer_epoch=1),
    decided("nobody-looks", 9),
    *(decided(topic, 15) for topic in ("all", "end", "middle", "beginning", "not-seen", "of-another-epoch")),
    decided("at-broker", 15, producer_id=4001, producer_epoch=7),
    decided("at-broker-torn", 15, producer_id=4001, producer_epoch=7),
    decided("edges", 100, producer_epoch=3),
    decided("edges", 205, producer_epoch=4),
    decided("edges", 105, bound=90),
    *(
        fact("part", state="open", topic=topic, member="", producer_id=OURS, producer_epoch=1, at=ago(1000))
        for topic in ("stuck", "moving")
    ),
    fact("part", state="open", topic="stuck", transactional_id="young", at=ago(10)),
    fact("part", state="open", topic="nobody-looks", transactional_id="elsewhere", at=ago(9000)),
    fact("part", state="prepared", topic="stuck", member="task-1", at=ago(5000)),
    fact("part", state="prepared", topic="stuck", transactional_id="young", at=ago(1000)),
    fact("part", state="prepared", topic="nobody-looks", transactional_id="elsewhere", at=ago(9000)),
    fact("known", producer_id=OURS),
    fact("unreadable", detail="newer: record of kind 99", log_partition=3),
]


@pytest.fixture(scope="module")
def given(engine: Engine) -> Engine:
    spans = [span("all"), span("edges", 200, start=100, reread=95)]
    return tables(engine, batches=BATCHES, facts=FACTS, spans=spans)


@pytest.fixture(scope="module")
def torn(given: Engine) -> Found:
    return Found(given, torn_transactions(LIMITS))


@pytest.mark.parametrize("topic", ["whole", "nobody-looks", "edges", "at-broker"])
def test_nothing_is_torn(torn: Found, topic: str) -> None:
    assert torn.of(topic, "fault") == []


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("all", "all is missing"),
        ("end", "the end is missing"),
        ("middle", "some in the middle is missing"),
        ("beginning", "the beginning is missing"),
        ("not-seen", "all is missing"),
        ("of-another-epoch", "all is missing"),
    ],
)
def test_torn_transactions(torn: Found, topic: str, fault: str) -> None:
    assert torn.of(topic, "transactional_id", "producer_id", "fault") == [("loader", OURS, fault)]


def test_a_torn_transaction_of_the_broker_s(torn: Found) -> None:
    assert torn.of("at-broker-torn", "producer_id", "fault") == [(4001, "all is missing")]


def test_what_waits_too_long_is_reported(given: Engine) -> None:
    names = ("transactional_id", "topics", "seconds")
    assert Found(given, open_transactions(LIMITS)).all(*names) == [("loader", "moving, stuck", 1000.0)]
    assert Found(given, prepared_transactions(LIMITS)).all(*names) == [("loader", "stuck", 5000.0)]


def test_a_stable_offset_that_does_not_move(given: Engine) -> None:
    names = ("topic", "stable_offset", "producer_id", "hidden_records")
    assert Found(given, stuck_partitions(LIMITS)).all(*names) == [("stuck", 5, 9, 10)]


def test_producers_that_the_log_does_not_know(given: Engine) -> None:
    names = ("topic", "producer_id", "first_offset", "hidden_records")
    assert Found(given, unknown_producers(LIMITS)).all(*names) == [("unknown", OURS + 1, 5, 10)]


def test_a_log_that_cannot_be_read(given: Engine) -> None:
    assert Found(given, unreadable_log(LIMITS)).all("log_partition", "detail") == [(3, "newer: record of kind 99")]
