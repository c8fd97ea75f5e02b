"""The follower of the transaction log: each record once and in order, whatever brokers do to the log."""

from typing import Any

import pytest
import structlog
import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.brokers.leaders import Told
from kproxy.net.txn import log_follower
from kproxy.net.txn.log_topic import TOPIC
from kproxy.testing.fake_broker import Close, CloseAfter, Drop, Edit, open_fake_cluster
from tests.net.harness import eventually
from tests.net.txn.log_harness import PATIENCE, PID, followed, following, write

pytestmark = pytest.mark.idle_clock


def _answer(error: int) -> Any:
    """The error in place of what the response held."""

    def change(message: Any) -> None:
        for topic in getattr(message, "responses", None) or message.topics:
            for row in topic.partitions:
                row.error_code = error
                if hasattr(row, "offset"):
                    row.offset = 99
                else:
                    row.records = b""

    return lambda _: Edit(change)


async def test_all_records_come_in_order_with_their_producer_and_the_brokers_time() -> None:
    async with followed() as log:
        first = log.write(b"a", b"b", epoch=3)
        log.write(b"c", epoch=5)
        log.write(b"x", partition=2, pid=-1, epoch=-1, sequence=-1)
        assert await log.at_end() == 3
        assert await log.at_end(2) == 1
        rows = log.sink.records[0]
        assert [(row.offset, row.epoch, row.value) for row in rows] == [(0, 3, b"a"), (1, 3, b"b"), (2, 5, b"c")]
        assert {row.producer_id for row in rows} == {PID}
        assert {row.key for row in rows} == {b"k"}
        assert all(abs(row.timestamp_ms - log.brokers.clock()) < 60_000 for row in rows)
        assert first == 0
        assert (log.sink.records[2][0].producer_id, log.sink.records[2][0].epoch) == (-1, -1)
        assert log.follower.position(0) == log.sink.ends[0] == 3
        assert sorted(log.sink.restarts) == [(index, 0) for index in range(4)]


async def test_the_topic_is_made_when_it_is_not_there_and_read_from_its_start_when_it_is() -> None:
    async with open_fake_cluster(1) as fake:
        async with following(fake.bootstrap) as log:
            assert log.follower.partitions == 4
        write(fake.cluster, b"a")
        fake.cluster.topics[TOPIC].partitions[1].log.delete_before(0)
        async with following(fake.bootstrap, transaction_state_log_num_partitions=9) as log:
            assert log.follower.partitions == 4
            assert log.sink.values() == [b"a"]


async def test_who_waits_is_woken_when_it_is_there_and_not_before() -> None:
    async with followed() as log:
        done: list[str] = []

        async def wait(offset: int) -> None:
            await log.follower.reached(0, offset)
            done.append(f"reached {offset}")

        async with trio.open_nursery() as nursery:
            for offset in (1, 2, 3):
                nursery.start_soon(wait, offset)
            log.write(b"a", b"b")
            with trio.fail_after(PATIENCE):
                await log.follower.reached(0, 2)
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(done) == ["reached 1", "reached 2"]
            nursery.cancel_scope.cancel()
        with trio.fail_after(PATIENCE):
            await log.follower.reached(0, 0)


async def test_no_leader_is_asked_about_what_has_come_and_one_that_serves_version_5_is_enough() -> None:
    def old(message: Any) -> None:
        for row in message.api_keys:
            if row.api_key == ApiKey.LIST_OFFSETS:
                row.max_version = 5

    async with open_fake_cluster(1) as fake:
        fake.cluster.control(ApiKey.API_VERSIONS, lambda _: Edit(old))
        async with following(fake.bootstrap) as log:
            control = fake.cluster.control(ApiKey.LIST_OFFSETS, lambda _: Close())
            with trio.fail_after(PATIENCE):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(log.follower.reached, 0, 1)
                    await trio.testing.wait_all_tasks_blocked()
                    write(fake.cluster, b"a")
                await log.follower.reached(0, 1)
            assert control.hits == 0


async def test_a_partition_that_is_read_again_while_others_are_waited_for_is_read_to_its_end_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with followed(transaction_state_log_num_partitions=2) as log:
        log.write(b"a")
        log.write(b"b", partition=1)
        assert [await log.at_end(0), await log.at_end(1)] == [1, 1]
        asked: list[list[int]] = []
        real = log.follower._leaders.ask

        async def ask(places: Any, question: Any) -> Any:
            told = await real(places, question)
            asked.append([partition for _, partition in places])
            if len(asked) == 1:
                told[TOPIC, 1] = Told(0, 2)  # a record that has not come yet
            return told

        monkeypatch.setattr(log.follower._leaders, "ask", ask)
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.follower.read_to_ends, [0, 1])
                await eventually(lambda: bool(asked))
                await trio.testing.wait_all_tasks_blocked()
                log.follower._parts[0].restart(0)
                log.write(b"c", partition=1, sequence=1)
        assert asked == [[0, 1], [0]]
        assert log.sink.values() == [b"a"]


async def test_changes_are_counted_and_can_be_waited_for() -> None:
    async with followed() as log:
        seen = log.follower.version
        with trio.move_on_after(0):
            await log.follower.changed(seen)
            raise AssertionError("nothing has changed")
        log.write(b"a", partition=3)
        with trio.fail_after(PATIENCE):
            await log.follower.changed(seen)
        assert log.follower.version > seen
        assert log.sink.values(3) == [b"a"]


async def test_one_long_poll_to_each_leader_at_a_time_for_all_of_its_partitions() -> None:
    asked: list[tuple[int, int]] = []

    async with followed(2) as log:

        async def count(call: Any) -> None:
            assert call.request.rack_id == ""
            assert call.request.isolation_level == 0
            asked.append((call.broker_id, len(call.request.topics[0].partitions)))

        log.brokers.control(ApiKey.FETCH, count)
        for number in range(20):
            log.write(b"%d" % number, partition=number % 4, epoch=number)
            await log.at_end(number % 4)
        assert set(asked) == {(1, 2), (2, 2)}
        assert sum(len(log.sink.records[index]) for index in range(4)) == 20


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(30_000, 120_000), (45_000, 120_000), (5_000, 20_000)])
async def test_a_leader_without_news_is_asked_to_wait(timeout_ms: int, waits_ms: int) -> None:
    # A thousand idle instances must not be a load for the brokers.
    async with followed(upstream_request_timeout_ms=timeout_ms) as log:
        asked: list[tuple[int, int]] = []

        async def note(call: Any) -> None:
            asked.append((call.request.max_wait_ms, call.request.min_bytes))

        log.brokers.control(ApiKey.FETCH, note)
        log.write(b"a")
        assert await log.at_end() == 1
        await eventually(lambda: bool(asked))
        assert all(waits_ms * 0.8 <= wait_ms <= waits_ms and count == 1 for wait_ms, count in asked)


async def test_who_waits_for_the_log_does_not_wait_for_a_poll_without_an_answer() -> None:
    async with followed(upstream_request_timeout_ms=20_000, delivery_timeout_ms=60_000) as log:
        await log.at_end()
        left = [Drop(apply=False)]
        log.brokers.control(ApiKey.FETCH, lambda _: left.pop() if left else None)
        log.write(b"a")  # answers the poll; the next one is not answered
        await eventually(lambda: not left)
        log.write(b"b", sequence=1)
        await trio.sleep(21.0)
        began = trio.current_time()
        await log.at_end()
        assert log.sink.values() == [b"a", b"b"]
        assert trio.current_time() - began < 20.0, "the poll itself may take 80 s, and as long again"


@pytest.mark.parametrize("fault", [lambda _: Close(), lambda _: CloseAfter()])
@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH, ApiKey.CREATE_TOPICS])
async def test_cuts_are_survived(api: ApiKey, fault: Any) -> None:
    with structlog.testing.capture_logs() as lines:
        async with open_fake_cluster(2) as fake:
            fake.cluster.control(api, fault, times=3)
            async with following(fake.bootstrap) as log:
                for number in range(5):
                    write(fake.cluster, b"%d" % number, epoch=number)
                    fake.cluster.control(api, fault, times=1)
                    await log.at_end()
                assert log.sink.values() == [b"0", b"1", b"2", b"3", b"4"]
                assert sorted(log.sink.restarts) == [(index, 0) for index in range(4)]
    assert not [line for line in lines if "no transactions" in line["event"] or "was deleted" in line["event"]]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
@pytest.mark.parametrize("api", [ApiKey.LIST_OFFSETS, ApiKey.FETCH])
async def test_errors_are_asked_about_again(api: ApiKey, error: int) -> None:
    async with open_fake_cluster(1) as fake:
        async with following(fake.bootstrap):
            write(fake.cluster, b"a")
        fake.cluster.control(api, _answer(error), times=4)
        async with following(fake.bootstrap) as log:
            assert log.sink.values() == [b"a"]
            assert (log.stats.upstream.errors.get("transaction_state_log", 0) >= 4) is (api is ApiKey.FETCH)
            assert sorted(log.sink.restarts) == [(index, 0) for index in range(4)]


async def test_leaders_move_and_die() -> None:
    async with followed(3) as log:
        for number in range(6):
            part = log.brokers.topics[TOPIC].partitions[0]
            log.brokers.move_leader(TOPIC, 0, part.leader % 3 + 1)
            log.write(b"%d" % number, epoch=number)
            assert await log.at_end() == number + 1
        for number in (6, 7):
            leader = log.brokers.topics[TOPIC].partitions[0].leader
            await log.fake.stop_broker(leader)
            log.write(b"%d" % number, epoch=number)
            await log.at_end()
            await log.fake.start_broker(leader)
        assert log.sink.values() == [b"%d" % number for number in range(8)]
        assert sorted(log.sink.restarts) == [(index, 0) for index in range(4)]


async def test_a_leader_that_can_not_be_reached_holds_up_no_other() -> None:
    async with open_fake_cluster(2) as fake:
        async with following(fake.bootstrap) as log:
            leaders = [part.leader for part in fake.cluster.topics[TOPIC].partitions]
        near, far = leaders.index(1), leaders.index(2)
        port, fake.cluster.brokers[2].port = fake.cluster.brokers[2].port, 1
        write(fake.cluster, b"a", partition=near)
        write(fake.cluster, b"b", partition=far)
        async with following(fake.bootstrap, loaded=False) as log:
            await eventually(lambda: log.sink.values(near) == [b"a"])
            assert log.sink.values(far) == []
            fake.cluster.brokers[2].port = port
            await eventually(lambda: log.sink.values(far) == [b"b"])


@pytest.mark.parametrize("key", [ApiKey.CREATE_TOPICS, ApiKey.LIST_OFFSETS])
async def test_a_cluster_that_does_not_answer_at_first_is_asked_again_with_pauses(key: ApiKey) -> None:
    async with open_fake_cluster(1) as fake:
        control = fake.cluster.control(key, lambda _: Close())
        pauses = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 500, "delivery_timeout_ms": 500}
        async with following(fake.bootstrap, loaded=False, **pauses) as log:
            await trio.sleep(3)
            asked = control.hits
            assert log.stats.upstream.errors["transaction_state_log"] >= 2
            fake.cluster.controls.remove(control)
            await log.follower.loaded()
    assert asked < 100


async def test_a_partition_without_a_leader_is_waited_for() -> None:
    def leaderless(message: Any) -> None:
        for row in message.topics[0].partitions if message.topics else ():
            row.leader_id = -1 if row.partition_index == 0 else row.leader_id

    async with open_fake_cluster(1) as fake:
        async with following(fake.bootstrap):
            write(fake.cluster, b"a")
        control = fake.cluster.control(ApiKey.METADATA, lambda _: Edit(leaderless), times=5)
        async with following(fake.bootstrap) as log:
            assert log.sink.values() == [b"a"]
            assert control.hits == 5


async def test_a_leader_without_news_is_no_failure() -> None:
    async with open_fake_cluster(1) as fake:
        async with following(fake.bootstrap):
            write(fake.cluster, b"a")
        control = fake.cluster.control(ApiKey.FETCH, _answer(0), times=3)
        async with following(fake.bootstrap) as log:
            assert control.hits == 3
            assert log.sink.values() == [b"a"]
            assert "transaction_state_log" not in log.stats.upstream.errors


async def test_a_cluster_that_is_down_is_waited_for() -> None:
    async with followed() as log:
        log.write(b"a")
        await log.at_end()
        await log.fake.stop_broker(1)
        before = log.stats.upstream.errors.get("transaction_state_log", 0)
        await eventually(lambda: log.stats.upstream.errors.get("transaction_state_log", 0) > before + 2)
        await log.fake.start_broker(1)
        log.write(b"b", epoch=1)
        await log.at_end()
        assert log.sink.values() == [b"a", b"b"]


async def test_what_is_deleted_without_the_follower_is_no_reason_to_begin_again() -> None:
    async with followed() as log:
        log.write(b"a", b"b")
        log.write(b"c", epoch=1)
        await log.at_end()
        log.brokers.topics[TOPIC].partitions[0].log.delete_before(2)
        log.write(b"d", epoch=2)
        assert await log.at_end() == 4
        assert log.sink.values() == [b"a", b"b", b"c", b"d"]
        assert log.follower.log_start(0) == 2
        assert log.follower.losses == {}


async def test_a_log_that_begins_after_what_was_read_is_read_again_from_its_start() -> None:
    async with followed() as log:
        log.write(b"a")
        await log.at_end()
        log.write(b"b", epoch=1)
        log.write(b"c", b"d", epoch=2)
        log.brokers.topics[TOPIC].partitions[0].log.delete_before(3)  # before the poll could answer
        assert await log.at_end() == 4
        assert log.sink.restarts[4:] == [(0, 3)]
        assert log.sink.values() == [b"d"], "a log may begin inside a batch"
        assert log.follower.log_start(0) == 3


async def test_a_log_without_records_that_begins_later_is_a_change() -> None:
    async with followed() as log:
        log.write(b"a")
        await log.at_end()
        version = log.follower.version
        log.write(b"b", epoch=1)
        log.brokers.topics[TOPIC].partitions[0].log.delete_before(2)
        with trio.fail_after(PATIENCE):
            await log.follower.changed(version)
        assert log.sink.restarts[4:] == [(0, 2)]


async def test_a_log_that_has_lost_its_end_is_read_again() -> None:
    with structlog.testing.capture_logs() as lines:
        async with followed() as log:
            log.write(b"a", b"b")
            await log.at_end()
            log.brokers.topics[TOPIC].partitions[0].log.truncate(0)
            await eventually(lambda: log.sink.restarts[4:] == [(0, 0)])
            assert log.follower.losses == {"truncated": 1}
            log.write(b"z")
            await log.at_end()
            assert log.sink.values() == [b"z"]
    assert not [line for line in lines if "refuses" in line["event"]], "no right is missing"


async def test_a_log_that_has_lost_its_end_and_is_longer_than_before_is_read_again() -> None:
    async with followed() as log:
        for number in range(3):
            log.write(b"%d" % number, epoch=number)
        await log.at_end()
        part = log.brokers.topics[TOPIC].partitions[0]
        part.log.truncate(1)  # as a single broker that had no time to write it to its disk
        part.lead(part.leader)
        for number in range(5, 9):
            log.write(b"%d" % number, epoch=number)
        assert await log.at_end() == 5
        with trio.fail_after(PATIENCE):
            while log.sink.values() != [b"0", b"5", b"6", b"7", b"8"]:
                await log.follower.changed(log.follower.version)
        assert log.sink.restarts[4:] == [(0, 0)]


@pytest.mark.parametrize("longer", [False, True])
async def test_a_topic_that_was_recreated_is_read_again_and_reported(longer: bool) -> None:
    with structlog.testing.capture_logs() as lines:
        async with followed() as log:
            for number in range(2):
                log.write(b"old", epoch=number)
            log.write(b"old", partition=1)
            await log.follower.read_to_ends([0, 1])
            log.brokers.topics[TOPIC].partitions[0].log.delete_before(1)
            log.write(b"old", epoch=2)
            await eventually(lambda: log.follower.log_start(0) == 1)
            log.brokers.delete_topic(TOPIC)
            log.brokers.create_topic(TOPIC, 4, 1)
            log.write(b"a", b"b", b"c", b"d", *([b"e"] if longer else []))
            assert await log.at_end() == 4 + longer
            assert b"old" not in log.sink.values()
            assert len(log.sink.values()) == 4 + longer
            assert log.follower.log_start(0) == 0
            await log.follower.read_to_ends(range(4))
            assert log.follower.losses == {"recreated": 2}, "two have lost nothing"
            assert log.brokers.topics[TOPIC].topic_id in log.cluster.map.own_topic_ids
    assert len([line for line in lines if "created again" in line["event"]]) == 1


async def test_a_deleted_topic_is_reported_once_and_waited_for() -> None:
    with structlog.testing.capture_logs() as lines:
        async with followed() as log:
            log.write(b"old")
            await log.at_end()
            log.brokers.delete_topic(TOPIC)
            before = log.stats.upstream.errors.get("transaction_state_log", 0)
            await eventually(lambda: log.stats.upstream.errors.get("transaction_state_log", 0) > before + 5)
            assert TOPIC not in log.brokers.topics
            log.brokers.create_topic(TOPIC, 4, 1)
            log.write(b"new")
            with trio.fail_after(PATIENCE):
                while log.sink.values() != [b"new"]:
                    await log.follower.changed(log.follower.version)
            assert len([line for line in lines if "was deleted" in line["event"]]) == 1
            log.brokers.delete_topic(TOPIC)
            await eventually(lambda: len([line for line in lines if "was deleted" in line["event"]]) == 2)


async def test_a_refusal_is_reported_once_and_asked_about_again() -> None:
    with structlog.testing.capture_logs() as lines:
        async with open_fake_cluster(1) as fake:
            # the fake broker answers after the longest poll, which is four request time-outs
            control = fake.cluster.control(ApiKey.FETCH, _answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            async with following(fake.bootstrap, loaded=False, upstream_request_timeout_ms=300) as log:
                await eventually(lambda: control.hits > 2)
                fake.cluster.controls.remove(control)
                with trio.fail_after(PATIENCE):
                    await log.follower.loaded()
                write(fake.cluster, b"a")
                await log.at_end()
                assert log.sink.values() == [b"a"]
    [warning] = [line for line in lines if "no transactions" in line["event"]]
    assert TOPIC in warning["grant"]


async def test_a_damaged_batch_is_not_passed_over_nor_what_lies_behind() -> None:
    with structlog.testing.capture_logs() as lines:
        async with followed() as log:
            log.write(b"a")
            await log.at_end()
            stored = log.brokers.topics[TOPIC].partitions[0].log._batches
            log.write(b"b", epoch=1)
            log.write(b"c", epoch=2)
            sound = stored[1]
            broken = bytearray(sound.data)
            broken[-1] ^= 1
            stored[1] = sound._replace(data=bytes(broken))
            asked: list[int] = []
            log.brokers.control(ApiKey.METADATA, lambda call: asked.append(call.connection))
            await eventually(lambda: log.stats.upstream.errors.get("transaction_state_log", 0) > 3)
            assert log.sink.values() == [b"a"]
            await eventually(lambda: len(asked) > 3)  # another replica may lead by then
            assert (log.follower.lag, log.follower.is_read(0)) == (2, False)
            log.write(b"x", partition=1)
            await log.at_end(1)
            stored[1] = sound  # as another replica may have it
            await log.at_end()
            assert log.sink.values() == [b"a", b"b", b"c"]
    [error] = [line for line in lines if line["log_level"] == "error"]
    assert (error["partition"], error["offset"]) == (0, 1)


async def test_an_answer_without_a_whole_batch_is_none() -> None:
    def cut(message: Any) -> None:
        for row in message.responses[0].partitions:
            row.records = bytes(row.records or b"")[:40]

    async with open_fake_cluster(1) as fake:
        async with following(fake.bootstrap):
            write(fake.cluster, b"a")
        control = fake.cluster.control(ApiKey.FETCH, lambda _: Edit(cut), times=3)
        async with following(fake.bootstrap) as log:
            assert control.hits == 3
            assert log.sink.values() == [b"a"]
            assert log.stats.upstream.errors["transaction_state_log"] == 3


async def test_markers_are_no_records_and_count_for_the_end() -> None:
    async with followed() as log:
        log.write(b"a")
        part = log.brokers.topics[TOPIC].partitions[0]
        part.log.append_marker(PID, 1, False, 0, part.leader_epoch, log.brokers.clock())
        assert await log.at_end() == 2
        assert log.sink.values() == [b"a"]
        assert log.sink.ends[0] == 2


async def test_long_logs_come_in_pieces_and_starve_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.net.txn.log_requests._PARTITION_BYTES", 3000)
    monkeypatch.setattr("kproxy.net.txn.log_requests._FETCH_BYTES", 3000)
    async with open_fake_cluster(1) as fake:
        async with following(fake.bootstrap):
            pass
        for number in range(40):
            for partition in range(4):
                write(fake.cluster, bytes(1000), b"%d" % number, partition=partition, epoch=number)
        asked: list[int] = []
        fake.cluster.control(ApiKey.FETCH, lambda call: asked.append(call.request.topics[0].partitions[0].partition))
        async with following(fake.bootstrap) as log:
            for partition in range(4):
                assert log.sink.values(partition)[1::2] == [b"%d" % number for number in range(40)]
        assert {asked.count(partition) > 5 for partition in range(4)} == {True}
        assert set(asked[:4]) == set(range(4)), "first what had nothing for longest"


async def test_a_broker_too_old_to_tell_a_logs_end_after_an_election_is_not_asked() -> None:
    def old(message: Any) -> None:
        for row in message.api_keys:
            if row.api_key == ApiKey.LIST_OFFSETS:
                row.max_version = 4

    async with open_fake_cluster(1) as fake:
        fake.cluster.control(ApiKey.API_VERSIONS, lambda _: Edit(old))
        async with following(fake.bootstrap, loaded=False) as log:
            await eventually(lambda: log.follower.partitions > 0)
            with pytest.raises(Exception, match="failed with error 35"):
                await log.at_end()
            with trio.fail_after(PATIENCE):
                await log.follower.reached(0, 0)
            assert log.stats.upstream.errors["transaction_state_log"] > 0


async def test_brokers_without_topic_ids_are_followed_too() -> None:
    def old(message: Any) -> None:
        newest = {ApiKey.FETCH: 11, ApiKey.METADATA: 9}
        for row in message.api_keys:
            row.max_version = newest.get(row.api_key, row.max_version)

    versions: set[int] = set()
    async with open_fake_cluster(1) as fake:
        fake.cluster.control(ApiKey.API_VERSIONS, lambda _: Edit(old))
        fake.cluster.control(ApiKey.FETCH, lambda call: versions.add(call.version))
        async with following(fake.bootstrap) as log:
            write(fake.cluster, b"a")
            await log.at_end()
            assert log.sink.values() == [b"a"]
    assert versions == {11}


@pytest.mark.parametrize("restarted", [False, True], ids=["nobody knows", "it is read anew already"])
async def test_an_end_before_what_was_read_has_the_partition_read_again_once(
    monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """The leader's response shows that the log was truncated before a poll does."""
    async with followed() as log:
        log.write(b"a", b"b")
        await log.at_end()
        real, asked = log.follower._leaders.ask, 0

        async def ask(places: Any, question: Any) -> Any:
            nonlocal asked
            asked += 1
            told = await real(places, question)
            if asked == 1:
                told[TOPIC, 0] = Told(0, 1)
                if restarted:
                    log.follower._parts[0].restart(0)
            return told

        monkeypatch.setattr(log.follower._leaders, "ask", ask)
        with trio.fail_after(PATIENCE):
            assert await log.follower.read_to_end(0) == 2
        assert log.sink.restarts[4:] == [(0, 0)]
        assert log.follower.readings(0) == 2
        assert log.sink.values() == [b"a", b"b"]


async def test_an_offset_that_the_log_has_lost_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_ASK_AGAIN_SECONDS", 0.01)
    async with followed() as log:
        log.write(b"a", b"b")
        with trio.fail_after(PATIENCE):
            await log.follower.reached(0, 2)
            with pytest.raises(log_follower.LogLost, match=r"has lost offset 2$"):
                await log.follower.reached(0, 3)


async def test_an_offset_that_comes_after_the_leader_was_asked_again_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_follower, "_ASK_AGAIN_SECONDS", 0)
    async with followed() as log:
        log.write(b"a")
        with trio.fail_after(PATIENCE):
            await log.follower.reached(0, 1)


async def test_a_loss_is_counted_and_wakes_those_that_wait_for_a_change() -> None:
    async with followed() as log:
        await log.at_end()
        version = log.follower.version
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.follower.changed, version)
                await trio.testing.wait_all_tasks_blocked()
                log.follower.lost(0, "truncated")
        assert log.follower.losses == {"truncated": 1}
