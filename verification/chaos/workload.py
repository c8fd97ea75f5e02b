"""Who produces what: every old version of Produce, every record format, alone and pipelined, unique and equal."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kproxy.codec.topic_partition import TopicPartition
from verification.chaos.habits import EQUAL, Habits
from verification.chaos.released import JAVA_0_10, KAFKA_PYTHON, ReleasedClient

TOPICS: Final = {"chaos.unique": 6, "chaos.more": 3, "chaos.equal": 3}
"""Topics and their partitions. Records of the last one are all alike."""
UNCOMPRESSED: Final = {"chaos.equal": 3}
"""Those of them that hold no compressed records."""
_GZIP, _SNAPPY, _LZ4 = 1, 2, 3


def _places(topic: str, *partitions: int) -> tuple[TopicPartition, ...]:
    return tuple((topic, partition) for partition in partitions)


_ALONE = _places("chaos.unique", 0, 1, 2)
_BOTH = _places("chaos.unique", 3, 4, 5) + _places("chaos.more", 0)
_MORE = _places("chaos.more", 0, 1, 2)
_SAME = _places("chaos.equal", 0, 1, 2)

HABITS: Final[Sequence[Habits]] = (
    Habits("v0", _ALONE, version=0),
    Habits("v1-gzip", _BOTH, version=1, codec=_GZIP, regroup=True, acks=1),
    Habits("v2", _MORE, version=2, batch_records=1, pause_s=0.03),
    Habits("v2-pipelined", _BOTH, version=2, depth=3, codec=_SNAPPY),
    Habits("v2-regrouping", _ALONE, version=2, depth=2, batch_records=6, regroup=True),
    Habits("v3-lz4", _ALONE + _MORE, version=3, depth=4, codec=_LZ4),
    Habits("equal-v2", _SAME, version=2, equal=True, batch_records=3),
    Habits("equal-v3-pipelined", _SAME, version=3, equal=True, depth=3, regroup=True),
)
"""Equal records are sent in formats that have timestamps only: without, nobody can tell them from retries."""


def habits_for(kproxy: str) -> list[Habits]:
    """The producers of one kproxy; their names are their client.ids, so no two may be alike."""
    return [replace(habits, name=f"{kproxy}.{habits.name}") for habits in HABITS]


_DEEP: Final = "-deep"
_OLD: Final = ".librdkafka-old"
#: max.in.flight by default.
_USUAL_DEPTH: Final = 5
_DEPTH_OF_LIBRDKAFKA: Final = 1_000_000


def released_for(kproxy: str, *, deep: bool) -> list[ReleasedClient]:
    """The released clients of one kproxy; ``deep``: all with their default depth, else those that keep order at 1."""
    suffix, usual = (_DEEP, _USUAL_DEPTH) if deep else ("", 1)
    job = {"places": [*_ALONE, *_MORE], "equal": "", "per_second": 60, "in_flight": usual}
    same = {**job, "places": _SAME, "equal": EQUAL}
    old = {**job, "old": True, "in_flight": _DEPTH_OF_LIBRDKAFKA if deep else 1}
    new = {**job, "per_second": 300, "in_flight": _DEPTH_OF_LIBRDKAFKA}
    return [
        ReleasedClient("librdkafka", {**old, "name": f"{kproxy}{_OLD}{suffix}"}),
        ReleasedClient("librdkafka", {**new, "name": f"{kproxy}.librdkafka"}),
        ReleasedClient("kafka_python", {**job, "name": f"{kproxy}.kafka-python{suffix}"}, KAFKA_PYTHON),
        ReleasedClient("kafka_python", {**same, "name": f"{kproxy}.kafka-python-equal{suffix}"}, KAFKA_PYTHON),
        ReleasedClient("java010/PlainProducer.java", {**job, "name": f"{kproxy}.java-0.10{suffix}"}, JAVA_0_10),
        ReleasedClient("sarama", {**job, "name": f"{kproxy}.sarama{suffix}"}),
    ]


def is_deep_and_untimed(process: str) -> bool:
    """Whether a client sends format 0, which has no timestamps, and has more than five requests in flight."""
    return process.endswith(f"{_OLD}{_DEEP}")


def is_unnamed(process: str) -> bool:
    """Whether a client is librdkafka and does not say so, with one request in flight."""
    return process.endswith(_OLD)


def changes_order(process: str) -> bool:
    """Whether a client itself sends later records before it repeats refused ones: with several requests in flight.

    librdkafka that names itself does not count: kproxy keeps its order. Records that are all alike have no order: the
    retry of one may be answered with another.
    """
    return process.endswith((_DEEP, *(habits.name for habits in HABITS if habits.equal)))
