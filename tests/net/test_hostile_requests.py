"""Well-formed requests that would cost far more than they are long, against kproxy as a process.

Processor time stands for the longest stall of the loop: it is a bound of it, and other processes do not change it.
"""

import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest

from kproxy.budget import unbounded
from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import build_batch
from kproxy.codec.header import encode_request, response_header_size
from kproxy.codec.messages import Message, response_class
from tests.codec.message_sets import entry, wrapper
from tests.net.harness import records
from verification.hostile import attacks
from verification.hostile.attacks import HOSTILE, answer_to
from verification.hostile.pings import Pings
from verification.hostile.setups import Attack
from verification.hostile.target import Besieged, besieged, wait_for

MIB = 1 << 20


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with besieged(tmp_path_factory.mktemp("kproxy")) as running:
        yield running


@contextmanager
def costs_at_most(proxy: Besieged, seconds: float, memory: int) -> Iterator[None]:
    """Processor time and bytes of memory that kproxy may use for the block; then it still serves others."""
    used, held = proxy.processor_seconds, proxy.memory
    yield
    assert proxy.processor_seconds - used < seconds
    wait_for(lambda: proxy.memory - held < memory)
    proxy.serves_others()


def ask(proxy: Besieged, message: Message, version: int) -> Message:
    frame = answer_to(proxy, encode_request(message, version, 1, "honest"))
    found = response_class(message.API_KEY)
    at = response_header_size(message.API_KEY, version, frame)
    return found.decode(frame, version, unbounded(), at)


def framed(api_key: int, version: int, body: bytes) -> bytes:
    return struct.pack(">ihhih", 10 + len(body), api_key, version, 1, -1) + body


@pytest.mark.parametrize("size", [8 * MIB, 4 * MIB - 100, 300_000])
def test_metadata_of_empty_names(proxy: Besieged, size: int) -> None:
    count = size // 2
    with costs_at_most(proxy, 1.0, 10 * MIB):
        assert answer_to(proxy, framed(3, 1, struct.pack(">i", count) + bytes(2 * count))) == b""


def test_tagged_fields_of_an_api_versions_request(proxy: Besieged) -> None:
    tags = b"".join(bytes([0x80 | number & 0x7F, 0x80 | number >> 7 & 0x7F, number >> 14, 0]) for number in range(9000))
    with costs_at_most(proxy, 0.5, 10 * MIB):
        assert answer_to(proxy, framed(18, 3, b"\0\1\1" + b"\xa8\x46" + tags)) == b""


@pytest.mark.parametrize("topic", [b"\0\1t", b"\0\0"])
def test_a_produce_request_of_empty_partitions(proxy: Besieged, topic: bytes) -> None:
    count = MIB
    body = struct.pack(">hii", -1, 1000, 1) + topic + struct.pack(">i", count) + bytes(8 * count)
    with costs_at_most(proxy, 1.0, 10 * MIB):
        assert answer_to(proxy, framed(0, 2, body)) == b""


@pytest.mark.parametrize("records", [2_500_000, 400_000])
def test_a_small_wrapper_with_millions_of_empty_records(proxy: Besieged, records: int) -> None:
    """Once a stall of 20 s: others are answered many times while it is converted, and no step of it takes long."""
    bomb = wrapper(1, [entry(0, None, None, magic=0) * records], magic=0)
    data = ProduceRequestTopicProduceData("t", partition_data=[ProduceRequestPartitionProduceData(0, bomb)])
    frame = encode_request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 0, 1, "bomb")
    assert len(frame) < 200_000
    proxy.longest_stretch.seconds = 0.0
    # It takes 50 MiB for a moment. Of these a few pages may stay in use by small objects that happen to lie there.
    with costs_at_most(proxy, 8.0, 20 * MIB), Pings(proxy) as pings:
        answer_to(proxy, frame)
    assert pings.count > 20
    assert proxy.longest_stretch.seconds < 1.0


@pytest.mark.parametrize("attack", [attacks.compared_headers, attacks.headers_read_back])
def test_millions_of_headers_that_are_compared(proxy: Besieged, attack: Attack) -> None:
    """Once 4.4 s and 2.8 GB."""
    proxy.longest_stretch.seconds = 0.0
    with costs_at_most(proxy, 1.0, 40 * MIB):
        assert attack(proxy) == "answered"
    assert proxy.longest_stretch.seconds < 0.3


def test_many_connections_that_pipeline_thousands_of_requests_each(proxy: Besieged) -> None:
    """Once a stall of 8 s with 100,000 each."""
    proxy.longest_stretch.seconds = 0.0
    with costs_at_most(proxy, 60.0, 40 * MIB), Pings(proxy) as pings:
        attacks.pipelines(proxy)
    assert pings.count > 20
    assert proxy.longest_stretch.seconds < 0.3


def test_large_requests_that_come_at_once_wait_for_memory(proxy: Besieged) -> None:
    """Once 469 MB were held for 150 of them, where kproxy stops to read at 75 MB."""
    names = [f"topic-{number}-of-a-large-cluster" for number in range(19_000)]
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
    frame, peak = encode_request(asked, 4, 1, "many"), 0.0
    with ExitStack() as stack:
        answered: list[bytes] = []
        threads = [
            Thread(target=lambda sock: answered.extend(attacks.ask(sock, [frame])), args=(sock,))
            for sock in [stack.enter_context(proxy.connect(HOSTILE)) for _ in range(100)]
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            peak = max(peak, proxy.metric("kproxy_buffered_bytes"))
    assert len(list(filter(None, answered))) == 100
    assert peak < 1.5 * proxy.metric("kproxy_buffered_bytes_limit")
    proxy.serves_others()


def test_large_requests_of_honest_clients_are_served(proxy: Besieged) -> None:
    names = [f"topic-{number}-of-a-large-cluster" for number in range(10_000)]
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
    answer = ask(proxy, asked, 4)
    assert len(answer.topics) == 10_000  # type: ignore[attr-defined]
    topics = [OffsetFetchRequestTopic("t", list(range(200_000)))]
    answer = ask(proxy, OffsetFetchRequest("group", topics=topics), 5)
    assert len(answer.topics[0].partitions) == 200_000  # type: ignore[attr-defined]


def test_a_produce_request_as_long_as_may_be_is_read_whole(proxy: Besieged) -> None:
    """The broker may find its batch too large; it is asked."""
    batch = build_batch(records(bytes(90 * MIB)))
    data = ProduceRequestTopicProduceData("t", partition_data=[ProduceRequestPartitionProduceData(0, bytes(batch))])
    answer = ask(proxy, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 7)
    assert len(answer.responses) == 1  # type: ignore[attr-defined]


# -- names

RULES = """
rules:
  - name: the witness
    permission: allow
    principals: ["*"]
    client.ids: [witness]
    operations: [All]
    topics: [t]
    cluster: true
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """With rules, and with transactions that kproxy decides."""
    directory = tmp_path_factory.mktemp("guarded")
    (directory / "acl.yaml").write_text(RULES)
    with besieged(directory, f"--acl-file={directory / 'acl.yaml'}", "--transactions-home=kproxy") as running:
        yield running


def test_metadata_of_8000_topics_that_are_refused(guarded: Besieged) -> None:
    names = [f"t{number}" for number in range(8000)]
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    with costs_at_most(guarded, 1.5, 10 * MIB):
        assert len(ask(guarded, asked, 1).topics) == 8000  # type: ignore[attr-defined]


def test_long_names_that_are_refused_are_not_kept(guarded: Besieged) -> None:
    with costs_at_most(guarded, 5.0, 10 * MIB), guarded.connect() as sock, sock.makefile("rb") as stream:
        for number in range(40):
            names = [f"{number}-{at}-".ljust(32_700, "x") for at in range(120)]
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
            sock.sendall(encode_request(asked, 1, 1, "names"))
            assert stream.read(int.from_bytes(stream.read(4), "big"))


def test_long_client_ids_are_not_kept(proxy: Besieged) -> None:
    data = ProduceRequestTopicProduceData(
        "t", partition_data=[ProduceRequestPartitionProduceData(0, bytes(build_batch(records(b"x"))))]
    )
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    with costs_at_most(proxy, 20.0, 10 * MIB):
        for number in range(600):
            assert answer_to(proxy, encode_request(request, 7, 1, f"{number}".ljust(32_700, "x")))


def test_groups_of_connections_that_have_ended_are_kept_within_bounds(guarded: Besieged) -> None:
    with costs_at_most(guarded, 10.0, 10 * MIB):
        for number in range(60):
            with guarded.connect() as sock, sock.makefile("rb") as stream:
                for at in range(64):
                    group = f"{number}-{at}".ljust(32_700, "g")
                    sock.sendall(encode_request(HeartbeatRequest(group, 1, "m"), 1, 1, "group"))
                    assert stream.read(int.from_bytes(stream.read(4), "big"))
