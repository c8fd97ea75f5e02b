"""What other instances have of a producer, and when it counts as shared."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio

from kproxy.codec.messages import ApiKey
from kproxy.config import Address, Config
from kproxy.dedup.lane_record import LaneRecord
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.net.fleet import Fleet
from kproxy.testing.fake_broker import Close, open_fake_cluster
from tests.net.lane_harness import ONE, TWO, instance, lane

NOW = 1_000_000.0


class Log:
    """Some records, as they are at each look."""

    enabled = True

    def __init__(self, *looks: list[LaneRecord]) -> None:
        self._looks = list(looks)
        self.now: list[LaneRecord] = []

    async def look(self) -> None:
        if self._looks:
            self.now = self._looks.pop(0)

    def elsewhere(self, _: object) -> list[LaneRecord]:
        return self.now


def fleet(log: Log, wall: Callable[[], float] = lambda: NOW, **options: Any) -> Fleet:
    given = {"fleet_retries_enable": True, "retry_window_ms": 60_000, "fleet_patience_ms": 1000, **options}
    config = Config(bootstrap_servers=(Address("broker", 9092),), **given)
    return Fleet(config, log, wall)  # type: ignore[arg-type]


def record(age: float, **more: Any) -> LaneRecord:
    return LaneRecord("other", KPROXY_BIT | 1, 0, 31, ONE, int((NOW - age) * 1000), **more)


async def test_what_others_hold_counts_for_ever_and_what_they_gave_back_for_the_window() -> None:
    old, gone, back = record(5000.0), record(61.0, returned=True), record(59.0, returned=True)
    found = fleet(log := Log())
    log.now = [old, gone, back]
    assert found.lanes(ONE) == [old, back]
    assert fleet(log, fleet_retries_enable=False).lanes(ONE) == []


async def test_what_is_held_is_waited_for_until_it_is_given_back(autojump_clock: trio.testing.MockClock) -> None:
    found = fleet(Log([record(1.0)], [record(1.0)], [record(0.0, returned=True)]))
    await found.look(ONE)
    assert trio.current_time() == pytest.approx(0.4)
    assert [one.returned for one in found.lanes(ONE)] == [True]


async def test_what_was_waited_for_in_vain_is_not_waited_for_again(autojump_clock: trio.testing.MockClock) -> None:
    found = fleet(Log([record(1.0)]))
    for _ in range(3):
        await found.look(ONE)
    assert trio.current_time() == pytest.approx(1.0)


async def test_two_fences_of_connections_in_use_show_that_a_producer_is_shared(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = Log([record(10.0)])
    found = fleet(log)
    found.fenced(ONE, NOW - 5.0, NOW - 20.0)
    await found.look(ONE)
    assert found.lanes(ONE)
    log.now = [record(4.0)]
    found.fenced(ONE, NOW - 1.0, NOW - 5.0)
    await found.look(ONE)
    assert found.is_shared(ONE)
    assert not found.is_shared(TWO)
    assert found.lanes(ONE) == log.now, "what the other one holds is compared"
    began = trio.current_time()
    await found.look(ONE)
    assert trio.current_time() == began, "and not waited for"


@pytest.mark.parametrize(("stall", "shared"), [(6.0, False), (1.0, True)])
async def test_a_request_that_was_read_after_a_stall_may_have_been_sent_before_it(
    stall: float, shared: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """The other instance leased its producer id four seconds ago: during a stall of six, before one of a second."""
    now = NOW
    found = fleet(log := Log(), lambda: now)
    for _ in range(3):
        log.now = [record(NOW - now + 4.0)]
        found.stalled(stall)
        now += 0.5
        found.fenced(ONE, now, now - 20.0)
        await found.look(ONE)
        now += 15.0
    assert found.is_shared(ONE) is shared


async def test_a_stall_with_short_breaks_is_one_stall(autojump_clock: trio.testing.MockClock) -> None:
    now = NOW
    found = fleet(log := Log(), lambda: now)
    for _ in range(2):
        for _ in range(3):
            now += 2.5
            found.stalled(2.0)
        log.now = [record(NOW - now + 4.0)]
        found.fenced(ONE, now, now - 20.0)
        await found.look(ONE)
        now += 15.0
    assert not found.is_shared(ONE)


@pytest.mark.parametrize("taken_at", [NOW - 10.5, NOW - 9.5])
async def test_a_request_from_before_the_lease_of_the_other_shows_nothing(
    taken_at: float, autojump_clock: trio.testing.MockClock
) -> None:
    """The client had failed over since; half a second is within what clocks may differ by."""
    found = fleet(Log([record(10.0)]))
    for _ in range(3):
        found.fenced(ONE, taken_at, NOW - 20.0)
        await found.look(ONE)
    assert not found.is_shared(ONE)


async def test_a_lease_that_is_older_than_the_fenced_one_shows_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """An instance that died holds its lease for ever; a lone client that moves to and fro is fenced by others."""
    found = fleet(Log([record(100.0)]))
    for nth in range(3):
        found.fenced(ONE, NOW - 15.0 + 5 * nth, NOW - 20.0 + 5 * nth)
        await found.look(ONE)
    assert not found.is_shared(ONE)


@pytest.mark.parametrize(("pause", "shared"), [(0.2, True), (3.0, False)])
async def test_leases_that_are_fenced_in_turn_at_once_show_that_a_producer_is_shared(
    pause: float, shared: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """The newer lease of the other process has hardly begun at each fence."""
    found = fleet(log := Log())
    for nth in range(3):
        at = NOW - 20.0 + nth * pause
        log.now = [record(NOW - at + 0.05)]
        found.fenced(ONE, at, at - 0.1)
        await found.look(ONE)
    assert found.is_shared(ONE) is shared


async def test_a_producer_is_shared_while_another_instance_says_so(autojump_clock: trio.testing.MockClock) -> None:
    log = Log([record(500.0, shared=True)])
    found = fleet(log)
    await found.look(ONE)
    assert found.is_shared(ONE)
    assert trio.current_time() == 0


async def test_what_a_process_held_that_has_ended_is_not_waited_for_and_shows_no_sharing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = fleet(Log([record(500.0, shared=True, is_left=True)]))
    await found.look(ONE)
    assert not found.is_shared(ONE)
    assert trio.current_time() == 0
    assert len(found.lanes(ONE)) == 1


@pytest.mark.parametrize("fences", [0, 1, 2])
async def test_what_is_known_of_a_producer_that_never_comes_back_is_freed(
    fences: int, autojump_clock: trio.testing.MockClock
) -> None:
    now, name = NOW, "-".join(["a", "client"])
    unused = sys.getrefcount(name)
    found = fleet(log := Log(), lambda: now)
    log.now = [record(10.0)]
    gone = ONE._replace(client_id=name)
    for _ in range(fences):
        found.fenced(gone, NOW, NOW - 20.0)
    await found.look(gone)
    found.fenced(gone, NOW, NOW - 20.0)
    del gone
    assert sys.getrefcount(name) > unused
    log.now, now = [], NOW + 61.0
    await found.look(TWO)
    assert sys.getrefcount(name) == unused


async def test_a_look_reads_what_was_written_before_it_and_no_instance_reads_its_own() -> None:
    async with (
        open_fake_cluster(2) as fake,
        instance(fake.bootstrap, instance_id="me") as me,
        instance(fake.bootstrap, instance_id="other") as other,
    ):
        await other.log.look()
        assert other.log.elsewhere(ONE) == []
        await me.log.record(lane(1))
        fake.cluster.control(ApiKey.LIST_OFFSETS, lambda _: Close(), times=1)
        await other.log.look()
        assert other.log.elsewhere(ONE) == [lane(1)]
        other.log.put(lane(2)._replace(instance_id="other"))
        with trio.fail_after(10):
            while not me.log.elsewhere(ONE):
                await me.log.look()
        assert [one.instance_id for one in me.log.elsewhere(ONE)] == ["other"]
