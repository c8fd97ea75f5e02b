"""Fetch responses of a broker, as kproxy examines and changes them for clients of every version."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, Final

from kproxy.budget import MOST_ELEMENTS, MOST_STEPS, RequestBudget, standalone
from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kproxy.codec.fetch_restate import restate
from kproxy.errors import KproxyError
from kproxy.proxy.context import Client, Context, Policy, Services
from kproxy.proxy.handlers.base import Again, Exchange, Local, Park, Restated, Stable
from kproxy.proxy.handlers.fetch import Fetch
from kproxy.proxy.routing import Address, Broker, ClusterMap
from kproxy.txn.ids import TXN_BITS
from kproxy.txn.verdict import Verdict
from verification.fuzz.choices import Choices, piece
from verification.fuzz.record_parts import NOW, batch_piece, entry_piece, raw_piece, record_set, sample_records
from verification.fuzz.target import LONGEST, MOST_DECOMPRESSED, Bound, Target, expect
from verification.hostile.samples import Samples

_NEWEST: Final = FetchResponse.MAX_VERSION
_FIRST_TOPIC_ID: Final = 13
_FIRST_STABLE: Final = 4
_FIRST_SESSION: Final = 7
#: A client's requests on one connection: what it remembers counts for the next.
_REQUESTS: Final = 2
_STEP_SECONDS: Final = 0.2
#: How often a verdict is asked for before there is one.
_LATE: Final = 8
_TOPIC_ID: Final = b"t" * 16
#: Responses of the broker to one request of a client; then its time has ended.
_ROUNDS: Final = 6
#: Names and versions; the last is longer than Python reads numbers.
_SOFTWARE: Final = (("", ""), ("apache-kafka-java", "4.3.0"), ("kafka-python", "3.0.1"), ("unknown", "9" * 5_000))
_ERRORS: Final = (0, 0, 0, 1, 2, 56, 76)
_COMMITTED_EPOCH: Final = 1
_ABORTED_EPOCH: Final = 2


class _Decisions:
    """By the epoch of a batch; what is not decided yet is aborted when it was asked for some times."""

    def __init__(self) -> None:
        self._asked = 0

    def verdict(self, producer_id: int, epoch: int) -> Verdict:
        known = {_COMMITTED_EPOCH: Verdict.COMMITTED, _ABORTED_EPOCH: Verdict.ABORTED}
        if epoch in known:
            return known[epoch]
        self._asked += 1
        return Verdict.UNDECIDED if self._asked < _LATE else Verdict.ABORTED

    def is_other_copy(
        self, producer_id: int, epoch: int, topic: str, partition: int, base_sequence: int, base_offset: int
    ) -> bool:
        return base_sequence % 2 == 1

    def met(self, producer_id: int, topic: str, partition: int, offset: int) -> None:
        pass


def _context(flags: int, software: tuple[str, str]) -> Context:
    cluster = ClusterMap({1: Broker(1, Address("h", 9092), 1001)}, {1})
    if not flags & 0x40:
        cluster.learn_name(_TOPIC_ID, "t")
    services = Services(cluster, decisions=_Decisions() if flags & 1 else None)
    policy = Policy(
        max_decompressed_bytes=MOST_DECOMPRESSED,
        fetch_max_bytes=MOST_DECOMPRESSED,
        legacy_committed=bool(flags & 1),
        committed_for=lambda name: True if flags & 0x20 else None,
    )
    client = Client(local_host="proxy", software=software[0], software_version=software[1])
    ctx = Context(services, policy=policy, client=client, broker_versions={FetchRequest.API_KEY: (0, _NEWEST)})
    return replace(ctx, transcode={2: 1} if flags & 2 else {}, now=1.0, pipelines=bool(flags & 4))


def check_fetch(data: bytes) -> None:
    """What a client asks for, twice; then responses: of rows made from the input, or as bytes."""
    said = Choices(data)
    flags, version = said.number(), said.number() % (_NEWEST + 1)
    software = _SOFTWARE[said.number() % len(_SOFTWARE)]
    offset, asked = said.number(8, signed=True), said.number()
    ctx = _context(flags, software)
    upstream = max(version, _FIRST_STABLE) if flags & 8 else version
    try:
        for _ in range(_REQUESTS):
            request = _request(version, offset, asked)
            request.isolation_level = flags >> 4 & 1 if version >= _FIRST_STABLE else 0
            _read(ctx, Exchange(request, version, upstream), said, as_bytes=bool(flags & 0x80))
    except KproxyError:
        pass  # its connection ends


def _budget() -> RequestBudget:
    return RequestBudget(MOST_ELEMENTS, MOST_DECOMPRESSED, MOST_STEPS)


def _request(version: int, offset: int, asked: int) -> FetchRequest:
    rows = [
        FetchRequestFetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
        for index in range(1 + asked % 3)
    ]
    topic = FetchRequestFetchTopic(topic="t", partitions=rows)
    if version >= _FIRST_TOPIC_ID:
        topic.topic, topic.topic_id = "", _TOPIC_ID
    session_id = 7 if asked & 0x40 and version >= _FIRST_SESSION else 0
    max_wait_ms = 0 if asked & 0x80 else 500
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_id=session_id, session_epoch=-1, topics=[topic])


def _read(ctx: Context, exchange: Exchange, said: Choices, *, as_bytes: bool) -> None:
    """One request of a client, until it is answered or its time has ended."""
    handler, version = Fetch(), exchange.client_version
    handler.rewrites(ctx, version, exchange.upstream_version)
    lifted: Any = handler.lift(ctx, exchange, _budget())
    if isinstance(lifted, Local):
        lifted.answer.encode(version)
        return
    lowered: Any = Again(lifted)
    for _ in range(_ROUNDS):
        exchange.upstream_version = lowered.version or exchange.upstream_version
        lowered.request.encode(exchange.upstream_version)
        response, frame = _response(lowered.request, said, exchange.upstream_version, as_bytes=as_bytes)
        budget = _budget()
        work = handler.long_work(ctx, exchange, response, budget)
        if work is not None:
            work()
        lowered = _settled(ctx, exchange, handler.lower(ctx, exchange, response, budget))
        if not isinstance(lowered, Again):
            _answered(lowered, version, frame)
            return
        ctx.now += _STEP_SECONDS


def _settled(ctx: Context, exchange: Exchange, lowered: Any) -> Any:
    """What becomes of a response once nothing has to be waited for."""
    while isinstance(lowered, Park | Stable):
        told: dict[Any, int | None] = {}
        if isinstance(lowered, Stable):
            ends: dict[Any, int | None] = {**lowered.question.hints, **lowered.question.ends}
            told = ctx.services.stable.found(lowered.question, ends)
        else:
            ctx.now = max(ctx.now, lowered.until)
        lowered = Fetch().resume(ctx, exchange, told, _budget())
    return lowered


def _answered(lowered: Any, version: int, frame: bytes) -> None:
    if isinstance(lowered, Restated):
        changed = bytearray(frame)
        restate(changed, 0, version, lowered.stable)
        again = FetchResponse.decode(changed, version, standalone())
        found = [row.last_stable_offset for topic in again.responses for row in topic.partitions]
        expect(found == list(lowered.stable), "last stable offsets are not in their places")
    elif isinstance(lowered, FetchResponse):
        encoded = lowered.encode(version)
        expect(
            FetchResponse.decode(encoded, version, standalone()).encode(version) == encoded,
            "the response changes when it is read",
        )


def _response(asked: Any, said: Choices, version: int, *, as_bytes: bool) -> tuple[Any, bytes]:
    """The broker's next response, and its body."""
    if isinstance(asked, MetadataRequest):
        name = said.take(1).decode("latin-1")
        return MetadataResponse(topics=[MetadataResponseTopic(name=name, topic_id=_TOPIC_ID)]), b""
    body = said.piece() if as_bytes else _rows(said, version).encode(version)
    return FetchResponse.decode(body, version, standalone()), body


def _rows(said: Choices, version: int) -> FetchResponse:
    rows = []
    for _ in range(said.number() % 4):
        row = FetchResponsePartitionData(
            partition_index=said.number() % 3,
            error_code=_ERRORS[said.number() % len(_ERRORS)],
            high_watermark=said.number(8, signed=True),
        )
        if version >= _FIRST_STABLE:
            row.last_stable_offset = said.number(8, signed=True)
            count = said.number() % 4
            aborted = [FetchResponseAbortedTransaction(said.number(), said.number(2)) for _ in range(count)]
            row.aborted_transactions = aborted
        row.records = record_set(Choices(said.piece()))
        rows.append(row)
    topic = FetchResponseFetchableTopicResponse(topic="t", topic_id=_TOPIC_ID, partitions=rows)
    if version >= _FIRST_TOPIC_ID:
        topic.topic = ""
    else:
        topic.topic_id = bytes(16)
    return FetchResponse(responses=[topic])


def _seeds() -> Iterator[bytes]:
    sets = [
        batch_piece(0, sample_records()),
        batch_piece(4, sample_records()) + batch_piece(2, sample_records(), base_offset=3),
        batch_piece(0, sample_records(), producer_id=TXN_BITS | 5, producer_epoch=1, is_transactional=True),
        batch_piece(0, sample_records(), producer_id=TXN_BITS | 5, producer_epoch=2, is_transactional=True)
        + batch_piece(0, sample_records(), base_offset=3)
        + batch_piece(0, sample_records(), base_offset=6, producer_id=TXN_BITS | 5, producer_epoch=3),
        batch_piece(0, sample_records(), producer_id=7, producer_epoch=1, is_transactional=True),
        entry_piece(1, 0, 0, NOW, b"k", b"v") + entry_piece(0, 1, 1, 0, None, entry_piece(0, 0, 1, 0, None, b"v")),
        batch_piece(0, sample_records(), base_offset=5, partition_leader_epoch=1, is_control=True)
        + batch_piece(0, sample_records(), base_offset=(1 << 63) - 9, partition_leader_epoch=1, is_control=True),
        raw_piece(b"\0" * 70),
    ]
    for version in range(_NEWEST + 1):
        for flags in (0x00, 0x20, 0x21, 0x31, 0x09, 0x2B, 0x51, 0x61):
            start = bytes([flags, version, version % 4]) + bytes(8) + b"\1"
            upstream = max(version, _FIRST_STABLE) if flags & 8 else version
            stable = b"" if upstream < _FIRST_STABLE else (20).to_bytes(8, "big") + b"\1\7\0\0"
            row = b"\0\0" + (20).to_bytes(8, "big") + stable
            yield start + b"\1" + row + piece(sets[(version + flags) % len(sets)])
            yield start[:-1] + b"\x81\1" + row + piece(sets[(version + flags + 1) % len(sets)])
        response = Samples(Random(version)).well_formed("FetchResponse", version)
        yield (bytes([0xA1, version, 0]) + bytes(9) + piece(response.encode(version)))[:LONGEST]


FETCH_TARGET: Final = Target(
    "fetch",
    check_fetch,
    _seeds,
    Bound(steps=5_000_000, steps_of_byte=1_000, memory=1_000_000, memory_of_byte=1_000),
    (
        "kproxy.proxy.handlers.fetch",
        "kproxy.proxy.handlers.fetch_reading",
        "kproxy.proxy.handlers.fetch_rows",
        "kproxy.codec.fetch_restate",
        "kproxy.codec.recode",
        "kproxy.txn.visibility",
    ),
)
