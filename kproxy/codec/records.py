"""What all record formats share: the record itself, and the ways in which a record set can be wrong."""

from typing import Final, NamedTuple

from kproxy.budget import UsedUp
from kproxy.errors import RemoteProtocolError

NO_TIMESTAMP: Final = -1
"""Kafka's ``RecordBatch.NO_TIMESTAMP``: magic 0, or a producer that set none."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
MAGIC_OFFSET: Final = 16
"""Where the magic byte is, counted from the start of an entry or a batch: the same in every format."""


class CorruptRecord(RemoteProtocolError):
    """A record set is damaged or malformed: what Kafka answers with CORRUPT_MESSAGE (2)."""


class DecompressionLimit(UsedUp):
    """A record set would grow beyond the allowed number of bytes when decompressed."""


class UnsupportedCodec(RemoteProtocolError):
    """A codec that the record format does not know: what Kafka answers with UNSUPPORTED_COMPRESSION_TYPE (76)."""


class RawRecord(NamedTuple):
    """One record of format v2 of which only its place and its time were read; ``timestamp`` in ms, -1 if none."""

    offset: int
    timestamp: int
    #: Key, value and headers, as the batch has them.
    body: bytes


class Record(NamedTuple):
    """One record, whatever the format it was stored in; ``timestamp`` in ms, -1 if there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
