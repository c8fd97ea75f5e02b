"""Arithmetic of sequence numbers and producer epochs (KIP-98, Kafka's ``DefaultRecordBatch``)."""

from typing import Final

#: Sequences count from 0 to 2^31-1 and begin again at 0, also inside a batch.
SEQUENCE_SPACE: Final = 1 << 31
#: The last epoch that kproxy uses of a producer id; Kafka's highest is 32767, which it keeps for fencing.
LAST_EPOCH: Final = 32766
#: How many epochs a lease reserves: the first, and those that its partitions may need beyond.
LEASE_EPOCHS: Final = 32
#: Set in each producer id that kproxy assigns, so that its own are recognisable in any log.
KPROXY_BIT: Final = 1 << 62


def advance(sequence: int, records: int) -> int:
    """The sequence that follows a batch of ``records`` records which begins at ``sequence``."""
    return (sequence + records) % SEQUENCE_SPACE


def is_kproxy_producer_id(producer_id: int) -> bool:
    """Whether a producer id is one of those that kproxy assigns."""
    return producer_id > 0 and bool(producer_id & KPROXY_BIT)
