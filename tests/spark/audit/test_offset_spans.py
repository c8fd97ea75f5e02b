from collections.abc import Collection, Mapping

from kproxy.spark.audit.audit_state import PartitionProgress, State
from kproxy.spark.audit.offset_spans import Span, find_spans
from kproxy.spark.audit.request import Since
from kproxy.spark.kafka_cluster import EARLIEST, TopicPartition

ORDERS = TopicPartition("orders", 0)
ALL = Since()


class Cluster:
    """One partition of each topic: log start 10, last stable offset 80, end 100."""

    def __init__(self, by_time: int | None = None) -> None:
        self.by_time = by_time

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, int | None]:
        def offset(when: int) -> int | None:
            if when >= 0:
                return self.by_time
            return 10 if when == EARLIEST else 80 if committed else 100

        return {each: offset(when) for each, when in wanted.items()}


def one(cluster: Cluster, since: Since = ALL, state: State | None = None) -> Span:
    (found,) = find_spans(cluster, ["orders"], since, state)  # type: ignore[arg-type]
    return found


def test_all_that_the_brokers_have() -> None:
    assert one(Cluster()) == Span("orders", 0, 10, 10, 10, 100, 80)


def test_since_a_time_and_since_offsets() -> None:
    assert one(Cluster(by_time=50), Since(time_ms=1)).start == 50
    assert one(Cluster(by_time=None), Since(time_ms=1)).start == 100
    assert one(Cluster(), Since(offsets={"orders": {0: 60}})).start == 60
    assert one(Cluster(), Since(offsets={"orders": {0: 5}})).start == 10
    assert one(Cluster(), Since(offsets={"orders": {0: 500}})).start == 100
    assert one(Cluster(), Since(offsets={"orders": {1: 60}})).start == 10


def test_a_run_continues_where_the_last_one_ended() -> None:
    state = State("former", (PartitionProgress(*ORDERS, 70, 65),))
    assert one(Cluster(), Since(offsets={"orders": {0: 20}}), state) == Span("orders", 0, 10, 65, 70, 100, 80)


def test_what_the_last_run_reached_may_be_gone_or_another_topic() -> None:
    assert one(Cluster(), state=State("former", (PartitionProgress(*ORDERS, 7, 5),))) == Span(
        "orders", 0, 10, 10, 10, 100, 80
    )
    assert one(Cluster(), state=State("former", (PartitionProgress(*ORDERS, 101, 99),))) == Span(
        "orders", 0, 10, 10, 10, 100, 80
    )


def test_a_topic_that_is_new_begins_at_its_beginning() -> None:
    state = State("former", (PartitionProgress(*ORDERS, 70, 65),))
    spans = find_spans(Cluster(), ["bills", "orders"], Since(), state)  # type: ignore[arg-type]
    assert [(span.topic, span.start) for span in spans] == [("bills", 10), ("orders", 70)]
