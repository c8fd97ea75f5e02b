"""The fake broker takes whatever a client sends: what makes no sense gets an error code, or ends that connection."""

import struct
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from kproxy.codec._generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestCreatePartitionsTopic,
)
from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.batch_header import assemble, read_header
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.testing.fake_broker import FakeServer, SaslRules, open_fake_cluster
from kproxy.testing.fake_broker.apis import APIS
from kproxy.testing.fake_broker.apis.topic_apis import create_partitions, create_topics
from kproxy.testing.fake_broker.consumer_groups import Group
from kproxy.testing.fake_broker.fake_api import CloseConnection
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from kproxy.testing.fake_broker.group_members import CommittedOffset
from kproxy.testing.fake_broker.logins import Logins, Refused
from kproxy.testing.fake_broker.markers import expire_transactions, write_markers
from kproxy.testing.fake_broker.partition_log import PartitionLog
from kproxy.testing.fake_broker.transactional_ids import LAST_EPOCH, TransactionalId
from tests.testing.fake_broker.calls import NOW, TOPIC, call_to, two_brokers
from verification.hostile.mutations import frames

LOGIN = SaslRules(users={"alice": "secret"}, max_reauth_ms=1000)
#: How many frames each of the fuzz tests sends; about two thirds of them are of APIs that the fake broker speaks.
FRAMES = 3000


@asynccontextmanager
async def _cluster(brokers: int, config: ClusterConfig | None = None) -> AsyncIterator[FakeServer]:
    def virtual_ms() -> int:
        return int(trio.current_time() * 1000)

    async with open_fake_cluster(brokers, clock=virtual_ms, config=config, listen=False) as server:
        yield server


async def _answered(server: FakeServer, frame: bytes, connection: int) -> str:
    """How a frame ended; a request that waits is left after a second. Any other exception fails the test."""
    with trio.move_on_after(1):
        try:
            answer = await server.answer(frame, 1, connection, "127.0.0.1")
        except (CloseConnection, RemoteProtocolError):
            return "closed"
        return "silent" if answer is None else "answered"
    return "waiting"


async def _flooded(server: FakeServer, seed: int, connections: int = 1000) -> Counter[str]:
    """Sends the frames of a seed, and creates the topic ``t`` again where a frame has deleted it."""
    found: Counter[str] = Counter()
    for number, frame in enumerate(frames(seed, FRAMES)):
        if frame.api_key in APIS:
            if number % 50 == 0:
                server.cluster.create_topic(TOPIC)
            found[await _answered(server, frame.data[4:], 1 + number % connections)] += 1
    return found


def test_the_frames_are_of_every_api_and_version_that_is_served() -> None:
    sent = {(frame.api_key, frame.version) for frame in frames(1, FRAMES)}
    assert sent >= {
        (key, version) for key, api in APIS.items() for version in range(api.versions[0], api.versions[1] + 1)
    }


@pytest.mark.parametrize("seed", [1, 2])
async def test_mutated_frames_raise_nothing_but_what_closes_their_connection(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with _cluster(1) as server:
        found = await _flooded(server, seed)
    assert found["answered"] > found["closed"] > 0


async def test_mutated_frames_to_a_cluster_with_faults(autojump_clock: trio.testing.MockClock) -> None:
    async with _cluster(3) as server:
        server.cluster.create_topic(TOPIC, 3, 3)
        server.cluster.hold_markers()
        await _flooded(server, 3)
        server.cluster.disk_full(2)
        server.cluster.release_markers()
        await _flooded(server, 4)
        server.cluster.disk_full(1)
        await _flooded(server, 5)


async def test_mutated_frames_where_a_login_is_wanted(autojump_clock: trio.testing.MockClock) -> None:
    async with _cluster(1, ClusterConfig(sasl=LOGIN)) as server:
        found = await _flooded(server, 6, connections=3)
    assert found["answered"]


@pytest.mark.parametrize("frame", [b"", b"\0\3", struct.pack(">hhih", 3, 1, 1, 50), struct.pack(">hhi", -1, -1, -1)])
async def test_a_frame_without_a_whole_header_closes_its_connection(
    frame: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    async with _cluster(1) as server:
        assert await _answered(server, frame, 1) == "closed"


async def test_a_request_of_too_many_elements_closes_its_connection(autojump_clock: trio.testing.MockClock) -> None:
    async with _cluster(1) as server:
        names = struct.pack(">hhihi", ApiKey.METADATA, 1, 1, -1, 300_000) + bytes(600_000)
        assert await _answered(server, names, 1) == "closed"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min.insync.replicas", "many"),
        ("min.insync.replicas", "0"),
        ("max.message.bytes", ""),
        ("max.message.bytes", "1e3"),
        ("retention.ms", None),
        ("retention.ms", "9" * 30),
        ("compression.type", "rar"),
        ("cleanup.policy", "none"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("y" * 32_767, "1"),
        ("retention.bytes", "y" * 32_767),
    ],
)
async def test_a_topic_with_a_setting_that_makes_no_sense_is_not_created(name: str, value: str | None) -> None:
    cluster = two_brokers()
    configs = [CreateTopicsRequestCreatableTopicConfig(name, value)]
    topics = [CreateTopicsRequestCreatableTopic("new", 1, 1, configs=configs)]
    [result] = (await create_topics.handle(call_to(cluster, 1, CreateTopicsRequest(topics)))).topics
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert len(result.error_message or "") < 1000
    assert "new" not in cluster.topics


async def test_more_partitions_than_kafka_makes_for_one_request_are_refused() -> None:
    cluster = two_brokers()
    topics = [CreateTopicsRequestCreatableTopic(f"new{number}", 4000, 1) for number in range(3)]
    created = await create_topics.handle(call_to(cluster, 1, CreateTopicsRequest(topics)))
    assert {result.error_code for result in created.topics} == {ErrorCode.POLICY_VIOLATION}
    grown = await create_partitions.handle(call_to(cluster, 1, _grows(2**31 - 1)))
    assert grown.results[0].error_code == ErrorCode.POLICY_VIOLATION
    assert len(cluster.topics[TOPIC].partitions) == 1


async def test_no_partition_is_added_where_no_broker_can_take_it() -> None:
    cluster = two_brokers()
    for broker_id in cluster.brokers:
        cluster.disk_full(broker_id)
    grown = await create_partitions.handle(call_to(cluster, 1, _grows(3)))
    assert grown.results[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def _grows(count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest([CreatePartitionsRequestCreatePartitionsTopic(TOPIC, count)])


def _damaged(number: int, value: int, records: Sequence[Record]) -> memoryview:
    """A batch with one byte of its records changed, and the checksum of what it is then."""
    data = build_batch(records)
    header, payload = read_header(data), bytearray(data[61:])
    payload[number] = value
    return memoryview(assemble(header, bytes(payload)))


@pytest.mark.parametrize(
    ("number", "value", "error"),
    [
        (0, 2, ErrorCode.INVALID_RECORD),  # the record's length
        (3, 8, ErrorCode.INVALID_RECORD),  # its offset
        (2, 2, ErrorCode.INVALID_TIMESTAMP),  # its time, beyond the largest
    ],
)
def test_records_that_nobody_can_read_again_are_refused(number: int, value: int, error: ErrorCode) -> None:
    log = PartitionLog({})
    batch = _damaged(number, value, [Record(0, 2**63 - 1, None, b"x", ())])
    assert log.append(batch, 0, NOW).error is error
    assert log.end_offset == 0


def test_the_epoch_of_a_producer_stays_within_16_bits() -> None:
    cluster = two_brokers()
    owner = cluster.transactional_ids["tx"] = TransactionalId(1, LAST_EPOCH + 1, timeout_ms=0)
    owner.join(NOW, [(TOPIC, 0)])
    expire_transactions(cluster)
    assert owner.epoch == LAST_EPOCH + 1


def test_a_partition_of_a_transaction_that_its_topic_no_longer_has_gets_no_marker() -> None:
    cluster = two_brokers()
    cluster.create_topic("large", 3)
    owner = cluster.transactional_ids["tx"] = TransactionalId(1, 0)
    owner.join(NOW, [("large", 2)])
    cluster.delete_topic("large")
    cluster.create_topic("large", 1)
    owner.end(1, 0, committed=True)
    write_markers(cluster)
    assert not owner.prepared


def test_a_transaction_commits_no_offsets_of_a_topic_that_was_deleted_meanwhile() -> None:
    group = Group("group")
    group.commit_pending(1, (TOPIC, 0), CommittedOffset(5, -1, ""))
    group.forget_topic(TOPIC)
    group.end_transaction(1, committed=True)
    assert group.offsets == {}


@pytest.mark.parametrize("mechanism", LOGIN.mechanisms)
@pytest.mark.parametrize("token", [b"", b"\0", b"\xff\0\0", b"n,,", b"n,,n=a,r=b", b"\0a\0b\0c", b"\1", b"a,p=%%%"])
def test_a_token_that_makes_no_sense_is_refused(mechanism: str, token: bytes) -> None:
    logins = Logins(LOGIN)
    logins.admits(1, ApiKey.SASL_HANDSHAKE, 0)
    assert logins.begin(1, mechanism) == ErrorCode.NONE
    for _ in range(3):
        try:
            logins.take(1, token, 0)
        except Refused:
            continue
    assert not logins.admits(1, ApiKey.PRODUCE, 0)
