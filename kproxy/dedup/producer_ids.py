"""The producer ids and epochs that kproxy assigns (KIP-98)."""

from typing import Final

#: The last epoch that kproxy uses of a producer id; Kafka's highest is 32767, which it keeps for fencing.
LAST_EPOCH: Final = 32766
#: How many epochs a lease reserves: the first, and those that its partitions may need beyond.
LEASE_EPOCHS: Final = 32
#: Set in each producer id that kproxy assigns, so that its own are recognisable in any log.
KPROXY_BIT: Final = 1 << 62

#: Producer ids from here on are kproxy's. Kafka's brokers count theirs from 0; others must stay below, too.
FIRST_RESERVED: Final = 1 << 61


def is_reserved_producer_id(producer_id: int) -> bool:
    """Whether a broker must not assign this id, because kproxy would take its batches for batches of its own."""
    return producer_id >= FIRST_RESERVED


def is_kproxy_producer_id(producer_id: int) -> bool:
    """Whether a producer id is one of those that kproxy assigns."""
    return producer_id > 0 and bool(producer_id & KPROXY_BIT)
