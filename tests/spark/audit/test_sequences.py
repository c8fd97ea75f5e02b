from typing import NamedTuple

import pytest

from kproxy.spark.audit.audit_state import PartitionProgress, State
from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.next_run import carry, next_places
from kproxy.spark.audit.offset_spans import Span
from kproxy.spark.audit.sequences import duplicate_sequences, sequence_gaps
from tests.spark.audit.frames import LIMITS, NOW_MS, Found, Row, ago, batch, span, tables

MOST = (1 << 31) - 1

BATCHES: dict[str, list[Row]] = {
    "in-order": [
        batch("in-order", 0, 5),
        batch("in-order", 5, 5),
        batch("in-order", 10, 3, sequence=0, producer_id=8),
        batch("in-order", 13, 2, sequence=3, producer_id=8),
        # a newer epoch begins at 0 again, and a producer without an id has no sequences
        batch("in-order", 15, 2, sequence=0, producer_epoch=1),
        batch("in-order", 17, 4, sequence=-1, producer_id=-1),
    ],
    "wrap": [
        batch("wrap", 21, 4, sequence=MOST - 1),
        batch("wrap", 25, 2, sequence=2),
        batch("wrap", 27, 1, sequence=4),
    ],
    "twice": [
        batch("twice", 0, 5),
        batch("twice", 5, 5),
        batch("twice", 10, 5, sequence=0),
        batch("twice", 15, 4, sequence=8),
    ],
    "hidden": [
        batch("hidden", 0, 5, visibility="aborted"),
        batch("hidden", 5, 5, sequence=0),
        batch("hidden", 10, 5, sequence=5, visibility="aborted"),
        batch("hidden", 15, 5, sequence=10),
        batch("hidden", 20, 5, sequence=20, visibility="aborted"),
    ],
    "missing": [
        batch("missing", 0, 5),
        batch("missing", 5, 5, sequence=8),
        batch("missing", 10, 1, sequence=3, producer_id=8),
    ],
    "missing-at-wrap": [batch("missing-at-wrap", 100, 1, sequence=MOST), batch("missing-at-wrap", 101, 1, sequence=2)],
    "begun-before": [batch("begun-before", 50, 1, sequence=9)],
    "compacted": [batch("compacted", 0, 5) | {"records": 2}, batch("compacted", 9, 1, sequence=9)],
    "seamless": [batch("seamless", 95, 5), batch("seamless", 100, 5)],
    "again": [batch("again", 100, 5, sequence=95)],
    "ahead": [batch("ahead", 100, 5, sequence=110), batch("ahead", 105, 1, sequence=115, visibility="undecided")],
}
LATER = ("seamless", "again", "ahead", "elsewhere")
SPANS = [
    span("wrap", log_start=21, start=21),
    span("missing-at-wrap", log_start=100, start=100),
    span("begun-before", log_start=50, start=50),
    span("seamless", start=100, reread=90),
    span("again", start=100, reread=90),
    span("ahead", 106, start=100, reread=90, stable=105),
]


def carried(topic: str) -> Row:
    row = {"topic": topic, "partition": 0, "producer_id": 7, "producer_epoch": 0, "shown": True, "at": ago(90)}
    return row | {"last_offset": 99, "last_sequence": 99}


class Result(NamedTuple):
    twice: Found
    gaps: Found
    carried: Found
    places: dict[str, PartitionProgress]


@pytest.fixture(scope="module")
def found(engine: Engine) -> Result:
    batches = [row for rows in BATCHES.values() for row in rows]
    tables(engine, batches=batches, spans=SPANS, carried=map(carried, LATER))
    spans = [Span(**row) for row in engine.rows("select * from audit_spans")]
    former = State("former", (PartitionProgress("elsewhere", 3, 7, 7), PartitionProgress("again", 0, 1, 1)))
    places = next_places(engine, LIMITS, spans, former)
    return Result(
        Found(engine, duplicate_sequences(LIMITS)),
        Found(engine, sequence_gaps(LIMITS)),
        Found(engine, carry(NOW_MS - 3_600_000)),
        {place.topic: place for place in places},
    )


@pytest.mark.parametrize("topic", ["in-order", "wrap", "hidden", "begun-before", "compacted", "seamless"])
def test_nothing_is_twice_and_nothing_is_missing(found: Result, topic: str) -> None:
    assert found.twice.of(topic, "first_offset") == []
    assert found.gaps.of(topic, "base_offset") == []


def test_a_repeated_batch_is_found_with_its_first_place(found: Result) -> None:
    names = ("first_offset", "repeated", "earlier_offset")
    assert found.twice.of("twice", *names) == [(10, 5, 0), (15, 2, None)]
    assert found.gaps.of("twice", "base_offset") == []


def test_missing_sequences_are_counted(found: Result) -> None:
    names = ("base_offset", "first_missing_sequence", "missing")
    assert found.gaps.of("missing", *names) == [(10, 0, 3), (5, 5, 3)]
    assert found.gaps.of("missing-at-wrap", *names) == [(101, 0, 2)]
    assert found.twice.of("missing-at-wrap", "first_offset") == []


def test_a_former_run_is_remembered(found: Result) -> None:
    assert found.twice.of("again", "first_offset", "repeated") == [(100, 5)]
    assert found.gaps.of("ahead", "base_offset", "missing") == [(100, 10)]


def test_what_is_carried_over_is_the_highest_below_the_stable_offset(found: Result) -> None:
    names = ("producer_id", "shown", "last_offset", "last_sequence")
    assert found.carried.of("seamless", *names) == [(7, True, 104, 104)]
    assert found.carried.of("again", "last_sequence") == [(99,)]
    assert found.carried.of("ahead", *names) == [(7, True, 104, 114)]
    assert found.carried.of("wrap", *names) == [(7, True, 27, 4)]
    assert found.carried.of("hidden", *names) == [(7, False, 24, 24), (7, True, 19, 14)]
    # not looked at in this run
    assert found.carried.of("elsewhere", *names) == [(7, True, 99, 99)]


def test_the_next_run_begins_at_the_stable_offset_and_rereads_what_is_near(found: Result) -> None:
    assert found.places["ahead"] == PartitionProgress("ahead", 0, 105, 100)
    assert found.places["seamless"] == PartitionProgress("seamless", 0, 1000, 95)
    assert found.places["elsewhere"] == PartitionProgress("elsewhere", 3, 7, 7)
    assert found.places["again"].offset == 1000
