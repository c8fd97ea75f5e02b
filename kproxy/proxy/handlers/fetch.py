"""Fetch (1): relayed from v10 on; below, watched for zstd; v0-v3 converted to message sets of magic 0 and 1.

- v0-v1 get magic 0, v2-v3 magic 1 (KIP-31, KIP-32); control batches are left out, as a 2.8 broker did.
- v4-v9 can't carry zstd (KIP-110). Brokers before 4.0 say UNSUPPORTED_COMPRESSION_TYPE, which many clients swallow and
  hang on: kproxy asks again at v10 and re-encodes, and from then on the connection's fetches have no session (KIP-227).
  Brokers since 4.0 send the batches all the same (KIP-724): they are re-encoded on the way.
- A conversion that leaves nothing must not stall a client that goes on from the last record it saw: read on, remember.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseEpochEndOffset,
    FetchResponseFetchableTopicResponse,
    FetchResponseLeaderIdAndEpoch,
    FetchResponsePartitionData,
)
from kproxy.codec.legacy import from_v2
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.recode import has_codec, recode
from kproxy.codec.records import DecompressionLimit
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.handlers.base import Again, AsItIs, Context, Exchange, Handler, Local

_FIRST_V2 = 4
_FIRST_ZSTD = 10
_ZSTD = 4
_ZSTD_TO_GZIP: Mapping[int, int] = {4: 1}
#: How often to read on for one request before it is answered with nothing; the place is remembered for the next one.
_READ_ON = 4
_STORAGE_ERROR_KNOWN = 6
_FIRST_REPLICA_CHOICE = 11
_FIRST_LEADER_HINT = 12


@contextmanager
def _told_in(row: FetchResponsePartitionData) -> Iterator[None]:
    """Records that can't be read are an error of their partition, not of the connection."""
    try:
        yield
    except DecompressionLimit:
        row.error_code, row.records = ErrorCode.MESSAGE_TOO_LARGE, b""
    except RemoteProtocolError:
        row.error_code, row.records = ErrorCode.CORRUPT_MESSAGE, b""


class Fetch(Handler):
    """Conversion for old versions and for clients whose codecs are set."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Whether the records may need a change."""
        return version < _FIRST_ZSTD or upstream != version or bool(ctx.transcode)

    def ask_version(self, ctx: Context, version: int, upstream: int) -> int:
        """v10 or later where zstd may come and be re-encoded."""
        if version >= _FIRST_V2 and not _bridges(ctx, version):
            return upstream
        return max(upstream, min(_FIRST_ZSTD, _newest(ctx)))

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local:
        """The request without a session, and with bounds on the answer; untouched where it may be relayed."""
        request: FetchRequest = exchange.request
        if not _bridges(ctx, exchange.client_version):
            return request
        if request.session_id:
            return Local(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return _bridged(ctx, exchange)

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Message | Again | AsItIs:
        """The records as the client can read them."""
        if "asked" not in exchange.notes:
            return self._watched(ctx, exchange, response)
        kept: dict[tuple[str, int], FetchResponsePartitionData] = exchange.notes["kept"]
        offsets = {key: row.fetch_offset for key, row in _partitions(exchange.request)}
        for topic in response.responses:
            for row in topic.partitions:
                key = (_ref(topic), row.partition_index)
                kept[key] = row
                self._convert(ctx, exchange, key, row, offsets.get(key, 0))
        return _read_on(ctx, exchange) or _answer(exchange, response)

    def _watched(self, ctx: Context, exchange: Exchange, response: FetchResponse) -> Again | AsItIs | FetchResponse:
        unreadable = any(
            row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE for t in response.responses for row in t.partitions
        )
        if not unreadable or _newest(ctx) < _FIRST_ZSTD:
            return self._recoded(ctx, exchange, response)
        ctx.reencode_fetches = True
        if exchange.request.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        version = self.ask_version(ctx, exchange.client_version, exchange.upstream_version)
        return Again(_bridged(ctx, exchange), version)

    def _recoded(self, ctx: Context, exchange: Exchange, response: FetchResponse) -> AsItIs | FetchResponse:
        rows = [
            row for t in response.responses for row in t.partitions if row.records and has_codec(row.records, _ZSTD)
        ]
        for row in rows:
            self._recode(ctx, row, _ZSTD_TO_GZIP)
        if not rows and exchange.upstream_version == exchange.client_version:
            return AsItIs()
        _leave_unsayable(response, exchange.client_version)
        return response

    def _recode(self, ctx: Context, row: FetchResponsePartitionData, codecs: Mapping[int, int]) -> None:
        assert row.records is not None
        with _told_in(row):
            pieces = recode(memoryview(row.records), codecs, max_decompressed_bytes=ctx.max_decompressed_bytes)
            row.records = b"".join(pieces)

    def _convert(
        self, ctx: Context, exchange: Exchange, key: tuple[str, int], row: FetchResponsePartitionData, offset: int
    ) -> None:
        version = exchange.client_version
        if version < _STORAGE_ERROR_KNOWN and row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not row.records:
            row.records = b""
            return
        if version >= _FIRST_V2:
            self._recode(ctx, row, ctx.transcode if version >= _FIRST_ZSTD else {**_ZSTD_TO_GZIP, **ctx.transcode})
            return
        with _told_in(row):
            self._down(ctx, exchange, key, row, offset)

    def _down(
        self, ctx: Context, exchange: Exchange, key: tuple[str, int], row: FetchResponsePartitionData, offset: int
    ) -> None:
        magic = 0 if exchange.client_version < 2 else 1
        assert row.records is not None
        result = from_v2(
            row.records,
            magic=magic,
            first_offset=offset,
            transcode={**_ZSTD_TO_GZIP, **ctx.transcode},
            max_decompressed_bytes=ctx.max_decompressed_bytes,
            max_bytes=ctx.fetch_max_bytes,
        )
        ctx.count_converted("down", magic, 1, result.record_count)
        if not result.data and result.next_offset > offset:
            exchange.notes["read_on"][key] = result.next_offset
        row.records = result.data


def _newest(ctx: Context) -> int:
    return ctx.broker_versions.get(FetchRequest.API_KEY, (0, _FIRST_ZSTD))[1]


def _bridges(ctx: Context, version: int) -> bool:
    return version < _FIRST_V2 or bool(ctx.transcode) or (ctx.reencode_fetches and version < _FIRST_ZSTD)


def _partitions(request: FetchRequest) -> Iterator[tuple[tuple[str, int], Any]]:
    return (((_ref(t), row.partition), row) for t in request.topics for row in t.partitions)


def _ref(topic: Any) -> str:
    """A topic's name, or from v13 on its id in hexadecimal (KIP-516)."""
    name: str = topic.topic or topic.topic_id.hex()
    return name


def _bridged(ctx: Context, exchange: Exchange) -> FetchRequest:
    # another object than the client's request, which would be relayed as it came
    request: FetchRequest = replace(exchange.request, session_id=0, session_epoch=-1, forgotten_topics_data=[])
    exchange.request = request
    exchange.notes.update(asked=0, kept={}, read_on={}, starts={}, topics=list(request.topics))
    total = 0
    for key, row in _partitions(request):
        total += max(row.partition_max_bytes, 0)
        exchange.notes["starts"][key] = row.fetch_offset
        start, behind = ctx.hidden.get(key, (-1, -1))
        if start == row.fetch_offset:
            row.fetch_offset = behind
    bound = min(total, ctx.fetch_max_bytes)
    request.max_bytes = min(request.max_bytes, bound) if exchange.client_version >= 3 else bound
    return request


def _read_on(ctx: Context, exchange: Exchange) -> Again | None:
    """Asks behind what held nothing for the client, unless there is something else to answer or it took long enough."""
    places: dict[tuple[str, int], int] = exchange.notes["read_on"]
    if not places:
        return None
    exchange.notes["read_on"] = {}
    for key, behind in places.items():
        ctx.hidden[key] = (exchange.notes["starts"][key], behind)
    exchange.notes["asked"] += 1
    if exchange.notes["asked"] > _READ_ON or any(row.records for row in exchange.notes["kept"].values()):
        return None
    request: FetchRequest = exchange.request
    for topic in request.topics:
        topic.partitions = [row for row in topic.partitions if (_ref(topic), row.partition) in places]
        for row in topic.partitions:
            row.fetch_offset = places[_ref(topic), row.partition]
    request.topics = [topic for topic in request.topics if topic.partitions]
    return Again(request)


def _leave_unsayable(response: FetchResponse, version: int) -> None:
    """Leaves out what a version can't say; and brokers' addresses (KIP-951): a client only ever meets kproxy's."""
    response.node_endpoints = []
    for topic in response.responses:
        for row in topic.partitions:
            if version < _FIRST_REPLICA_CHOICE:
                row.preferred_read_replica = -1
            if version < _FIRST_LEADER_HINT:
                row.current_leader = FetchResponseLeaderIdAndEpoch()
                row.diverging_epoch = FetchResponseEpochEndOffset()


def _answer(exchange: Exchange, response: FetchResponse) -> FetchResponse:
    kept: dict[tuple[str, int], FetchResponsePartitionData] = exchange.notes["kept"]
    old = exchange.client_version < _FIRST_V2
    response.session_id = 0
    by_topic: dict[str, list[FetchResponsePartitionData]] = {}
    for (topic, _), row in kept.items():
        if old:
            row.aborted_transactions = []
        by_topic.setdefault(topic, []).append(row)
    topics = {_ref(topic): topic for topic in exchange.notes["topics"]}
    response.responses = [
        FetchResponseFetchableTopicResponse(topic=topics[ref].topic, topic_id=topics[ref].topic_id, partitions=rows)
        for ref, rows in by_topic.items()
    ]
    _leave_unsayable(response, exchange.client_version)
    return response
