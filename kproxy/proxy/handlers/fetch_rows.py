"""One partition of a Fetch response: its records in a form that the client's version and the client itself can read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from kproxy.budget import CONVERTED_BYTE_STEPS, CONVERTED_RECORD_STEPS, RequestBudget, is_long
from kproxy.codec._generated.fetch import (
    FetchResponse,
    FetchResponseEpochEndOffset,
    FetchResponseLeaderIdAndEpoch,
    FetchResponsePartitionData,
)
from kproxy.codec.message_formats import from_v2
from kproxy.codec.messages import ErrorCode
from kproxy.codec.recode import has_codec, recode
from kproxy.codec.records import DecompressionLimit
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.context import Context

Records: TypeAlias = bytes | memoryview
"""A record set as a Fetch response has it."""

FIRST_V2: Final = 4
"""The first Fetch version that carries record batches of format v2."""
FIRST_ZSTD: Final = 10
ZSTD: Final = 4
_COMPRESSED: Final = range(1, ZSTD + 1)
ZSTD_TO_GZIP: Final[Mapping[int, int]] = {ZSTD: 1}

_FIRST_MAGIC_1: Final = 2
_STORAGE_ERROR_KNOWN: Final = 6
_FIRST_REPLICA_CHOICE: Final = 11
_FIRST_LEADER_HINT: Final = 12


@contextmanager
def partition_errors(row: FetchResponsePartitionData) -> Iterator[None]:
    """Records that can't be read are an error of their partition, not of the connection."""
    try:
        yield
    except DecompressionLimit:
        row.error_code, row.records = ErrorCode.MESSAGE_TOO_LARGE, b""
    except RemoteProtocolError:
        row.error_code, row.records = ErrorCode.CORRUPT_MESSAGE, b""


def ref(topic: Any) -> str:
    """A topic's name, or from v13 on its id in hexadecimal (KIP-516)."""
    name: str = topic.topic or topic.topic_id.hex()
    return name


def name_error(row: FetchResponsePartitionData, version: int) -> None:
    """An error that the client's version knows."""
    if version < _STORAGE_ERROR_KNOWN and row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
        row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


def readable(ctx: Context, version: int, data: Records, offset: int, budget: RequestBudget) -> tuple[Records, int]:
    """Records as the client can read them, and the offset up to which there is nothing for it if these are none.

    ``budget`` bounds the bytes of one batch at a time, decompressed, and the records of a partition in an old format,
    unless its first batch has more.

    The very same object where nothing has to be changed. Raises ``RemoteProtocolError`` if they can't be read.
    """
    if version >= FIRST_V2:
        codecs = _codecs(ctx, version)
        if not any(has_codec(data, codec) for codec in codecs):
            return data, offset
        return recoded(ctx, data, codecs, budget), offset
    magic = 0 if version < _FIRST_MAGIC_1 else 1
    result = from_v2(
        data,
        magic=magic,
        first_offset=offset,
        transcode={**ZSTD_TO_GZIP, **ctx.transcode},
        max_decompressed_bytes=budget.bytes,
        max_bytes=ctx.policy.fetch_max_bytes,
        max_records=budget.steps // CONVERTED_RECORD_STEPS,
        memo=ctx.fetched.conversions,
    )
    ctx.fetched.count_converted("down", magic, 1, result.record_count)
    return result.data, result.next_offset


def takes_long(ctx: Context, version: int, data: Records) -> bool:
    """Whether it takes long to make records readable: they are many, or compressed, so that their number is unknown."""
    if version < FIRST_V2:
        return is_long(len(data) * CONVERTED_BYTE_STEPS) or any(has_codec(data, codec) for codec in _COMPRESSED)
    return any(has_codec(data, codec) for codec in _codecs(ctx, version))


def _codecs(ctx: Context, version: int) -> Mapping[int, int]:
    return ctx.transcode if version >= FIRST_ZSTD else {**ZSTD_TO_GZIP, **ctx.transcode}


def recoded(ctx: Context, data: Records, codecs: Mapping[int, int], budget: RequestBudget) -> bytes:
    """Records in other compressions. Raises ``RemoteProtocolError`` if they can't be read."""
    return b"".join(
        recode(
            memoryview(data),
            codecs,
            max_decompressed_bytes=budget.bytes,
            memo=ctx.fetched.conversions,
        )
    )


def leave_unsayable(response: FetchResponse, version: int) -> None:
    """Leaves out what a version can't say; and brokers' addresses (KIP-951): a client only ever meets kproxy's."""
    response.node_endpoints = []
    for topic in response.responses:
        for row in topic.partitions:
            if version < _FIRST_REPLICA_CHOICE:
                row.preferred_read_replica = -1
            if version < _FIRST_LEADER_HINT:
                row.current_leader = FetchResponseLeaderIdAndEpoch()
                row.diverging_epoch = FetchResponseEpochEndOffset()
