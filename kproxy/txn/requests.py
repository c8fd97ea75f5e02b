"""The requests of clients to a transaction's coordinator, without the versions of the wire."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kproxy.txn.ids import Producer

if TYPE_CHECKING:
    from kproxy.codec.topic_partition import TopicPartition


class IdHolder(NamedTuple):
    """A client across its connections, to which ids are given."""

    #: Empty: it has not logged in, and the others tell who it is.
    principal: str
    client_id: str = ""
    #: Empty also where addresses do not count (``identity.by``).
    host: str = ""


class TxnRequest(NamedTuple):
    """The client that sends a request, and its transactional id."""

    transactional_id: str
    #: As the client knows itself.
    client: Producer
    #: The serial number of the client's connection: what comes over an older one than the newest is late.
    connection: int
    client_id: str
    #: The client across its connections; None: kproxy itself asks.
    holder: IdHolder | None = None

    @property
    def is_own(self) -> bool:
        """Whether kproxy itself asks, for a client that knows nothing of transactions; connections count from 1."""
        return not self.connection


class ClientBatch(NamedTuple):
    """One batch of format v2 as a client sent it, in memory that may be written."""

    topic: str
    partition: int
    batch: memoryview
    records: int
    #: The client's own: it counts on over its transactions.
    base_sequence: int
    #: The client's own checksum of the batch, before kproxy writes its own producer id and sequence into it.
    crc: int = 0


class Written(NamedTuple):
    """The result of a batch: an error, or its offset."""

    error_code: int
    base_offset: int
    log_append_time_ms: int


def places_of(batches: Iterable[ClientBatch]) -> "list[TopicPartition]":
    """The partitions of batches."""
    return [(batch.topic, batch.partition) for batch in batches]


def size_of(batches: Iterable[ClientBatch]) -> int:
    """The bytes of batches."""
    return sum(len(batch.batch) for batch in batches)
