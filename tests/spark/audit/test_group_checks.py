from typing import Any

import pytest

from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.group_checks import fetch_offsets, group_offsets_behind, unknown_groups
from kproxy.spark.kafka_cluster import TopicPartition
from tests.spark.audit.frames import LIMITS, Found, Row, fact, span, tables


def said(topic: str, offset: int, **columns: Any) -> Row:
    row = {"group_id": "billing", "topic": topic, "partition": 0, "generation": 1, "offset": offset}
    return fact("offsets", **{**row, **columns})


def stands(topic: str, offset: int) -> Row:
    return {"group_id": "billing", "topic": topic, "partition": 0, "fetched_offset": offset}


@pytest.fixture(scope="module")
def given(engine: Engine) -> Engine:
    facts = [
        said("there", 10),
        said("ahead", 10),
        said("set-back", 20, log_offset=1),
        said("set-back", 10, log_offset=2),
        said("newer-generation", 20),
        said("newer-generation", 10, generation=2, transactional_id="other"),
        said("behind", 10, log_offset=1),
        said("behind", 30, log_offset=5),
        said("lost", 7),
        said("not-asked-for", 90),
        said("recreated", 90),
        said("there", 10, group_id="deleted"),
    ]
    fetched = [stands("there", 10), stands("ahead", 12), stands("set-back", 10), stands("newer-generation", 10)]
    fetched += [stands("behind", 10), stands("recreated", 3)]
    topics = ("there", "ahead", "set-back", "newer-generation", "behind", "lost")
    spans = [*(span(topic) for topic in topics), span("recreated", 5)]
    return tables(engine, facts=facts, fetched=fetched, spans=spans)


def test_groups_whose_offset_is_lower_than_what_was_decided(given: Engine) -> None:
    names = ("topic", "group_id", "decided_offset", "fetched_offset", "behind")
    found = Found(given, group_offsets_behind(LIMITS)).all(*names)
    assert found == [("behind", "billing", 30, 10, 20), ("lost", "billing", 7, None, 7)]


def test_groups_that_cannot_be_judged_any_more(given: Engine) -> None:
    assert Found(given, unknown_groups(LIMITS)).all("topic", "group_id", "decided_offset", "reason") == [
        ("recreated", "billing", 90, "the partition ends before the decided offset"),
        ("there", "deleted", 10, "the group has no offsets: it was deleted, or they have expired"),
    ]


class Answers:
    """A cluster that knows the offsets of one group."""

    def __enter__(self) -> "Answers":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        assert group in ("billing", "gone")
        return {TopicPartition("orders", 1): 5, TopicPartition("orders", 2): 6} if group == "billing" else {}


def test_each_group_of_the_log_is_asked_for_once(engine: Engine) -> None:
    facts = [said("orders", 1), said("orders", 2), said("orders", 1, group_id="gone"), fact("known", group_id="no")]
    facts.append(said("bills", 1, group_id="of-another-topic"))
    tables(engine, facts=facts, spans=[span("orders")])
    fetch_offsets(engine, Answers)  # type: ignore[arg-type]
    found = Found(engine, "select * from audit_fetched")
    assert found.all("group_id", "partition", "fetched_offset") == [("billing", 1, 5), ("billing", 2, 6)]
