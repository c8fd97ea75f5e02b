"""Entries of instances that never return end; those of instances that live do not, however long they live.

What would break it: a lease in use is deleted, or ignored by a reader, because it was not written again in time,
because a clock is wrong, or because the log could not be written; a dead lease is fenced for ever.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import structlog
import trio

from kproxy.codec._generated.describe_configs import DescribeConfigsResponse
from kproxy.codec._generated.list_offsets import ListOffsetsResponse
from kproxy.codec._generated.produce import ProduceResponse
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.dedup.lane_record import encode_key
from kproxy.net import lane_log, socket_network
from kproxy.net.fleet import Fleet
from kproxy.net.lane_topic import TOPIC, partition_of
from kproxy.testing.fake_broker import Call, Close, Edit, FakeServer, open_fake_cluster
from kproxy.txn.ids import Producer
from kproxy.txn.stored_epochs import LastEnd, StoredEpoch
from tests.net.harness import errors_of, produce, proxied, values_in
from tests.net.lane_harness import ONE, TWO, Instance, entries, instance, lane, lanes

pytestmark = pytest.mark.idle_clock

DAY = 86_400.0
WEEK = 7 * DAY
COMPACTED = {"cleanup.policy": "compact"}
#: For outages of days.
PATIENT: dict[str, Any] = {"retry_backoff_ms": 600_000, "retry_backoff_max_ms": 600_000}


@pytest.fixture(autouse=True)
def polls_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of the same name are not the subject here, and weeks have many polls."""
    monkeypatch.setattr(lane_log, "_WATCH_MS", int(DAY * 1000))


@asynccontextmanager
async def brokers() -> AsyncIterator[FakeServer]:
    """One broker; its clock and those of the instances go by the virtual time."""
    began = time() - trio.current_time()
    clock = SimpleNamespace(time=lambda: began + trio.current_time())
    with patch.object(socket_network, "time", clock):
        async with open_fake_cluster(1, clock=lambda: int(clock.time() * 1000)) as fake:
            yield fake


def is_there(fake: FakeServer, key: bytes) -> bool:
    """Whether the topic has an entry, once the broker has deleted what it may."""
    fake.cluster.apply_retention()
    return key in {found for _, found, _ in entries(fake.cluster)}


async def seen_elsewhere(reader: Instance) -> list[int]:
    """The producer ids that another instance knows of."""
    await reader.log.look()
    return [known.producer_id for known in reader.log.elsewhere(ONE)]


@pytest.mark.parametrize("reads", ["before", "after"])
async def test_what_an_instance_that_never_returns_held_ends_with_the_retention(reads: str) -> None:
    async with brokers() as fake, instance(fake.bootstrap, instance_id="other") as other:
        async with lanes(fake.bootstrap) as (_, leases):
            held = await leases.lease(ONE)
        if reads == "before":
            assert await seen_elsewhere(other) == [held.producer_id]
        await trio.sleep(WEEK - 60)
        await other.log.record(lane(1)._replace(instance_id="other"))  # the response says what time it is at the broker
        assert await seen_elsewhere(other) == [held.producer_id]
        await trio.sleep(120)
        if reads == "before":
            assert other.log.elsewhere(ONE) == []  # without another look
        assert await seen_elsewhere(other) == []
        assert len(entries(fake.cluster)) == 2  # no cleaner has been here


async def test_nor_does_its_next_process_know_it() -> None:
    async with brokers() as fake:
        async with lanes(fake.bootstrap) as (_, leases):
            old = await leases.lease(ONE)
        await trio.sleep(4 * DAY)
        async with instance(fake.bootstrap) as kproxy:
            assert [known.producer_id for known in kproxy.log.former(ONE)] == [old.producer_id]
            await kproxy.log.record(lane(1))
        await trio.sleep(4 * DAY)
        async with instance(fake.bootstrap) as kproxy:
            await kproxy.log.record(lane(2))  # the response says what time it is at the broker
            assert [known.producer_id for known in kproxy.log.former(ONE)] == [lane(1).producer_id]
            assert [known.producer_id for known in await kproxy.log.forget()] == [lane(1).producer_id]


async def test_a_lease_in_use_is_never_missed_however_long_it_lasts() -> None:
    async with brokers() as fake, instance(fake.bootstrap, instance_id="other") as other:
        async with lanes(fake.bootstrap) as (_, leases):
            held = await leases.lease(ONE)
            recorded = leases._leases[held].recorded_ms
            for _ in range(60):
                await trio.sleep(DAY / 2)
                assert await seen_elsewhere(other) == [held.producer_id]
                [known] = other.log.elsewhere(ONE)
                assert known.recorded_ms == recorded
                assert len(entries(fake.cluster)) <= 10
                fake.cluster.apply_retention()
        await trio.sleep(DAY)  # it was killed; so long, at least, it is known
        assert await seen_elsewhere(other) == [held.producer_id]
        async with instance(fake.bootstrap) as kproxy:
            assert [known.producer_id for known in kproxy.log.former(ONE)] == [held.producer_id]


async def test_what_was_given_back_is_not_renewed() -> None:
    async with brokers() as fake, lanes(fake.bootstrap) as (kproxy, leases):
        lane = await leases.lease(ONE)
        leases.give_back(lane)
        await leases.lease(TWO)
        await trio.sleep(WEEK + 60)
        assert not is_there(fake, encode_key(leases._key(lane)))
        assert kproxy.log.usable_until(leases._key(lane)) == float("inf")


async def test_what_was_abandoned_with_an_open_batch_stays_unreturned_until_it_expires() -> None:
    async with (
        brokers() as fake,
        instance(fake.bootstrap, instance_id="other") as other,
        lanes(fake.bootstrap, fleet_retries_enable=True) as (_, leases),
    ):
        lane = await leases.lease(ONE)
        lane.track((b"t", 0)).accept(memoryview(build_batch([Record(0, 0, None, b"x")])), 1, 0.0)
        await trio.sleep(6 * DAY)
        leases.give_back(lane)
        await trio.sleep(DAY / 2)
        await leases.lease(TWO)
        assert leases._abandoned == {}
        await other.log.look()
        assert [known.returned for known in other.log.elsewhere(ONE)] == [False]
        await trio.sleep(WEEK)
        await leases.lease(TWO)
        assert await seen_elsewhere(other) == []


@pytest.mark.parametrize("years", [-10, 10])
async def test_a_wrong_clock_of_a_reader_hides_no_lease(years: int) -> None:
    async with brokers() as fake:
        async with lanes(fake.bootstrap) as (_, leases):
            held = await leases.lease(ONE)
        await trio.sleep(6 * DAY)
        async with instance(fake.bootstrap, opened=False) as kproxy:
            network = kproxy.cluster.network
            wall = network.wall
            network.wall = lambda: wall() + years * 365 * DAY  # type: ignore[method-assign]
            kproxy.log._ages._wall = network.wall
            await kproxy.open()
            assert [known.producer_id for known in kproxy.log.former(ONE)] == [held.producer_id]


async def test_a_lease_that_cannot_be_renewed_ends_before_anyone_misses_it() -> None:
    ended: list[float] = []
    with structlog.testing.capture_logs() as lines:
        async with brokers() as fake, lanes(fake.bootstrap, **PATIENT) as (_, leases):
            lane = await leases.lease(ONE, lambda: ended.append(trio.current_time()))
            began = trio.current_time()
            refused = fake.cluster.control(ApiKey.PRODUCE, lambda _: Close())
            await trio.sleep(7 * DAY)
            assert 5.8 * DAY < ended[0] - began < 6 * DAY
            leases.give_back(lane)
            with trio.move_on_after(3600) as scope:
                await leases.lease(ONE)
            assert scope.cancelled_caught  # no record is taken under a lease that nobody knows of
            fake.cluster.controls.remove(refused)
            await leases.lease(ONE)
    assert {line["connections"] for line in lines if "connections are closed" in line["event"]} == {1}


async def test_an_outage_of_the_log_that_ends_in_time_ends_no_lease() -> None:
    ended: list[float] = []
    async with brokers() as fake, lanes(fake.bootstrap, **PATIENT) as (_, leases):
        lane = await leases.lease(ONE, lambda: ended.append(0))
        await trio.sleep(4 * DAY - 60)
        refused = fake.cluster.control(ApiKey.PRODUCE, lambda _: Close())
        await trio.sleep(1.5 * DAY)
        fake.cluster.controls.remove(refused)
        await trio.sleep(4 * DAY)
        assert is_there(fake, encode_key(leases._key(lane)))
        assert ended == []


async def test_where_the_cluster_refuses_the_log_by_now_no_lease_ends() -> None:
    """kproxy continues without crash recovery: nobody looks for its leases."""
    ended: list[float] = []
    async with brokers() as fake, lanes(fake.bootstrap) as (kproxy, leases):
        await leases.lease(ONE, lambda: ended.append(0))
        fake.cluster.control(ApiKey.PRODUCE, lambda _: Edit(_refuses_write))
        await trio.sleep(2 * WEEK)
        assert not kproxy.log.enabled
        assert ended == []


def _refuses_write(message: Message) -> None:
    assert isinstance(message, ProduceResponse)
    for topic in message.responses:
        for row in topic.partition_responses:
            row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_kproxy_that_is_killed_while_it_renews_is_known_to_the_next() -> None:
    async with brokers() as fake:
        for applied in (False, True):
            async with lanes(fake.bootstrap, **PATIENT) as (_, leases):
                held = await leases.lease(ONE)
                reached = trio.Event()

                async def hold(_: Call, reached: trio.Event = reached, *, apply: bool = applied) -> Any:
                    reached.set()
                    return None if apply else Close()

                control = fake.cluster.control(ApiKey.PRODUCE, hold)
                await reached.wait()
                await trio.sleep(1)
            fake.cluster.controls.remove(control)
            async with instance(fake.bootstrap) as kproxy:
                assert held.producer_id in [known.producer_id for known in kproxy.log.former(ONE)]


def _refuses(message: Message) -> None:
    assert isinstance(message, DescribeConfigsResponse)
    for result in message.results:
        result.error_code, result.configs = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []


@pytest.mark.parametrize("why", ["compacted only", "times of instances", "settings unknown"])
async def test_where_the_topic_does_not_delete_by_the_brokers_time_entries_count_for_ever(why: str) -> None:
    """An instance of an older version may be there, which records a lease once, or one whose clock is wrong."""
    async with brokers() as fake:
        if why != "settings unknown":
            policy = "compact,delete" if why == "times of instances" else "compact"
            fake.cluster.create_topic(TOPIC, 4, 1, {"cleanup.policy": policy})
        async with lanes(fake.bootstrap) as (_, leases):
            held = await leases.lease(ONE)
        if why == "settings unknown":
            fake.cluster.control(ApiKey.DESCRIBE_CONFIGS, lambda _: Edit(_refuses))
        await trio.sleep(10 * DAY)
        async with instance(fake.bootstrap, instance_id="other") as other:
            await other.log.record(lane(1)._replace(instance_id="other"))
            assert await seen_elsewhere(other) == [held.producer_id]


async def test_leases_are_renewed_where_the_topic_is_compacted_only() -> None:
    """Then it may be altered at any time."""
    async with brokers() as fake:
        fake.cluster.create_topic(TOPIC, 4, 1, COMPACTED)
        async with lanes(fake.bootstrap) as (_, leases):
            await leases.lease(ONE)
            await trio.sleep(6 * DAY)
            assert len(entries(fake.cluster)) == 2


async def test_a_topic_with_a_shorter_retention_is_renewed_sooner() -> None:
    settings = {"cleanup.policy": "compact,delete", "retention.ms": "70000", "message.timestamp.type": "LogAppendTime"}
    async with brokers() as fake:
        fake.cluster.create_topic(TOPIC, 4, 1, settings)
        async with lanes(fake.bootstrap) as (_, leases):
            held = await leases.lease(ONE)
            for _ in range(20):
                await trio.sleep(30)
                assert is_there(fake, encode_key(leases._key(held)))


async def test_a_dead_instance_does_not_keep_a_producer_shared() -> None:
    async with brokers() as fake, instance(fake.bootstrap, instance_id="b", fleet_retries_enable=True) as kproxy:
        async with instance(fake.bootstrap, instance_id="a") as dead:
            await dead.log.record(lane(1)._replace(instance_id="a", shared=True))
        fleet = Fleet(kproxy.config, kproxy.log, kproxy.cluster.network.wall)
        await fleet.look(ONE)
        assert fleet.is_shared(ONE)
        await trio.sleep(WEEK + 60)
        await kproxy.log.record(lane(2)._replace(instance_id="b"))
        await fleet.look(ONE)
        assert not fleet.is_shared(ONE)


async def test_what_an_instance_held_is_left_when_another_process_has_its_name() -> None:
    """Whatever that process makes of it: until it does, others fence and compare it as they do any other."""
    async with brokers() as fake, instance(fake.bootstrap, instance_id="b", fleet_retries_enable=True) as kproxy:
        fleet = Fleet(kproxy.config, kproxy.log, kproxy.cluster.network.wall)
        for begun in range(2):
            async with instance(fake.bootstrap, instance_id="a") as process:
                if not begun:
                    await process.log.record(lane(1)._replace(instance_id="a", shared=True))
                await fleet.look(ONE)
                (held,) = fleet.lanes(ONE)
                assert held.is_held is not bool(begun)
                assert not held.returned


def _unsupported(message: Message) -> None:
    assert isinstance(message, ListOffsetsResponse)
    for topic in message.topics:
        for row in topic.partitions:
            row.error_code, row.timestamp, row.offset = ErrorCode.UNSUPPORTED_VERSION, -1, -1


def _newest_is_unknown(call: Call) -> Edit | None:
    asked = {row.timestamp for topic in call.request.topics for row in topic.partitions}
    return Edit(_unsupported) if asked == {-3} else None


@pytest.mark.parametrize("knows_newest", [True, False])
async def test_what_has_expired_is_not_even_read_where_the_broker_can_say_where_it_ends(knows_newest: bool) -> None:
    async with brokers() as fake:
        async with instance(fake.bootstrap) as kproxy:
            for number in range(20):
                await kproxy.log.record(lane(number))
        await trio.sleep(WEEK + 60)
        async with instance(fake.bootstrap) as kproxy:
            await kproxy.log.record(lane(20))
        offsets: list[int] = []

        def fetched(call: Call) -> None:
            offsets.extend(row.fetch_offset for topic in call.request.topics for row in topic.partitions)

        fake.cluster.control(ApiKey.FETCH, fetched)
        if not knows_newest:
            fake.cluster.control(ApiKey.LIST_OFFSETS, _newest_is_unknown)
        async with instance(fake.bootstrap) as kproxy:
            assert min(offsets) == (22 if knows_newest else 0)  # 20 lanes and the notes of the first process
            await kproxy.log.record(lane(21))
            assert kproxy.log.former(ONE) == [lane(20)]


async def test_a_partition_in_which_everything_has_expired_is_read_from_its_end() -> None:
    async with brokers() as fake:
        async with instance(fake.bootstrap) as kproxy:
            await kproxy.log.record(lane(1))
        await trio.sleep(WEEK + 60)
        assert partition_of("reader", 4) != partition_of("me", 4)
        async with instance(fake.bootstrap, instance_id="reader") as reader:
            await reader.log.record(lane(2)._replace(instance_id="reader"))
            assert await seen_elsewhere(reader) == []
            async with instance(fake.bootstrap) as kproxy:
                await kproxy.log.record(lane(3))
                assert await seen_elsewhere(reader) == [lane(3).producer_id]


@pytest.mark.parametrize("deleted", [False, True])
async def test_epochs_of_clients_are_kept_as_long_as_their_kproxy_lives_or_returns(deleted: bool) -> None:
    epoch = StoredEpoch(Producer(1, 1), Producer(2, 2), LastEnd.NONE, 60_000, 5)
    async with brokers() as fake:
        async with lanes(fake.bootstrap) as (kproxy, _):
            kproxy.log.put_epoch("id", epoch)
            await trio.sleep(10 * DAY)
        for _ in range(3):
            async with lanes(fake.bootstrap) as (kproxy, _):
                await trio.sleep(3 * DAY)
                fake.cluster.apply_retention()
                if deleted:
                    kproxy.log.put_epoch("id", None)
                    await trio.sleep(2 * WEEK)
                    fake.cluster.apply_retention()
                assert (await kproxy.log.epochs()).of("id") == (None if deleted else epoch)
        await trio.sleep(WEEK)
        async with lanes(fake.bootstrap) as (kproxy, leases):
            await leases.lease(ONE)
            assert (await kproxy.log.epochs()).of("id") is None


async def test_an_epoch_that_is_about_to_expire_is_written_again_at_once_after_a_restart() -> None:
    epoch = StoredEpoch(Producer(1, 1), Producer(2, 2), LastEnd.NONE, 60_000, 5)
    async with brokers() as fake:
        async with lanes(fake.bootstrap) as (kproxy, _):
            await kproxy.log.put_epoch("id", epoch).wait()
        await trio.sleep(WEEK - 60)
        async with lanes(fake.bootstrap) as (kproxy, leases):
            await trio.sleep(120)
            await leases.lease(ONE)
            assert (await kproxy.log.epochs()).of("id") == epoch


async def test_an_entry_that_was_replaced_meanwhile_is_renewed_as_it_is_now() -> None:
    """The newer one may be in flight, and not in the log."""
    first = StoredEpoch(Producer(1, 1), Producer(2, 2), LastEnd.NONE, 60_000, 5)
    second = first._replace(upstream=Producer(2, 3))
    async with brokers() as fake, instance(fake.bootstrap) as kproxy:
        await kproxy.log.put_epoch("id", first).wait()
        await trio.sleep(6 * DAY)
        held = fake.cluster.control(ApiKey.PRODUCE, lambda _: Close())
        written = kproxy.log.put_epoch("id", second)
        kproxy.log.renew()
        fake.cluster.controls.remove(held)
        await written.wait()
        await kproxy.log.record(lane(1))
        assert (await kproxy.log.epochs()).of("id") == second


async def test_a_client_whose_producer_id_cannot_be_recorded_again_loses_its_connection() -> None:
    options = {"crash_recovery_enable": True, "retry_backoff_ms": 1000, "retry_backoff_max_ms": 1000}
    async with proxied(producer_state_log_retention_ms=70_000, **options) as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(produce("t", b"x"), 7)) == [0]
            refused = proxy.brokers.control(ApiKey.PRODUCE, _refuses_entries)
            await trio.sleep(55)
            assert errors_of(await client.call(produce("t", b"y"), 7)) == [0]
            await trio.sleep(6)
            assert await client.ended()
        assert proxy.stats.refused.refusals == {"expired_producer_id": 1}
        proxy.brokers.controls.remove(refused)
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(produce("t", b"z"), 7)) == [0]
        assert values_in(proxy.brokers, "t") == [b"x", b"y", b"z"]


def _refuses_entries(call: Call) -> Close | None:
    return Close() if any(topic.name == TOPIC for topic in call.request.topic_data) else None
