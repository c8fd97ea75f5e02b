"""Attacks that were found by trying: each takes a running kproxy, and returns what came back, in a few words."""

import fcntl
import gzip
import socket
import struct
import sys
import termios
import time
import zlib
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from threading import Thread
from typing import Final

from kproxy.budget import unbounded
from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
)
from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsResponse,
)
from kproxy.codec._generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kproxy.codec._generated.describe_groups import DescribeGroupsRequest
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.fetch import FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateRequest
from kproxy.codec._generated.sasl_handshake import SaslHandshakeRequest
from kproxy.codec.batch import RawRecord, Record, build_batch
from kproxy.codec.compression import GZIP
from kproxy.codec.header import encode_request
from kproxy.codec.varint import encode_varint
from verification.hostile.target import PATIENCE, Besieged

MIB: Final = 1 << 20
#: Attacks come from another address than honest clients.
HOSTILE: Final = "127.0.0.2"
_LONG: Final = 32_700
_HEADERS: Final = 6_000_000
_RECORDS: Final = 100_000


def answer_to(proxy: Besieged, data: bytes) -> bytes:
    """The frame that comes back, without its length; empty if the connection is closed instead."""
    with proxy.connect(HOSTILE) as sock:
        return ask(sock, [data])[0]


def ask(sock: socket.socket, requests: Iterable[bytes], patience: float = PATIENCE) -> list[bytes]:
    """The responses to requests that are sent one after the other; the last is empty if the connection was closed."""
    answers = []
    with sock.makefile("rb") as stream:
        sock.settimeout(patience)
        for data in requests:
            try:
                sock.sendall(data)
                size = stream.read(4)
                answers.append(stream.read(int.from_bytes(size, "big")) if size else b"")
            except (ConnectionError, TimeoutError):
                answers.append(b"")
            if not answers[-1]:
                break
    return answers


def half_frames(proxy: Besieged) -> str:
    """60 of 64 MiB of a request, then the connection is closed, 14 times."""
    for _ in range(14):
        with proxy.connect(HOSTILE) as sock:
            _send(sock, struct.pack(">ihhih", 64 * MIB, 0, 8, 1, -1) + bytes(60 * MIB))
    return "14 closed"


def empty_names(proxy: Besieged) -> str:
    """Metadata requests of empty topic names, of 8 MiB and just below the limit."""
    found = []
    for size in (8 * MIB, 4 * MIB - 100):
        body = struct.pack(">i", size // 2) + bytes(size)
        found.append(answer_to(proxy, struct.pack(">ihhih", 10 + len(body), 3, 1, 1, -1) + body))
    return "answered" if any(found) else "2 refused"


def refused_names(proxy: Besieged) -> str:
    """Metadata of 8,000 topics that rules refuse."""
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(8000)]
    found = answer_to(proxy, encode_request(MetadataRequest(topics=topics), 1, 1, "hostile"))
    return "answered" if found else "closed"


def checked_names(proxy: Besieged) -> str:
    """Requests of up to 19,000 names, of which rules allow one or none."""
    names = ["t", *(f"t{number:x}" for number in range(18_998))]
    groups = ["group", *names[1:]]
    rows = [ProduceRequestPartitionProduceData(0, None)]
    refused = [ProduceRequestTopicProduceData(name, partition_data=rows) for name in names[1:9_900]]
    asked = [
        (MetadataRequest(topics=[_named(name) for name in names]), 1),
        (OffsetFetchRequest("group", topics=[OffsetFetchRequestTopic(name, [0]) for name in names]), 5),
        (DescribeGroupsRequest(groups=groups), 4),
        (FindCoordinatorRequest(coordinator_keys=groups), 4),
        (FindCoordinatorRequest(coordinator_keys=groups[1:]), 4),
        (ProduceRequest(acks=-1, timeout_ms=1000, topic_data=refused), 7),
    ]
    found = [answer_to(proxy, encode_request(request, version, 1, "hostile")) for request, version in asked]
    assert min(map(len, found)) > MIB // 10
    return f"{len(found)} answered"


def _named(name: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name)


def records_bomb(proxy: Besieged) -> str:
    """Produce v0 with a gzip wrapper of 2.5 million empty records."""
    wrapped = gzip.compress(_entry(None) * 2_500_000)
    data = ProduceRequestTopicProduceData(
        "t", partition_data=[ProduceRequestPartitionProduceData(0, _entry(wrapped, codec=1))]
    )
    request = ProduceRequest(acks=-1, timeout_ms=15_000, topic_data=[data])
    return "answered" if answer_to(proxy, encode_request(request, 0, 1, "hostile")) else "closed"


def compared_headers(proxy: Besieged) -> str:
    """A batch whose one record has 6 million empty headers, of a producer that has another one in doubt."""
    one = build_batch([Record(0, int(time.time() * 1000), None, b"x", ())])
    return _compare(proxy, "headers", bytes(one), _headers_bomb())


def headers_read_back(proxy: Besieged) -> str:
    """The same batch twice: the first is in doubt, and kproxy reads it back from the log."""
    bomb = _headers_bomb()
    return _compare(proxy, "headers read back", bomb, bomb)


def compared_records(proxy: Besieged) -> str:
    """100,000 records, nearly all equal, in doubt: then again as they were, and in another order."""
    now = int(time.time() * 1000)
    records = [Record(at, now, None, b"%d" % (at % 1000), ()) for at in range(_RECORDS)]
    in_doubt = bytes(build_batch(records, codec=GZIP))
    reversed_ = [record._replace(offset=at) for at, record in enumerate(reversed(records))]
    found = [_compare(proxy, "records", in_doubt, in_doubt)]
    found.append(_compare(proxy, "reversed", in_doubt, bytes(build_batch(reversed_, codec=GZIP))))
    return ", ".join(found)


def _compare(proxy: Besieged, client_id: str, in_doubt: bytes, batch: bytes) -> str:
    with proxy.connect(HOSTILE) as sock:
        sock.sendall(_produce(in_doubt, client_id))
        while not int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder):
            time.sleep(0.01)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, and nothing read
    return "answered" if answer_to(proxy, _produce(batch, client_id)) else "closed"


def _headers_bomb() -> bytes:
    body = b"\x01\x02x" + encode_varint(_HEADERS) + b"\0\x01" * _HEADERS
    return bytes(build_batch([RawRecord(0, 1_700_000_000_000, body)], codec=GZIP))


def _produce(batch: bytes, client_id: str) -> bytes:
    data = ProduceRequestTopicProduceData("t", partition_data=[ProduceRequestPartitionProduceData(0, batch)])
    return encode_request(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 7, 1, client_id)


def pipelines(proxy: Besieged) -> str:
    """20 connections that send 4,000 ApiVersions requests each, and read nothing before that."""
    data = struct.pack(">ihhih", 10, 18, 0, 1, -1) * 4_000

    def pour(sock: socket.socket) -> None:
        _send(sock, data)
        with suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(MIB):
                pass

    with ExitStack() as stack:
        senders = [stack.enter_context(proxy.connect(HOSTILE)) for _ in range(20)]
        threads = [Thread(target=pour, args=(sock,)) for sock in senders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return f"{len(threads)} ended"


def old_fetches(proxy: Besieged) -> str:
    """Fetch v0 and v2 of a small compressed batch that holds 400,000 records."""
    now = int(time.time() * 1000)
    name = f"old-{now}"
    batch = build_batch([Record(number, now, None, b"", ()) for number in range(400_000)], codec=GZIP)
    data = ProduceRequestTopicProduceData(name, partition_data=[ProduceRequestPartitionProduceData(0, bytes(batch))])
    written = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    part = FetchRequestFetchPartition(partition=0, partition_max_bytes=MIB)
    wanted = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchRequestFetchTopic(topic=name, partitions=[part])])
    with proxy.client() as client:
        client.create_topic(name)
    answer_to(proxy, encode_request(written, 7, 1, "hostile"))
    found = [len(answer_to(proxy, encode_request(wanted, version, 1, "hostile"))) for version in (0, 2)]
    return f"answers of {', '.join(map(str, found))} bytes"


def wide_metadata(proxy: Besieged) -> str:
    """Metadata of 5,000 partitions, ten times."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
    with proxy.client() as client:
        topics = [CreateTopicsRequestCreatableTopic("wide", 5000, 1)]
        client.any_broker().call(CreateTopicsRequest(topics, timeout_ms=10_000), 5, CreateTopicsResponse)
        found = [len(answer_to(proxy, encode_request(request, 9, 1, "hostile"))) for _ in range(10)]
        client.any_broker().call(DeleteTopicsRequest(topic_names=["wide"]), 4, DeleteTopicsResponse)
    return f"{len(found)} answers of up to {max(found)} bytes"


def _entry(value: bytes | None, codec: int = 0) -> bytes:
    size = -1 if value is None else len(value)
    body = struct.pack(">bbii", 0, codec, -1, size) + (value or b"")
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def long_names(proxy: Besieged) -> str:
    """4,800 refused topic names of 32 KB over one connection."""
    requests = (
        encode_request(MetadataRequest(topics=[_topic(number, at) for at in range(120)]), 1, 1, "hostile")
        for number in range(40)
    )
    with proxy.connect(HOSTILE) as sock:
        return f"{sum(map(bool, ask(sock, requests)))} answered"


def _topic(number: int, at: int) -> MetadataRequestTopic:
    return _named(f"{number}-{at}".ljust(_LONG, "x"))


def client_ids(proxy: Besieged) -> str:
    """200 producers with client ids of 32 KB."""
    batch = bytes(build_batch([Record(0, int(time.time() * 1000), None, b"x", ())]))
    names = (f"{number}".ljust(_LONG, "c") for number in range(200))
    return f"{sum(bool(answer_to(proxy, _produce(batch, name))) for name in names)} answered"


def many_client_ids(proxy: Besieged) -> str:
    """1,000 client ids, each of one batch, whose connections are reset."""
    return _leave(proxy, 1_000, resets=True)


def many_client_ids_in_good_order(proxy: Besieged) -> str:
    """1,000 client ids, each of one batch, whose connections are closed in good order."""
    return _leave(proxy, 1_000, resets=False)


def _leave(proxy: Besieged, count: int, *, resets: bool) -> str:
    batch = bytes(build_batch([Record(0, int(time.time() * 1000), None, b"x", ())]))
    began, answered = time.time_ns(), 0
    for number in range(count):
        with proxy.connect(HOSTILE) as sock:
            answered += bool(ask(sock, [_produce(batch, f"{began}-{number}")])[0])
            if resets:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return f"{answered} answered"


def many_transactional_ids(proxy: Besieged) -> str:
    """200 transactional ids, each of one transaction, over one connection."""
    began, ended = time.time_ns(), 0
    with proxy.connect(HOSTILE) as sock:
        for number in range(200):
            ended += _transaction(sock, f"{began}-{number}")
    return f"{ended} committed"


def _transaction(sock: socket.socket, name: str) -> bool:
    [found] = ask(sock, [encode_request(InitProducerIdRequest(name, 60_000), 4, 1, "hostile")])
    if not found:
        return False
    given = InitProducerIdResponse.decode(memoryview(found)[5:], 4, unbounded())  # after correlation id and tags
    producer = given.producer_id, given.producer_epoch
    part = AddPartitionsToTxnRequestAddPartitionsToTxnTopic("t", [0])
    joined = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[part],
    )
    record = Record(0, int(time.time() * 1000), None, b"x", ())
    batch = build_batch(
        [record], producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, is_transactional=True
    )
    data = ProduceRequestTopicProduceData("t", partition_data=[ProduceRequestPartitionProduceData(0, bytes(batch))])
    written = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=[data])
    requests = [
        encode_request(joined, 3, 2, "hostile"),
        encode_request(written, 9, 3, "hostile"),
        encode_request(EndTxnRequest(name, *producer, committed=True), 3, 4, "hostile"),
    ]
    last = ask(sock, requests)[-1]
    return last[-3:] == bytes(3)  # the error of EndTxn, and no tags


def groups(proxy: Besieged) -> str:
    """64 Heartbeats of made-up groups over each of 60 connections."""
    count = 0
    for number in range(60):
        requests = (
            encode_request(HeartbeatRequest(f"{number}-{at}".ljust(_LONG, "g"), 1, "m"), 1, 1, "hostile")
            for at in range(64)
        )
        with proxy.connect(HOSTILE) as sock:
            count += sum(map(bool, ask(sock, requests)))
    return f"{count} answered"


def held_frames(proxy: Besieged) -> str:
    """20 connections that hold 7 of 8 MiB each, while an honest client writes 300 kB."""
    half = struct.pack(">ihhih", 8 * MIB, 0, 8, 1, -1) + bytes(7 * MIB)
    batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(300_000), ())])
    with ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(proxy.connect(HOSTILE))
            sock.settimeout(0.2)
            _send(sock, half)
        began = time.monotonic()
        with proxy.client() as client:
            error = client.produce("t", 0, batch).error_code
        return f"300 kB in {time.monotonic() - began:.1f} s, error {error}"


def guesses(proxy: Besieged) -> str:
    """400 PLAIN logins with wrong passwords at once, then a right one from another address."""
    with ExitStack() as stack:
        for number in range(400):
            sock = stack.enter_context(proxy.connect(HOSTILE))
            sock.sendall(encode_request(SaslHandshakeRequest("PLAIN"), 1, 1, "hostile"))
            sock.sendall(encode_request(SaslAuthenticateRequest(f"\0alice\0guess {number}".encode()), 1, 2, "hostile"))
        began = time.monotonic()
        with proxy.connect() as sock:
            handshake = encode_request(SaslHandshakeRequest("PLAIN"), 1, 1, "honest")
            login = encode_request(SaslAuthenticateRequest(b"\0alice\0secret"), 1, 2, "honest")
            found = ask(sock, [handshake, login])
        right = len(found) == 2 and found[1][4:6] == b"\0\0"
        return f"right login {'taken' if right else 'refused'} after {time.monotonic() - began:.1f} s"


def handshakes(proxy: Besieged) -> str:
    """500 failed TLS handshakes and 300 that are begun and left."""
    for _ in range(500):
        with proxy.connect(HOSTILE) as sock:
            _send(sock, b"POST / HTTP/1.1\r\n\r\n")
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(proxy.connect(HOSTILE))
        deadline = time.monotonic() + 2 * PATIENCE
        while (left := proxy.metric("kproxy_connections")) and time.monotonic() < deadline:
            time.sleep(0.2)
    return f"{left:.0f} left open"


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except (TimeoutError, ConnectionError):  # kproxy reads no further, or has closed it
        return
