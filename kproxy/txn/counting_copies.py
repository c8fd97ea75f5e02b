"""Copies of batches that count: a batch that was sent more than once may be in the log more than once."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from kproxy.codec._generated.transaction_decision import TransactionDecisionPart
from kproxy.codec.topic_partition import TopicPartition

#: Of one committed epoch: the base offset that counts, by topic, partition and base sequence.
Copies: TypeAlias = dict[tuple[str, int, int], int]
#: In place of a sequence: with the offset below which an epoch's data in a partition count.
END_OF_DATA: Final = -1


def counting_copies(part: TransactionDecisionPart, *, is_former: bool) -> Copies:
    """The copies that a commit names for one of its epochs; of a former epoch the end of the data in each partition."""
    rows = [(topic.name, row) for topic in part.topics for row in topic.partitions]
    if is_former:
        return {(name, row.index, END_OF_DATA): row.end_offset for name, row in rows}
    return {(name, row.index, copy.base_sequence): copy.base_offset for name, row in rows for copy in row.copies}


def is_other_copy(
    copies: Mapping[tuple[str, int, int], int], place: TopicPartition, base_sequence: int, base_offset: int
) -> bool:
    """Whether a batch of a committed epoch does not count: another copy does, or the epoch had ended before."""
    if is_bounded(copies):
        return base_offset >= copies.get((*place, END_OF_DATA), 0)
    return copies.get((*place, base_sequence), base_offset) != base_offset


def is_bounded(copies: Mapping[tuple[str, int, int], int]) -> bool:
    """Whether they say where a former epoch's data end."""
    return next(iter(copies))[2] == END_OF_DATA
