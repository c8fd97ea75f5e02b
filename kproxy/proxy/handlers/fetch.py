"""Fetch (1): relayed where the client can read what the broker has; else looked through, or watched for zstd.

- v0-v1 get magic 0, v2-v3 magic 1 (KIP-31, KIP-32); control batches are left out, as a 2.8 broker did.
- v4-v9 can't carry zstd (KIP-110). Brokers before 4.0 say UNSUPPORTED_COMPRESSION_TYPE, which many clients swallow and
  hang on: kproxy asks again at v10 and re-encodes, and from then on the connection's fetches have no session (KIP-227).
  Brokers since 4.0 send the batches all the same (KIP-724): they are re-encoded on the way.
- A read_committed consumer is answered by ``fetch_reading``, which hides what is not committed. So is each client that
  is not proven to skip control batches (``handlers.control_batches``): at any isolation level it gets none. Neither
  has a session.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kproxy.budget import RequestBudget
from kproxy.codec._generated.fetch import FetchRequest, FetchResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec.conversion_memo import ConversionMemo
from kproxy.codec.header import decode_request_header
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.recode import has_codec
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.context import Context
from kproxy.proxy.handlers.base import Again, AsItIs, Exchange, Handler, Local, Lowered
from kproxy.proxy.handlers.control_batches import skips_control_batches
from kproxy.proxy.handlers.fetch_reading import FetchReading
from kproxy.proxy.handlers.fetch_rows import (
    FIRST_V2,
    FIRST_ZSTD,
    ZSTD,
    ZSTD_TO_GZIP,
    leave_unsayable,
    partition_errors,
    readable,
    recoded,
    ref,
    takes_long,
)
from kproxy.proxy.handlers.isolation import isolation_of

#: The first version whose request does not begin with the replica's id, and where the isolation level stands.
_FIRST_WITHOUT_REPLICA = 15
_ISOLATION_AT = 16
_REPLICA_BYTES = 4
#: Metadata that names topics by their ids.
_METADATA = 12


class Fetch(Handler):
    """Conversion for old versions and for clients whose codecs are set; committed data alone if asked for."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Whether the records may need a change, whatever is asked for."""
        return version < FIRST_ZSTD or upstream != version or bool(ctx.transcode) or not skips_control_batches(ctx)

    def rewrites_this(self, ctx: Context, version: int, request: memoryview) -> bool:
        """Whether the isolation level that is asked for makes a difference."""
        at = decode_request_header(request).size + _ISOLATION_AT
        if version >= _FIRST_WITHOUT_REPLICA:
            at -= _REPLICA_BYTES
        isolation = isolation_of(ctx, request[at] if at < len(request) else None)
        return isolation.filtered or not isolation.as_asked

    def ask_version(self, ctx: Context, version: int, upstream: int) -> int:
        """v10 or later where zstd may come and be re-encoded."""
        if version >= FIRST_V2 and not _reencodes(ctx, version):
            return upstream
        return max(upstream, min(FIRST_ZSTD, _newest(ctx)))

    def lift(self, ctx: Context, exchange: Exchange, budget: RequestBudget) -> Message | Local:
        """The request without a session, and with bounds on the response; untouched where it may be relayed."""
        request: FetchRequest = exchange.request
        version = exchange.client_version
        isolation = isolation_of(ctx, request.isolation_level if version >= FIRST_V2 else None)
        relays = isolation.as_asked and not isolation.filtered and skips_control_batches(ctx)
        if relays and version >= FIRST_V2 and not _reencodes(ctx, version):
            return request
        if request.session_id:
            return Local(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        reading = FetchReading(ctx, request, version, isolation)
        exchange.notes["reading"], exchange.notes["version"] = reading, exchange.upstream_version
        if not reading.unnamed:
            return reading.first()
        exchange.upstream_version = _METADATA
        topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in reading.unnamed]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    def long_work(
        self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget
    ) -> Callable[[], None] | None:
        """The conversion of what is long, or compressed."""
        version = exchange.client_version
        if not isinstance(response, FetchResponse) or not (version < FIRST_ZSTD or ctx.transcode):
            return None
        reading: FetchReading | None = exchange.notes.get("reading")
        if reading is not None:
            reading.bound(response, budget)
        rows = [
            (row.records, 0 if reading is None else reading.position(ref(topic), row.partition_index))
            for topic in response.responses
            for row in topic.partitions
            if row.records and not row.error_code
        ]
        if not any(takes_long(ctx, version, records) for records, _ in rows):
            return None
        ctx.fetched.conversions = ConversionMemo()
        apart = replace(
            ctx, fetched=replace(ctx.fetched, converted={})
        )  # that thread counts nothing, and changes nothing of the connection's

        def convert() -> None:
            for records, position in rows:
                with suppress(RemoteProtocolError):  # lower meets it, too
                    readable(apart, version, records, position, budget)

        return convert

    def lower(self, ctx: Context, exchange: Exchange, response: Any, budget: RequestBudget) -> Lowered:
        reading: FetchReading | None = exchange.notes.get("reading")
        if reading is None:
            return self._watched(ctx, exchange, response, budget)
        if isinstance(response, MetadataResponse):
            for topic in response.topics:
                ctx.cluster.learn_name(topic.topic_id, topic.name or "")
            reading.name_topics()
            return Again(reading.first(), exchange.notes["version"])
        if exchange.upstream_version < FIRST_ZSTD and _refuses_zstd(ctx, response):
            ctx.fetched.reencodes = True
            return Again(reading.first(), self.ask_version(ctx, exchange.client_version, exchange.upstream_version))
        return reading.take(response, exchange.upstream_version == exchange.client_version, budget)

    def resume(
        self, ctx: Context, exchange: Exchange, told: Mapping[TopicPartition, int | None], budget: RequestBudget
    ) -> Lowered:
        reading: FetchReading = exchange.notes["reading"]
        return reading.resume(told)

    def _watched(
        self, ctx: Context, exchange: Exchange, response: FetchResponse, budget: RequestBudget
    ) -> Again | AsItIs | FetchResponse:
        if not _refuses_zstd(ctx, response):
            return self._recoded(ctx, exchange, response, budget)
        ctx.fetched.reencodes = True
        request: FetchRequest = exchange.request
        if request.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        version = self.ask_version(ctx, exchange.client_version, exchange.upstream_version)
        isolation = isolation_of(ctx, request.isolation_level)
        reading = FetchReading(ctx, request, exchange.client_version, isolation)
        exchange.notes["reading"] = reading
        return Again(reading.first(), version)

    def _recoded(
        self, ctx: Context, exchange: Exchange, response: FetchResponse, budget: RequestBudget
    ) -> AsItIs | FetchResponse:
        rows = [row for t in response.responses for row in t.partitions if row.records and has_codec(row.records, ZSTD)]
        for row in rows:
            with partition_errors(row):
                row.records = recoded(ctx, row.records or b"", ZSTD_TO_GZIP, budget)
        if not rows and exchange.upstream_version == exchange.client_version:
            return AsItIs()
        leave_unsayable(response, exchange.client_version)
        return response


def _newest(ctx: Context) -> int:
    return ctx.broker_versions.get(FetchRequest.API_KEY, (0, FIRST_ZSTD))[1]


def _refuses_zstd(ctx: Context, response: FetchResponse) -> bool:
    """Whether a broker says that the version can't carry a batch in zstd, and there is one that can."""
    return _newest(ctx) >= FIRST_ZSTD and any(
        row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE for t in response.responses for row in t.partitions
    )


def _reencodes(ctx: Context, version: int) -> bool:
    return bool(ctx.transcode) or (ctx.fetched.reencodes and version < FIRST_ZSTD)
