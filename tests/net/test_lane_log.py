"""The lane log: what was acknowledged is known to the next kproxy with the same instance.id, whatever brokers do."""

from collections.abc import Callable
from typing import Any

import pytest
import structlog
import trio

from kproxy.codec._generated.create_topics import CreateTopicsResponse, CreateTopicsResponseCreatableTopicResult
from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.dedup.lane_record import encode_key, encode_value
from kproxy.net.lane_topic import TOPIC, partition_of
from kproxy.testing.fake_broker import Answer, Close, CloseAfter, Edit, FakeCluster, open_fake_cluster
from tests.net.harness import eventually, proxied
from tests.net.lane_harness import ONE, TWO, entries, instance, lane


def _produce_error(error: int) -> Message:
    part = ProduceResponsePartitionProduceResponse(error_code=error)
    return ProduceResponse(responses=[ProduceResponseTopicProduceResponse(name=TOPIC, partition_responses=[part])])


def _append(fake: FakeCluster, key: bytes | None, value: bytes | None) -> None:
    log = fake.topics[TOPIC].partitions[partition_of("me", 4)].log
    log.append(memoryview(build_batch([Record(0, 0, key, value)])), 0, 0)


async def test_the_topic_is_made_as_configured() -> None:
    async with open_fake_cluster(3) as fake, instance(fake.bootstrap):
        topic = fake.cluster.topics[TOPIC]
        assert len(topic.partitions) == 4
        assert all(len(partition.replicas) == 3 for partition in topic.partitions)
        assert topic.config == {
            "cleanup.policy": "compact,delete",
            "message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": "2",
            "retention.ms": "604800000",
            "segment.bytes": "1048576",
            "segment.ms": "691200000",
            "unclean.leader.election.enable": "false",
        }


async def test_fewer_brokers_mean_fewer_replicas_and_a_warning() -> None:
    with structlog.testing.capture_logs() as lines:
        async with open_fake_cluster(1) as fake, instance(fake.bootstrap):
            topic = fake.cluster.topics[TOPIC]
            assert len(topic.partitions[0].replicas) == 1
            assert topic.config["min.insync.replicas"] == "1"
    assert [line["wanted"] for line in lines if line["log_level"] == "warning"] == [3]


@pytest.mark.parametrize(("policy", "warnings"), [("compact", 1), ("delete", 1), ("delete,compact", 0)])
async def test_a_topic_that_is_there_is_used_as_it_is(policy: str, warnings: int) -> None:
    with structlog.testing.capture_logs() as lines:
        async with open_fake_cluster(1) as fake:
            settings = {"cleanup.policy": policy, "message.timestamp.type": "LogAppendTime"}
            fake.cluster.create_topic(TOPIC, 4, 1, settings)
            for _ in range(2):
                async with instance(fake.bootstrap) as kproxy:
                    await kproxy.log.record(lane(1))
                    assert kproxy.log.enabled
            assert len(entries(fake.cluster)) == 2
            assert fake.cluster.topics[TOPIC].config == settings
    assert len([line for line in lines if "never return" in line["event"]]) == 2 * warnings


async def test_what_was_recorded_is_known_to_the_next_of_the_same_instance_id() -> None:
    async with open_fake_cluster(2) as fake:
        async with instance(fake.bootstrap) as kproxy:
            assert kproxy.log.former(ONE) == []
            for record in (lane(1), lane(2), lane(3, TWO), lane(1, epoch=32)):
                await kproxy.log.record(record)
            assert kproxy.log.former(ONE) == []
        async with instance(fake.bootstrap, instance_id="another") as kproxy:
            assert kproxy.log.former(ONE) == []
        async with instance(fake.bootstrap) as kproxy:
            assert kproxy.log.former(ONE) == [lane(2), lane(1, epoch=32)]
            assert kproxy.log.former(TWO) == [lane(3, TWO)]


def test_the_partition_of_an_instance_never_changes() -> None:
    assert [partition_of(name, 16) for name in ("me", "kproxy-0", "kproxy-1", "gateway.example.org")] == [2, 6, 0, 4]


async def test_what_this_process_has_recorded_is_none_of_its_former_selfs() -> None:
    """Else lanes in use would count as left by a killed process: be fenced, given back, and leased once more."""
    async with open_fake_cluster(1) as fake, instance(fake.bootstrap) as me:
        await me.log.record(lane(7))
        await me.log.epochs()  # reads this instance's part of the log again
        assert me.log.former(ONE) == []
        assert await me.log.forget() == []


async def test_a_record_is_acknowledged_before_it_is_done() -> None:
    arrived, go = trio.Event(), trio.Event()

    async def hold(call: Any) -> None:
        assert call.request.acks == -1
        arrived.set()
        await go.wait()

    async with open_fake_cluster(1) as fake, instance(fake.bootstrap) as kproxy:
        fake.cluster.control(ApiKey.PRODUCE, hold, times=1)
        done = trio.Event()

        async def record() -> None:
            await kproxy.log.record(lane(1))
            done.set()

        kproxy.nursery.start_soon(record)
        await arrived.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert not done.is_set()
        go.set()
        with trio.fail_after(120):
            await done.wait()
        assert len(entries(fake.cluster)) == 1


async def test_many_at_once_share_a_batch() -> None:
    asked: list[int] = []
    async with open_fake_cluster(1) as fake, instance(fake.bootstrap) as kproxy:
        await kproxy.log.record(lane(0))
        fake.cluster.control(ApiKey.PRODUCE, lambda call: asked.append(call.version))
        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(kproxy.log.record, lane(number))
        assert len(entries(fake.cluster)) == 301
        assert len(asked) <= 2


async def test_a_batch_that_is_too_large_is_parted() -> None:
    async with open_fake_cluster(1) as fake:
        fake.cluster.create_topic(TOPIC, 4, 1, {"cleanup.policy": "compact", "max.message.bytes": "1000"})
        async with instance(fake.bootstrap) as kproxy:
            async with trio.open_nursery() as nursery:
                for number in range(40):
                    nursery.start_soon(kproxy.log.record, lane(number))
            assert len(entries(fake.cluster)) == 40
            assert kproxy.log.enabled


@pytest.mark.parametrize(
    "fault",
    [
        lambda _: Close(),
        lambda _: CloseAfter(),
        lambda _: Answer(_produce_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        lambda _: Answer(_produce_error(ErrorCode.NOT_ENOUGH_REPLICAS)),
        lambda _: Answer(_produce_error(ErrorCode.REQUEST_TIMED_OUT)),
        lambda _: Answer(_produce_error(ErrorCode.CORRUPT_MESSAGE)),
        lambda _: Answer(_produce_error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)),
        lambda _: Answer(ProduceResponse()),
    ],
)
async def test_it_is_sent_again_until_the_answer_is_definite_and_is_there_once(fault: Callable[[Any], Any]) -> None:
    async with open_fake_cluster(2) as fake, instance(fake.bootstrap) as kproxy:
        await kproxy.log.record(lane(1))
        fake.cluster.control(ApiKey.PRODUCE, fault, times=3)
        with trio.fail_after(120):
            await kproxy.log.record(lane(2))
        assert len(entries(fake.cluster)) == 2
        assert kproxy.stats.upstream.errors["producer_state_log"] == 3
        await kproxy.log.record(lane(3))
        assert len(entries(fake.cluster)) == 3


async def test_the_leader_may_move_or_die() -> None:
    async with open_fake_cluster(3) as fake:
        async with instance(fake.bootstrap) as kproxy:
            index = partition_of("me", 4)
            for number in range(4):
                partition = fake.cluster.topics[TOPIC].partitions[index]
                fake.cluster.move_leader(TOPIC, index, partition.leader % 3 + 1)
                with trio.fail_after(120):
                    await kproxy.log.record(lane(number))
            await fake.stop_broker(fake.cluster.topics[TOPIC].partitions[index].leader)
            with trio.fail_after(120):
                await kproxy.log.record(lane(9))
        async with instance(fake.bootstrap) as successor:
            assert successor.log.former(ONE) == [lane(0), lane(1), lane(2), lane(3), lane(9)]


async def test_a_topic_that_was_deleted_is_made_again_with_what_is_in_use() -> None:
    with structlog.testing.capture_logs() as lines:
        async with open_fake_cluster(1) as fake, instance(fake.bootstrap) as kproxy:
            await kproxy.log.record(lane(1))
            fake.cluster.delete_topic(TOPIC)
            with trio.fail_after(120):
                await kproxy.log.record(lane(2))
                await kproxy.log.record(lane(3))
            assert {key for _, key, _ in entries(fake.cluster)} == {encode_key(lane(nth).key) for nth in (1, 2, 3)}
    assert any("was deleted" in line["event"] for line in lines)


async def test_brokers_that_are_down_are_waited_for() -> None:
    async with open_fake_cluster(1) as fake:
        async with instance(fake.bootstrap) as kproxy:
            await kproxy.log.record(lane(1))
        port = fake.cluster.brokers[1].port
        await fake.stop_broker(1)
        async with instance(f"127.0.0.1:{port}", opened=False) as kproxy:
            kproxy.nursery.start_soon(kproxy.open)
            await eventually(lambda: kproxy.stats.upstream.errors.get("producer_state_log", 0) > 2)
            assert not kproxy.log.opened.is_set()
            await fake.start_broker(1)
            with trio.fail_after(120):
                await kproxy.log.opened.wait()
            assert kproxy.log.former(ONE) == [lane(1)]


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH])
async def test_a_start_survives_lost_connections(api: ApiKey) -> None:
    async with open_fake_cluster(1) as fake:
        async with instance(fake.bootstrap) as kproxy:
            await kproxy.log.record(lane(1))
        fake.cluster.control(api, lambda _: Close(), times=2)
        async with instance(fake.bootstrap) as kproxy:
            assert kproxy.log.former(ONE) == [lane(1)]


async def test_long_logs_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.net.topic_reader._FETCH_BYTES", 1000)
    monkeypatch.setattr("kproxy.net.topic_reader._PROGRESS_SECONDS", 0.0)
    async with open_fake_cluster(1) as fake:
        async with instance(fake.bootstrap) as kproxy:
            for number in range(30):
                await kproxy.log.record(lane(number))
        with structlog.testing.capture_logs() as lines:
            async with instance(fake.bootstrap) as kproxy:
                assert kproxy.log.former(ONE) == [lane(number) for number in range(30)]
        assert len([line for line in lines if line["event"].startswith("reading")]) > 3


async def test_entries_of_newer_versions_are_kept_told_of_and_not_used() -> None:
    async with open_fake_cluster(1) as fake:
        async with instance(fake.bootstrap) as kproxy:
            await kproxy.log.record(lane(1))
        newer = b"\0\7" + b"what the future holds"
        _append(fake.cluster, encode_key(lane(2).key), newer)
        _append(fake.cluster, newer, encode_value(lane(3)))
        _append(fake.cluster, b"", None)
        with structlog.testing.capture_logs() as lines:
            async with instance(fake.bootstrap) as kproxy:
                assert kproxy.log.former(ONE) == [lane(1)]
                await kproxy.log.forget()
        assert [(line["newer"], line["damaged"]) for line in lines if "newer" in line] == [(2, 1)]
        assert len(entries(fake.cluster)) == 4


def _refused(error: int) -> Message:
    return CreateTopicsResponse(topics=[CreateTopicsResponseCreatableTopicResult(name=TOPIC, error_code=error)])


def _edit(error: int) -> Callable[[Any], Edit]:
    def change(message: Any) -> None:
        for topic in getattr(message, "responses", None) or message.topics:
            for row in getattr(topic, "partition_responses", None) or topic.partitions or [topic]:
                row.error_code = error

    return lambda _: Edit(change)


@pytest.mark.parametrize(
    ("api", "fault"),
    [
        (ApiKey.CREATE_TOPICS, lambda _: Answer(_refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))),
        (ApiKey.CREATE_TOPICS, lambda _: Answer(_refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))),
        (ApiKey.CREATE_TOPICS, lambda _: Answer(_refused(ErrorCode.POLICY_VIOLATION))),
        (ApiKey.LIST_OFFSETS, _edit(ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
        (ApiKey.PRODUCE, lambda _: Answer(_produce_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))),
        (ApiKey.PRODUCE, lambda _: Answer(_produce_error(ErrorCode.INVALID_RECORD))),
    ],
)
async def test_a_refusal_is_reported_once_and_kproxy_continues_without(
    api: ApiKey, fault: Callable[[Any], Any]
) -> None:
    with structlog.testing.capture_logs() as lines:
        async with open_fake_cluster(3) as fake:
            fake.cluster.control(api, fault)
            async with instance(fake.bootstrap) as kproxy:
                with trio.fail_after(120):
                    async with trio.open_nursery() as nursery:
                        for number in range(3):
                            nursery.start_soon(kproxy.log.record, lane(number))
                    await kproxy.log.record(lane(9))
                assert not kproxy.log.enabled
                assert kproxy.stats.upstream.errors["producer_state_log_refused"] == 1
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert len(warnings) == 1
    assert TOPIC in warnings[0]["grant"]
    assert "Write" in warnings[0]["grant"]


@pytest.mark.parametrize("error", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_REPLICATION_FACTOR])
async def test_a_creation_that_may_yet_go_well_is_tried_again(error: int) -> None:
    async with open_fake_cluster(1) as fake:
        fake.cluster.control(ApiKey.CREATE_TOPICS, lambda _: Answer(_refused(error)), times=2)
        async with instance(fake.bootstrap) as kproxy:
            assert kproxy.log.enabled
        assert TOPIC in fake.cluster.topics


async def test_without_crash_recovery_nothing_is_made_or_read() -> None:
    async with open_fake_cluster(1) as fake, instance(fake.bootstrap, crash_recovery_enable=False) as kproxy:
        await kproxy.log.record(lane(1))
        assert kproxy.log.former(ONE) == []
        assert kproxy.log.opened.is_set()
        assert fake.cluster.topics == {}


async def test_what_is_forgotten_is_handed_over_once_and_lanes_without_epochs_leave_the_log() -> None:
    async with open_fake_cluster(1) as fake:
        spent = [lane(3, epoch=32_735, last=32_766), lane(4, epoch=32_702, last=32_733)]
        async with instance(fake.bootstrap) as kproxy:
            for record in (lane(1), lane(2, TWO, epoch=32_701, last=32_732), *spent):
                await kproxy.log.record(record)
        async with instance(fake.bootstrap) as kproxy:
            assert await kproxy.log.forget() == [lane(1), lane(2, TWO, epoch=32_701, last=32_732)]
            assert await kproxy.log.forget() == []
            assert kproxy.log.former(ONE) == []
        async with instance(fake.bootstrap) as kproxy:
            assert kproxy.log.former(ONE) == [lane(1)]
        tombstones = [key for _, key, value in entries(fake.cluster) if value is None]
        assert sorted(tombstones, key=str) == sorted((encode_key(record.key) for record in spent), key=str)


async def test_the_topic_is_known_by_its_id_too() -> None:
    async with proxied(crash_recovery_enable=True) as proxy:
        await eventually(lambda: TOPIC in proxy.brokers.topics)
        made = proxy.brokers.topics[TOPIC].topic_id
        await eventually(lambda: made in proxy.cluster.map.own_topic_ids)
