"""One process for each instance.id: the second one does not start, or the first one ends; nothing is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import cast

import pytest
import structlog
import trio

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.config import ExitCode, StartupError, startup_error
from kproxy.dedup.instance_holder import BELL_BYTES, Holder, Holders, Process, encode_key, encode_value, is_holder_entry
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.net.instance_name import InstanceName, InstanceTaken
from kproxy.net.lane_log import LaneLog
from kproxy.net.lane_topic import TOPIC, partition_of
from kproxy.net.lane_writer import LaneWriter
from kproxy.net.presence import Presence, State
from kproxy.testing.fake_broker import Answer, Close, FakeCluster, open_fake_cluster
from tests.net.harness import eventually, records_in
from tests.net.lane_harness import ONE, Instance, entries, instance, lane

pytestmark = pytest.mark.idle_clock


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes run on hosts of their own."""
    monkeypatch.setattr(Presence, "state", lambda self, other: State.UNKNOWN)


def holders(fake: FakeCluster) -> Holders:
    """What the log says of the name."""
    found = Holders("me")
    for record in records_in(fake, TOPIC, partition_of("me", 4)):
        found.take(record)
    return found


def written(fake: FakeCluster) -> int:
    """How many notes and questions were written."""
    return sum(map(is_holder_entry, records_in(fake, TOPIC, partition_of("me", 4))))


async def _never(_: object) -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def process(bootstrap: str, *, replaces: bool = False, watches: bool = True) -> AsyncIterator[Instance]:
    """A process that is not open yet; without ``watches`` it reads nothing of the log while it runs."""
    async with instance(bootstrap, opened=False) as made:
        made.log = LaneLog(made.cluster, made.config, replaces=replaces)
        if not watches:
            made.log.name.watch = _never  # type: ignore[method-assign]
        try:
            yield made
        finally:
            made.nursery.cancel_scope.cancel()
            made.log.close()


class Ended:
    """A process that runs until it loses its name."""

    def __init__(self) -> None:
        self.error: StartupError | None = None
        self.kproxy: Instance | None = None

    async def run(self, bootstrap: str, *, watches: bool = True, replaces: bool = False) -> None:
        try:
            async with process(bootstrap, watches=watches, replaces=replaces) as kproxy:
                await kproxy.open()
                self.kproxy = kproxy
                await trio.sleep_forever()
        except* InstanceTaken as group:
            self.error = startup_error(group)


@asynccontextmanager
async def first(bootstrap: str, *, watches: bool = True) -> AsyncIterator[Ended]:
    """A process that has the name."""
    async with trio.open_nursery() as nursery:
        ended = Ended()
        nursery.start_soon(partial(ended.run, bootstrap, watches=watches))
        await eventually(lambda: ended.kproxy is not None)
        yield ended
        nursery.cancel_scope.cancel()


async def refused(bootstrap: str) -> InstanceTaken:
    """The reason why a second process does not start."""
    ended = Ended()
    await ended.run(bootstrap)
    assert isinstance(ended.error, InstanceTaken)
    assert ended.kproxy is None
    return ended.error


async def test_a_second_process_on_this_host_does_not_start_and_the_first_one_warns() -> None:
    with structlog.testing.capture_logs() as lines:
        async with open_fake_cluster(1) as fake, first(fake.bootstrap) as one:
            error = await refused(fake.bootstrap)
            assert "another process runs with instance.id = 'me' on host" in str(error)
            assert "--replace" in str(error)
            assert error.exit_code == ExitCode.INSTANCE_TAKEN
            await eventually(lambda: any("was started with this instance.id" in line["event"] for line in lines))
            assert one.kproxy is not None
            assert one.kproxy.stats.upstream.errors["instance_id_taken"] == 1
            with trio.fail_after(60):
                await one.kproxy.log.record(lane(1))
            assert one.error is None


@pytest.mark.usefixtures("elsewhere")
async def test_a_living_process_on_another_host_answers_and_the_second_one_does_not_start() -> None:
    async with open_fake_cluster(1) as fake, first(fake.bootstrap) as one:
        began = trio.current_time()
        await refused(fake.bootstrap)
        assert trio.current_time() < began + 3
        assert one.error is None


async def test_a_process_that_was_killed_on_this_host_is_replaced_without_a_question() -> None:
    async with open_fake_cluster(1) as fake:
        async with process(fake.bootstrap) as kproxy:
            await kproxy.open()
            await kproxy.log.record(lane(1))
        began = trio.current_time()
        async with process(fake.bootstrap) as kproxy:
            await kproxy.open()
            assert kproxy.log.former(ONE) == [lane(1)]
            assert trio.current_time() < began + 1
        assert holders(fake.cluster).question is None
        assert written(fake.cluster) <= 2 * 2  # of each its claim, and the note that it keeps


@pytest.mark.usefixtures("elsewhere")
async def test_a_process_that_stopped_in_good_order_on_another_host_is_not_waited_for() -> None:
    async with open_fake_cluster(1) as fake:
        async with process(fake.bootstrap) as kproxy:
            await kproxy.open()
            await kproxy.log.stop()
        began = trio.current_time()
        async with process(fake.bootstrap) as kproxy:
            await kproxy.open()
        assert trio.current_time() < began + 1


@pytest.mark.usefixtures("elsewhere")
async def test_a_process_that_was_killed_on_another_host_is_waited_for_a_bounded_time() -> None:
    async with open_fake_cluster(1) as fake:
        async with process(fake.bootstrap) as kproxy:
            await kproxy.open()
            await kproxy.log.record(lane(1))
        began = trio.current_time()
        with structlog.testing.capture_logs() as lines:
            async with process(fake.bootstrap) as kproxy:
                await kproxy.open()
                assert trio.current_time() < began + 5
                assert kproxy.log.former(ONE) == [lane(1)]
                await eventually(lambda: holders(fake.cluster).question is None)  # it is deleted
        assert any("did not answer" in line["event"] for line in lines)


@pytest.mark.usefixtures("elsewhere")
async def test_a_process_that_is_replaced_ends_at_once_and_says_by_which() -> None:
    with structlog.testing.capture_logs() as lines:
        made = open_fake_cluster(1)
        async with made as fake, first(fake.bootstrap) as one, process(fake.bootstrap, replaces=True) as two:
            began = trio.current_time()
            await two.open()
            await eventually(lambda: one.error is not None)
            assert trio.current_time() < began + 3
            await two.log.record(lane(2))
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert {"other_host", "other_pid", "other_started", "own_host", "own_pid", "own_started"} <= line.keys()


@pytest.mark.parametrize("seconds", [300, 2 * 3600])
@pytest.mark.usefixtures("elsewhere")
async def test_a_process_that_has_been_idle_for_long_answers_and_asks_seldom(seconds: int) -> None:
    """After an hour without an entry it has to look before it writes one."""
    async with open_fake_cluster(1) as fake, first(fake.bootstrap) as one:
        await trio.sleep(60)
        fetches: list[int] = []
        fake.cluster.control(ApiKey.FETCH, lambda call: fetches.append(call.version))
        await trio.sleep(seconds)
        assert len(fetches) <= seconds / 60
        error = await refused(fake.bootstrap)
        assert "another process runs" in str(error)
        await trio.sleep(60)
        assert one.error is None
        found, before = holders(fake.cluster).holder, holders(fake.cluster).before
        assert found is not None
        assert before is None or before.epoch < found.epoch


@pytest.mark.usefixtures("elsewhere")
async def test_nothing_that_a_replaced_process_writes_is_unknown_to_the_other() -> None:
    """The first one, which does not watch, leases producer ids until the broker refuses its entries."""
    async with open_fake_cluster(1) as fake, first(fake.bootstrap, watches=False) as one:
        assert one.kproxy is not None
        log, recorded = one.kproxy.log, 0
        await trio.sleep(60)

        async def lease() -> None:
            nonlocal recorded
            for number in count():
                await log.record(lane(number))
                recorded = number + 1
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lease)
            await eventually(lambda: recorded > 10)
            async with process(fake.bootstrap, replaces=True) as two:
                await two.open()
                await eventually(lambda: one.error is not None)
                known = {each.producer_id for each in two.log.former(ONE)}
                assert known >= {lane(number).producer_id for number in range(recorded)}
                assert len(entries(fake.cluster)) == len(known)
                nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("elsewhere")
async def test_of_two_that_start_at_the_same_time_one_remains() -> None:
    for turn in range(4):
        async with open_fake_cluster(1) as fake:
            if turn % 2:
                async with process(fake.bootstrap) as former:
                    await former.open()
                    await former.log.stop()
            async with trio.open_nursery() as nursery:
                one, two = Ended(), Ended()
                for each in (one, two):
                    nursery.start_soon(partial(each.run, fake.bootstrap, replaces=turn > 1))
                await trio.sleep(60)
                [left] = [each for each in (one, two) if not each.error]
                assert left.kproxy is not None
                await left.kproxy.log.record(lane(1))
                nursery.cancel_scope.cancel()


async def test_a_process_that_claims_at_the_same_moment_under_another_producer_id_is_fenced_too() -> None:
    async with open_fake_cluster(1) as fake, process(fake.bootstrap) as kproxy:
        other = Holder(Process(b"o" * 16, "host", 1, 0), KPROXY_BIT | 777, 0)

        def claim(_: object) -> None:
            log = fake.cluster.topics[TOPIC].partitions[partition_of("me", 4)].log
            log.append(memoryview(build_batch([Record(0, 0, encode_key("me"), encode_value(other))])), 0, 0)
            fake.cluster.controls.remove(control)

        control = fake.cluster.control(ApiKey.PRODUCE, claim)
        await kproxy.open()
        holder = holders(fake.cluster).holder
        assert holder is not None
        assert (holder.producer_id, holder.epoch) == (other.producer_id, 1)


async def test_a_process_that_was_stopped_for_a_day_writes_nothing_before_it_has_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker has forgotten both producers by then, and would accept what the older one writes."""
    monkeypatch.setattr(Presence, "state", lambda self, other: State.UNKNOWN)
    async with open_fake_cluster(1) as fake, first(fake.bootstrap, watches=False) as one:
        assert one.kproxy is not None
        await trio.sleep(60)
        async with process(fake.bootstrap, replaces=True) as two:
            await two.open()
            fake.cluster.topics[TOPIC].partitions[partition_of("me", 4)].log.producers._entries.clear()
            later = one.kproxy.cluster.network.wall() + 2 * 86_400
            monkeypatch.setattr(one.kproxy.cluster.network, "wall", lambda: later)
            one.kproxy.log.put(lane(1))
            await eventually(lambda: one.error is not None)
            assert entries(fake.cluster) == []


async def test_a_broker_that_lost_the_producer_makes_no_difference() -> None:
    async with open_fake_cluster(1) as fake, first(fake.bootstrap) as one:
        assert one.kproxy is not None
        await one.kproxy.log.record(lane(1))
        before = holders(fake.cluster).holder
        fake.cluster.control(ApiKey.PRODUCE, _lost, times=1)
        with trio.fail_after(60):
            await one.kproxy.log.record(lane(2))
        after = holders(fake.cluster).holder
        assert before is not None
        assert after is not None
        assert before.process == after.process
        assert before.producer_id != after.producer_id
        assert len(entries(fake.cluster)) == 2


def _lost(_: object) -> Answer:
    part = ProduceResponsePartitionProduceResponse(error_code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    return Answer(
        ProduceResponse(responses=[ProduceResponseTopicProduceResponse(name=TOPIC, partition_responses=[part])])
    )


async def test_what_was_copied_from_another_cluster_is_not_used() -> None:
    async with open_fake_cluster(1) as fake:
        async with process(fake.bootstrap) as kproxy:
            await kproxy.open()
            await kproxy.log.record(lane(1))
        fake.cluster.config = replace(fake.cluster.config, cluster_id="another")
        with structlog.testing.capture_logs() as lines:
            async with process(fake.bootstrap) as kproxy:
                await kproxy.open()
                assert kproxy.log.former(ONE) == []
                await kproxy.log.record(lane(2))
        [line] = [line for line in lines if "copied from another cluster" in line["event"]]
        assert line["producer_ids"] == 1
        holder, before = holders(fake.cluster).holder, holders(fake.cluster).before
        assert holder is not None
        assert before is not None
        assert holder.producer_id != before.producer_id
        assert holder.cluster_id == "another"


@pytest.mark.usefixtures("elsewhere")
async def test_a_note_that_a_mirror_copies_while_kproxy_runs_ends_nobody() -> None:
    async with open_fake_cluster(1) as fake, first(fake.bootstrap) as one:
        copied = Holder(Process(b"c" * 16, "host", 1, 0), KPROXY_BIT | 1, 0, "another")
        value = encode_value(copied, b"p" * BELL_BYTES)
        log = fake.cluster.topics[TOPIC].partitions[partition_of("me", 4)].log
        log.append(memoryview(build_batch([Record(0, 0, encode_key("me"), value)])), 0, 0)
        await trio.sleep(120)
        assert one.error is None
        holder = holders(fake.cluster).holder
        assert holder is not None
        assert holder.cluster_id != "another"  # it has written its own again


async def test_lost_connections_while_it_waits_are_no_end() -> None:
    async with open_fake_cluster(1) as fake, first(fake.bootstrap) as one:
        fake.cluster.control(ApiKey.FETCH, lambda _: Close(), times=5)
        await trio.sleep(120)
        assert one.error is None
        await refused(fake.bootstrap)


class _OwnLog:
    """The log's writer and reader of one process, without a network; a claim that is written twice is there once."""

    def __init__(self, name: InstanceName, other: Holder) -> None:
        self._name, self._other = name, other
        self._log: list[Record] = []
        self._read = 0
        self._claims: list[tuple[int, int]] = []

    def begin(self, producer_id: int, epoch: int) -> None:
        self._claims.append((producer_id, epoch))

    def withdraw(self, _: bytes) -> None:
        pass

    async def write(self, key: bytes, value: bytes, timestamp_ms: int) -> None:
        await trio.lowlevel.checkpoint()
        if self._claims[-1] in self._claims[:-1]:
            return
        own, other = (Record(0, timestamp_ms, key, one) for one in (value, encode_value(self._other)))
        self._log += [other, own]  # the other one keeps its note from expiring

    async def look(self) -> None:
        await trio.lowlevel.checkpoint()
        for record in self._log[self._read :]:
            self._name.holders.take(record)
        self._read = len(self._log)


async def test_of_two_processes_that_begin_at_the_same_time_the_one_that_claims_last_begins() -> None:
    """Its second note fences the other process, whose note was written again after its first one."""
    other = Holder(Process(b"o" * 16, "elsewhere", 1, 0), KPROXY_BIT | 1 << 20, 0)
    async with open_fake_cluster(1) as fake, process(fake.bootstrap) as kproxy:
        name = kproxy.log.name
        notes = _OwnLog(name, other)
        with trio.fail_after(60):
            await name.claim(cast(LaneWriter, notes), notes.look)
        assert name.holders.holder is not None
        assert name.holders.holder.fences(other)
