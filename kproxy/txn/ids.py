"""Producer ids of kproxy's transactions, and names that decide where something is kept.

A transaction's data are written under a producer id of kproxy's with two bits set: 62, as in all of kproxy's, and 61.
So its batches can be told from all others in any log, also by a kproxy that has lost everything else.
"""

from typing import Final, NamedTuple
from zlib import crc32

#: Set in each producer id under which transactions are written.
TXN_BITS: Final = 3 << 61
#: The number of epochs that a claim reserves; each transaction takes one.
BLOCK_EPOCHS: Final = 64
#: The last epoch that is ever used of a producer id; after it comes the next generation (KAFKA-9666).
LAST_EPOCH: Final = 32_766
#: A client whose client.id begins so writes in a transaction or not at all. A transaction begun for it ends with its
#: kproxy. The client then reconnects and keeps sending, and none of that may be written as plain records.
TXN_CLIENTS: Final = "kproxy-txn-"


class Producer(NamedTuple):
    """A producer id with an epoch: as clients know it, or as it is in batches."""

    producer_id: int
    epoch: int


def is_transactional_producer_id(producer_id: int) -> bool:
    """Whether batches under this producer id belong to a transaction of kproxy's."""
    return producer_id > 0 and producer_id & TXN_BITS == TXN_BITS


def client_producer_id(producer_id: int) -> int:
    """The producer id that brokers gave, without kproxy's bits: what clients get to see."""
    return producer_id & ~TXN_BITS


def log_partition(transactional_id: str, partitions: int) -> int:
    """The partition of the transaction log that speaks of a transactional id, as Kafka has it (``partitionFor``).

    Java's ``String.hashCode`` over UTF-16, made non-negative: fixed for ever, like the number of partitions.
    """
    value = 0
    units = transactional_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    return (value & 0x7FFF_FFFF) % partitions


def turn_of(instance_id: str, transactional_id: str = "") -> float:
    """The turn of an instance, from 0 to 1, at what any may do for an id, or for all. Another order for each id."""
    return crc32(f"{transactional_id} {instance_id}".encode(errors="surrogatepass")) / 2**32


def reject_partition(producer_id: int, partitions: int) -> int:
    """The partition of the transaction log in which a producer id without a transactional id is rejected."""
    return client_producer_id(producer_id) % partitions
