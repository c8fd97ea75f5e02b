"""Arithmetic of sequence numbers (KIP-98, Kafka's ``DefaultRecordBatch``)."""

from typing import Final

#: Sequences count from 0 to 2^31-1 and begin again at 0, also inside a batch.
SEQUENCE_SPACE: Final = 1 << 31


def advance(sequence: int, records: int) -> int:
    """The sequence that follows a batch of ``records`` records which begins at ``sequence``."""
    return (sequence + records) % SEQUENCE_SPACE


def distance(sequence: int, other: int) -> int:
    """How many records lie from ``sequence`` to ``other``, which comes after it."""
    return (other - sequence) % SEQUENCE_SPACE
