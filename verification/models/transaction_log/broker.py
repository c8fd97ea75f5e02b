"""What a broker does with a batch of an idempotent producer, as it was measured on Kafka 4.3."""

from typing import Final, NamedTuple, TypeAlias

from kproxy.txn.ids import Producer

#: Batches of a producer that a partition remembers.
_REMEMBERED: Final = 5

Table: TypeAlias = tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]
"""Sorted: producer id, epoch, the last batches as (sequence, offset)."""


class Answer(NamedTuple):
    """What the broker says, and what it knows then."""

    error: str
    offset: int
    """-1 if there is an error."""
    table: Table
    is_new: bool = False


def arrive(table: Table, end: int, producer: Producer, sequence: int) -> Answer:
    """A batch comes to a partition that ends at ``end``."""
    row = next((row for row in table if row[0] == producer.producer_id), None)
    if row is None:  # unknown or forgotten: any epoch, any sequence
        return _taken(table, producer, ((sequence, end),))
    _, epoch, batches = row
    if producer.epoch < epoch:
        return Answer("fenced", -1, table)
    if producer.epoch > epoch:
        return _taken(table, producer, ((0, end),)) if sequence == 0 else Answer("out of order", -1, table)
    before = dict(batches).get(sequence)
    if before is not None:
        return Answer("", before, table)  # a duplicate, also if it holds something else
    if sequence != (batches[-1][0] if batches else -1) + 1:
        return Answer("out of order", -1, table)
    return _taken(table, producer, (*batches, (sequence, end))[-_REMEMBERED:])


def fence(table: Table, producer: Producer) -> Table:
    """After an end marker of this epoch, which fences the earlier ones, and which the partition takes from anybody."""
    row = next((row for row in table if row[0] == producer.producer_id), None)
    if row is not None and row[1] >= producer.epoch:
        return table
    others = [row for row in table if row[0] != producer.producer_id]
    return tuple(sorted([*others, (*producer, ())]))


def _taken(table: Table, producer: Producer, batches: tuple[tuple[int, int], ...]) -> Answer:
    others = [row for row in table if row[0] != producer.producer_id]
    return Answer("", batches[-1][1], tuple(sorted([*others, (*producer, batches)])), is_new=True)
