"""Attacks by a broker, or a port that is none: each takes a running kproxy, and says what came of it."""

import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import Final

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.header import encode_request, encode_response
from kproxy.codec.messages import ApiKey
from verification.hostile.attacks import HOSTILE, MIB, ask
from verification.hostile.target import Besieged, wait_for
from verification.hostile.wrong_broker import Wrong

_VERSIONS: Final = 4_300_000
_TOPICS: Final = 1_200_000
#: A response of so many topics (26 bytes each) is just not too long.
_MOST_TOPICS: Final = 600_000
_SECONDS: Final = 1.0
_WRONG_BYTES: Final = 1 << 20
_BATCHES: Final = 60_000
_OFFSET_BYTES: Final = 8
_NAMES: Final = 19_000
_AT_ONCE: Final = 25
_FLEXIBLE: Final = MetadataResponse.FLEXIBLE_FROM


def wrong_versions(proxy: Besieged) -> str:
    """A broker that answers ApiVersions with 30 MB, whenever kproxy connects to it."""
    body = b"\0\0" + _varint(_VERSIONS + 1) + bytes(7 * _VERSIONS) + bytes(5)
    return _misled(proxy, ApiKey.API_VERSIONS, lambda _, correlation_id: _framed(correlation_id, body))


def wrong_topics(proxy: Besieged) -> str:
    """A broker that answers Metadata, which kproxy or a client asked for, with 1.2 million topics."""
    return _misled(proxy, ApiKey.METADATA, partial(_wrong_topics, _TOPICS))


def most_topics(proxy: Besieged) -> str:
    """A broker that answers Metadata with 600,000 topics: kproxy's own requests get 15 MB, nearly the longest frame."""
    return _misled(proxy, ApiKey.METADATA, partial(_wrong_topics, _MOST_TOPICS))


def many_topics(proxy: Besieged) -> str:
    """25 short Metadata requests at once, with responses of 19,000 topics."""
    broker = proxy.wrong_broker
    assert broker is not None
    request = encode_request(MetadataRequest(topics=None), 1, 1, "hostile")
    host, _, port = broker.address.rpartition(":")
    brokers = [MetadataResponseBroker(1, host, int(port))]
    responses: dict[int, bytes] = {}

    def answer(version: int, correlation_id: int) -> bytes:
        if version not in responses:
            responses[version] = _many_topics(
                version, 0, _NAMES, MetadataResponseTopic(error_code=3, name="x" * 30), brokers
            )
        return responses[version][:4] + struct.pack(">i", correlation_id) + responses[version][8:]

    found: list[bool] = []
    broker.wrong[ApiKey.METADATA] = answer
    try:
        with ExitStack() as stack:
            threads = []
            for _ in range(_AT_ONCE):
                sock = stack.enter_context(proxy.connect(HOSTILE))
                threads.append(Thread(target=lambda sock=sock: found.append(bool(ask(sock, [request])[0]))))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        broker.wrong.clear()
    assert sum(found) == _AT_ONCE
    return f"{sum(found)} answered"


def tiny_batches(proxy: Besieged) -> str:
    """Fetch v2 of 60,000 batches of one record each, and of one control batch."""
    broker = proxy.wrong_broker
    assert broker is not None
    batch = bytes(build_batch([Record(0, int(time.time() * 1000), None, b"x", ())]))
    batches = [struct.pack(">q", offset) + batch[_OFFSET_BYTES:] for offset in range(_BATCHES)]
    control = build_batch([Record(0, -1, bytes(4), bytes(6))], base_offset=_BATCHES, is_control=True)
    row = FetchResponsePartitionData(0, high_watermark=_BATCHES + 1, records=b"".join([*batches, control]))
    response = FetchResponse(responses=[FetchResponseFetchableTopicResponse("t", partitions=[row])])
    part = FetchRequestFetchPartition(partition=0, partition_max_bytes=16 * MIB)
    wanted = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchRequestFetchTopic(topic="t", partitions=[part])])
    broker.wrong[ApiKey.FETCH] = lambda version, correlation_id: encode_response(response, version, correlation_id)
    try:
        with proxy.connect(HOSTILE) as sock:
            found = [len(answer) for answer in ask(sock, [encode_request(wanted, 2, 1, "hostile")] * 2)]
    finally:
        broker.wrong.clear()
    assert min(found) > _WRONG_BYTES // 16
    return f"answers of {' and '.join(map(str, found))} bytes"


def _misled(proxy: Besieged, api_key: int, wrong: Wrong) -> str:
    broker = proxy.wrong_broker
    assert broker is not None
    broker.count, answered = 0, 0
    requests = [encode_request(ApiVersionsRequest(), 0, 1, "hostile")]
    requests.append(encode_request(MetadataRequest(), 1, 2, "hostile"))
    deadline = time.monotonic() + _SECONDS
    try:
        with proxy.connect(HOSTILE) as sock:
            ask(sock, requests[:1])  # this connection to the broker is there already
            broker.wrong[api_key] = wrong
            answered += len(ask(sock, requests[1:])[-1]) > _WRONG_BYTES
        while time.monotonic() < deadline:
            broker.end_all()
            with proxy.connect(HOSTILE) as sock:
                answered += len(ask(sock, requests)[-1]) > _WRONG_BYTES
    finally:
        broker.wrong.clear()
    wait_for(partial(_serves, proxy))
    assert broker.count, "nothing wrong was answered"
    return f"{broker.count} wrong responses, {answered} passed on"


def _serves(proxy: Besieged) -> bool:
    try:
        with proxy.client() as client:
            return bool(client.metadata("t").brokers)
    except (OSError, EOFError):
        return False


def _wrong_topics(count: int, version: int, correlation_id: int) -> bytes:
    return _many_topics(version, correlation_id, count, MetadataResponseTopic(name=""))


def _many_topics(
    version: int,
    correlation_id: int,
    count: int,
    topic: MetadataResponseTopic,
    brokers: Sequence[MetadataResponseBroker] = (),
) -> bytes:
    none, one, two = (
        MetadataResponse(brokers=[*brokers], topics=[topic] * number).encode(version) for number in range(3)
    )
    size, flexible = len(two) - len(one), version >= _FLEXIBLE
    at = next(at for at, (left, right) in enumerate(zip(none, one, strict=False)) if left != right)
    head = none[:at] if flexible else none[: at - 3]
    number = _varint(count + 1) if flexible else struct.pack(">i", count)
    body = bytes(flexible) + head + number + one[at + 1 : at + 1 + size] * count + none[at + 1 :]
    return _framed(correlation_id, body)


def _framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
