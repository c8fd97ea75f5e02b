"""Leases: a producer id of the brokers', noted before its use, never two producers' within the window of retries."""

import weakref
from typing import Any

import pytest
import structlog
import trio

from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.dedup.identity import Identity
from kproxy.dedup.lanes import Lane
from kproxy.dedup.listed import InDoubt, ListedBatch
from kproxy.dedup.producer_ids import LEASE_EPOCHS, is_kproxy_producer_id
from kproxy.testing.fake_broker import Answer, Close, Drop, open_fake_cluster
from tests.net.harness import PATIENCE, errors_of, eventually, produce, proxied, running
from tests.net.lane_harness import ONE, TWO, entries, instance, lanes

pytestmark = pytest.mark.idle_clock

STRIDE = LEASE_EPOCHS + 1


def epochs(lane: Lane) -> tuple[int, int, int]:
    return lane.producer_id, lane.epoch, lane.last_epoch


async def test_a_lane_has_a_producer_id_of_the_brokers_with_kproxys_mark_and_is_in_the_log_when_it_is_had() -> None:
    async with open_fake_cluster(1) as fake:
        async with lanes(fake.bootstrap) as (kproxy, leases):
            first, second = await leases.lease(ONE), await leases.lease(TWO)
            assert is_kproxy_producer_id(first.producer_id)
            assert first.producer_id != second.producer_id
            assert kproxy.stats.produce.producer_ids_active == 2
        async with lanes(fake.bootstrap) as (kproxy, leases):
            for identity, lane in ((ONE, first), (TWO, second)):
                [known] = leases.log.former(identity)
                assert (known.producer_id, known.epoch, known.last_epoch) == epochs(lane)
                assert abs(known.recorded_ms / 1000 - kproxy.cluster.network.wall()) < 60


async def test_within_the_window_a_lane_goes_to_its_own_identity_only() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (kproxy, leases):
        first = await leases.lease(ONE)
        leases.give_back(first)
        assert kproxy.stats.produce.producer_ids_active == 0
        other = await leases.lease(TWO)
        assert other.producer_id != first.producer_id
        again = await leases.lease(ONE)
        assert epochs(again) == (first.producer_id, STRIDE, STRIDE + LEASE_EPOCHS - 1)


async def test_the_log_keeps_all_epochs_that_an_identity_had_in_a_row() -> None:
    async with open_fake_cluster(1) as fake:
        async with lanes(fake.bootstrap) as (_, leases):
            for _ in range(3):
                lane = await leases.lease(ONE)
                leases.give_back(lane)
        async with lanes(fake.bootstrap) as (_, leases):
            [known] = leases.log.former(ONE)
            assert (known.producer_id, known.epoch, known.last_epoch) == (lane.producer_id, 0, lane.last_epoch)


async def test_after_the_window_anyone_may_have_it() -> None:
    async with open_fake_cluster(1) as fake:
        async with lanes(fake.bootstrap, retry_window_ms=30) as (_, leases):
            first = await leases.lease(ONE)
            leases.give_back(first)
            await trio.sleep(0.05)
            second = await leases.lease(TWO)
            assert epochs(second) == (first.producer_id, STRIDE, STRIDE + LEASE_EPOCHS - 1)
        async with lanes(fake.bootstrap) as (_, leases):
            assert leases.log.former(ONE) == []
            assert [known.epoch for known in leases.log.former(TWO)] == [STRIDE]


async def test_lanes_at_rest_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.net.lane_leases._MOST_RESTING", 2)
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (_, leases):
        held = [await leases.lease(ONE._replace(client_id=str(number))) for number in range(3)]
        for lane in held:
            leases.give_back(lane)
        ids = [(await leases.lease(ONE._replace(client_id=str(number)))).producer_id for number in range(3)]
        assert ids[0] not in [lane.producer_id for lane in held]
        assert ids[1:] == [lane.producer_id for lane in held[1:]]


class Connection:
    def end(self) -> None: ...


async def test_a_lane_at_rest_keeps_nothing_of_its_connection() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (_, leases):
        connection = Connection()
        left = weakref.ref(connection)
        lane = await leases.lease(ONE, connection.end)
        leases.give_back(lane)
        del connection
        assert left() is None
        assert (await leases.lease(ONE)).producer_id == lane.producer_id


async def test_a_lane_with_something_unsettled_is_not_used_again() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (kproxy, leases):
        lane = await leases.lease(ONE)
        lane.track((b"t", 0)).accept(memoryview(build_batch([Record(0, 0, None, b"x")])), 1, 0.0)
        leases.give_back(lane)
        assert kproxy.stats.produce.producer_ids_active == 0
        assert (await leases.lease(ONE)).producer_id != lane.producer_id


async def test_former_lanes_are_used_again_after_their_fence_so_that_ids_do_not_grow_with_restarts() -> None:
    seen: set[int] = set()
    async with open_fake_cluster(1) as fake:
        for start in range(4):
            async with lanes(fake.bootstrap, retry_window_ms=20) as (_, leases):
                await eventually(lambda leases=leases: not leases.log.former(ONE))
                await trio.testing.wait_all_tasks_blocked(0.01)
                lane = await leases.lease(ONE)
                assert lane.epoch == start * STRIDE
                seen.add(lane.producer_id)
    assert len(seen) == 1


async def test_what_a_killed_instance_held_is_given_back_a_window_after_its_return() -> None:
    async with open_fake_cluster(1) as fake, instance(fake.bootstrap, instance_id="other") as other:
        async with lanes(fake.bootstrap) as (_, leases):
            held = [await leases.lease(ONE) for _ in range(2)]
        await other.log.look()
        assert [lane.returned for lane in other.log.elsewhere(ONE)] == [False, False]
        async with lanes(fake.bootstrap, retry_window_ms=20):
            with trio.fail_after(PATIENCE):
                while not all(lane.returned for lane in other.log.elsewhere(ONE)):
                    await trio.sleep(0.01)
                    await other.log.look()
        assert {lane.producer_id for lane in other.log.elsewhere(ONE)} == {lane.producer_id for lane in held}


async def test_before_the_window_has_passed_former_lanes_are_left_alone() -> None:
    async with open_fake_cluster(1) as fake:
        async with lanes(fake.bootstrap) as (_, leases):
            former = await leases.lease(ONE)
        async with lanes(fake.bootstrap) as (_, leases):
            assert (await leases.lease(ONE)).producer_id != former.producer_id
            assert [known.producer_id for known in leases.log.former(ONE)] == [former.producer_id]


async def test_the_next_kproxy_knows_which_lanes_were_given_back() -> None:
    async with open_fake_cluster(1) as fake:
        async with lanes(fake.bootstrap) as (_, leases):
            returned, kept, unsettled, again = [await leases.lease(ONE) for _ in range(4)]
            unsettled.track((b"t", 0)).accept(memoryview(build_batch([Record(0, 0, None, b"x")])), 1, 0.0)
            for lane in (again, returned, unsettled):
                leases.give_back(lane)
            leases.give_back(await leases.lease(ONE))  # the one that was given back last, for a while
            renewed = await leases.lease(ONE)
            await leases.lease(TWO)  # acknowledged after all entries before
        assert renewed.producer_id == returned.producer_id
        async with lanes(fake.bootstrap) as (_, leases):
            former = {lane.producer_id: lane.returned for lane in leases.log.former(ONE)}
    assert former == {
        again.producer_id: True,
        kept.producer_id: False,
        unsettled.producer_id: False,
        renewed.producer_id: False,
    }


async def test_a_lane_is_asked_for_until_a_broker_gives_one() -> None:
    refusal = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap, crash_recovery_enable=False) as (kproxy, leases):
        fake.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda _: Answer(refusal), times=2)
        fake.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda _: Close(), times=2)
        with trio.fail_after(120):
            leases.give_back(await leases.lease(ONE))
        assert kproxy.stats.upstream.errors["init_producer_id"] == 2  # what takes a moment is no error


async def test_without_crash_recovery_lanes_do_not_rest_and_there_is_no_topic() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap, crash_recovery_enable=False) as (_, leases):
        first = await leases.lease(ONE)
        leases.give_back(first)
        assert (await leases.lease(TWO)).producer_id == first.producer_id
        assert fake.cluster.topics == {}


async def test_a_lease_that_is_given_up_leaves_nothing_behind() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (kproxy, leases):
        held = await leases.lease(TWO)
        silent = fake.cluster.control(ApiKey.PRODUCE, lambda _: Drop(apply=True))
        with trio.move_on_after(0.05) as scope:
            await leases.lease(ONE)
        assert scope.cancelled_caught
        assert kproxy.stats.produce.producer_ids_active == 1
        fake.cluster.controls.remove(silent)
        with trio.fail_after(120):
            lane = await leases.lease(ONE)
        assert lane.producer_id != held.producer_id
        assert len({key for _, key, _ in entries(fake.cluster)}) == 2


@pytest.mark.parametrize("ready", [True, False])
async def test_no_record_is_taken_and_kproxy_is_not_ready_before_the_log_is_read(ready: bool) -> None:
    async with open_fake_cluster(1) as fake:
        async with lanes(fake.bootstrap) as (_, leases):
            await leases.lease(ONE)
        held = fake.cluster.control(ApiKey.FETCH, lambda _: None if ready else Close())
        async with running(fake.bootstrap, crash_recovery_enable=True, instance_id="me") as proxy:
            proxy.fake = fake
            fake.cluster.create_topic("t")
            await eventually(lambda: proxy.stats.upstream.brokers == 1)
            async with await proxy.client(1) as client:
                await client.send(produce("t", b"x"), 7)
                if not ready:
                    await eventually(lambda: proxy.stats.upstream.errors.get("producer_state_log", 0) > 2)
                    assert not proxy.stats.upstream.ready
                    assert fake.cluster.topics["t"].partitions[0].log.end_offset == 0
                    fake.cluster.controls.remove(held)
                assert errors_of(await client.receive()) == [0]
            await eventually(lambda: proxy.stats.upstream.ready)


async def test_the_log_of_producer_ids_is_read_on_without_a_word() -> None:
    with structlog.testing.capture_logs() as lines:
        async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (_, leases):
            for _ in range(3):
                await leases.lease(ONE)
                await trio.sleep(10)
                await leases.log.look()
    assert [line["event"] for line in lines if line["event"].startswith("reading")] == []


async def test_a_connection_has_its_lane_noted_before_its_first_batch() -> None:
    order: list[str] = []

    def produced(call: Any) -> None:
        order.extend(data.name for data in call.request.topic_data)

    async with proxied(crash_recovery_enable=True) as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, produced)
        async with await proxy.client(1) as client:
            for _ in range(2):
                assert errors_of(await client.call(produce("t", b"x"), 7)) == [0]
        assert order == ["__kproxy_producer_state", "t", "t"]


async def test_a_lane_that_rests_keeps_no_partition_in_memory_and_says_what_it_had() -> None:
    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap) as (_, leases):
        first, second = await leases.lease(ONE), await leases.lease(ONE)
        for index in range(3):
            first.track((b"t", index)).epoch += index
        assert [(row.is_leased, row.used_epoch, row.partitions) for row in leases.held()] == [
            (True, 2, 3),
            (True, second.epoch, 0),
        ]
        for lane in (first, second):
            leases.give_back(lane)
        assert not first.tracks
        assert [(row.identity, row.is_leased, row.used_epoch, row.partitions) for row in leases.held()] == [
            (ONE, False, 2, 3),
            (ONE, False, second.epoch, 0),
        ]
        again = [await leases.lease(ONE) for _ in range(2)]
        assert [lane.producer_id for lane in again] == [second.producer_id, first.producer_id], "the last to rest first"
        assert all(lane.epoch == STRIDE for lane in again)
        assert not leases._resting_of


async def test_nothing_of_a_producer_is_kept_where_nothing_is_recorded() -> None:
    def doubts(identity: Identity) -> InDoubt:
        return InDoubt(1, (ListedBatch((b"t", 0), 1, 0, 0, 0, 1, clean=False),))

    async with open_fake_cluster(1) as fake, lanes(fake.bootstrap, crash_recovery_enable=False) as (_, leases):
        leases.in_doubt = doubts
        for number in range(3):
            leases.give_back(await leases.lease(Identity("", str(number), "localhost")))
        assert not (leases._told or leases._resting)
        assert len(leases._pool._free) == 1, "one producer id is enough for all"
