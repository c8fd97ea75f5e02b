"""Arithmetic of offsets: ranges over tasks, limits over partitions, the JSON form that Spark keeps in checkpoints."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from kproxy.spark.fetching import Range
from kproxy.spark.kafka_cluster import TopicPartition

#: An offset for each partition.
Offsets: TypeAlias = dict[TopicPartition, int]
#: The same as Spark writes it: ``{"topic": {"0": 23}}``, as its Kafka source does.
OffsetsJson: TypeAlias = dict[str, dict[str, int]]

#: Beside the topics; no topic has a space in its name.
_BEGUN: Final = "begun at"


def to_json(offsets: Mapping[TopicPartition, int], begun: Mapping[TopicPartition, int] | None = None) -> OffsetsJson:
    """The form for checkpoints, sorted; ``begun``: where partitions begin whose beginning stands nowhere else."""
    found = _by_topic(offsets)
    if begun:
        found[_BEGUN] = {f"{topic} {index}": offset for (topic, index), offset in sorted(begun.items())}
    return found


def from_json(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The offsets out of the form for checkpoints."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in found.items()
        if topic != _BEGUN
        for partition, offset in partitions.items()
    }


def begun_in(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Where partitions begin, as far as ``found`` tells."""
    told = {}
    for place, offset in found.get(_BEGUN, {}).items():
        topic, _, index = place.partition(" ")
        told[TopicPartition(topic, int(index))] = offset
    return told


def _by_topic(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    found: OffsetsJson = {}
    for each in sorted(offsets):
        found.setdefault(each.topic, {})[str(each.partition)] = offsets[each]
    return found


def ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
    """What lies between two offsets of each partition of ``end``; all of them are in ``start``, empty ones left out."""
    found = [Range(each, start[each], end[each]) for each in sorted(end)]
    return [each for each in found if each.size > 0]


def split(whole: Sequence[Range], at_least: int, most: int | None = None) -> list[Range]:
    """The same offsets in about ``at_least`` ranges or more, as Spark's ``minPartitions``: the biggest are cut.

    None has more than ``most`` offsets, as Spark's ``maxRecordsPerPartition``.
    """
    if most is not None:
        whole = [part for each in whole for part in _cut(each, -(-each.size // most))]
    total = sum(each.size for each in whole)
    if len(whole) >= at_least or not total:
        return list(whole)
    found = []
    for each in whole:
        found += _cut(each, min(each.size, max(1, round(each.size * at_least / total))))
    return found


def _cut(whole: Range, parts: int) -> list[Range]:
    cuts = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    return [Range(whole.partition, *cut) for cut in pairwise(cuts)]


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Ends so that no more than ``most`` offsets lie before them, shared out by how much each partition has.

    What division leaves goes to those with the largest remainder, so a small partition's turn comes.
    """
    sizes = {each: max(0, end[each] - start[each]) for each in end}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    shares = {each: most * size // total for each, size in sizes.items()}
    left = most - sum(shares.values())
    by_remainder = sorted(sizes, key=lambda each: (-(most * sizes[each] % total), each))
    for each in by_remainder[:left]:
        shares[each] += 1
    return {each: start[each] + share if sizes[each] else end[each] for each, share in shares.items()}
