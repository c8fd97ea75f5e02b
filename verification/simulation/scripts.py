"""Runs made by hand: one or two clients and what befalls them, to show what random runs hit too seldom.

The seed of such a run decides how fast its network is, and in which order things happen that happen at one time.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import trio

from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.lane_topic import TOPIC as LANES
from kproxy.net.lane_topic import partition_of
from kproxy.testing.fake_broker import Call, CloseAfter, Delay, Drop
from kproxy.testing.fake_broker.controls import Fault
from verification.simulation.contents import Labels
from verification.simulation.faults import refusal
from verification.simulation.plan import (
    OLD,
    PARTITIONS,
    TOPIC,
    ClientPlan,
    FaultPlan,
    Plan,
    Send,
    instance_name,
    plain_client,
)
from verification.simulation.tastes import FLEET
from verification.simulation.world import World

Script: TypeAlias = Callable[[World], Awaitable[None]]

_LIMIT: Final = 1 << 20


def _client(number: int, *sends: tuple[float, bytes], **more: Any) -> ClientPlan:
    """A producer of single records for partition 0, each so many seconds after the one before."""
    return plain_client(number, tuple(Send(gap, ((0, (value,)),)) for gap, value in sends), **more)


def _on(world: World, value: bytes, *faults: Callable[[Call], Fault | None] | None) -> None:
    """Sets the fault of the first request with a record, of the second, and so on; None: it is served."""
    left = list(faults)

    def control(call: Call) -> Fault | None:
        if not left or not _has(call, value):
            return None
        fault = left.pop(0)
        return None if fault is None else fault(call)

    world.brokers.control(ApiKey.PRODUCE, control)


def _has(call: Call, value: bytes) -> bool:
    return any(
        record.value == value
        for topic in call.request.topic_data
        for part in topic.partition_data
        for record in iter_records(part.records, max_decompressed_bytes=_LIMIT)
    )


async def _cut(world: World, number: int, time: float) -> None:
    """The connection of a client breaks."""
    await trio.sleep_until(time)
    link = world.clients[number].link
    if link is not None:
        link.cut()


async def _cut_next(world: World, time: float) -> None:
    """The connection of the first client breaks with the next request that it sends after a time.

    A late response is no matter as long as the connection lives.
    """
    await trio.sleep_until(time)
    link = world.clients[0].link
    if link is not None:
        link.cut_after(1, answers=False)


def overtaken(seed: int) -> Plan:
    """Two requests in flight under a new producer id; the broker puts the first off, and would take the second."""

    async def script(world: World) -> None:
        _on(world, b"a", lambda call: refusal(call, ErrorCode.NOT_ENOUGH_REPLICAS))

    return Plan(seed, (_client(0, (0.5, b"a"), (0.0, b"b"), depth=2),), (), script=script)


def forgotten(seed: int) -> Plan:
    """The broker forgets a producer that is silent; then it puts the first of two requests in flight off."""

    async def script(world: World) -> None:
        _on(world, b"a", lambda call: refusal(call, ErrorCode.NOT_ENOUGH_REPLICAS))
        await trio.sleep_until(4.0)
        world.expire_producers(0)

    return Plan(seed, (_client(0, (0.5, b"z"), (6.0, b"a"), (0.0, b"b"), depth=2),), (), script=script)


def lagging(seed: int) -> Plan:
    """The last batch is not replicated when kproxy is killed; soon after its return it is, and can be read."""

    async def script(world: World) -> None:
        partition = world.brokers.topics[TOPIC].partitions[0]
        await trio.sleep_until(1.0)
        partition.hold(2)
        await trio.sleep_until(3.0)
        await world.crash(0, 0.01)
        await trio.sleep_until(4.3)
        partition.follow(2)
        world.brokers.notify()

    return Plan(seed, (_client(0, (0.2, b"z"), (1.5, b"a")),), (), script=script)


def refused(seed: int) -> Plan:
    """A batch is refused for good, while a copy of the next one is in flight for long."""

    async def script(world: World) -> None:
        _on(world, b"a", lambda call: refusal(call, ErrorCode.CORRUPT_MESSAGE))
        _on(world, b"b", lambda _: Delay(before=12.0))
        await trio.sleep_until(16.0)

    sends = (0.2, b"z"), (1.0, b"a"), (0.0, b"b")
    return Plan(seed, (_client(0, *sends, depth=2, tries=1),), (), script=script)


def reloaded(seed: int) -> Plan:
    """The responses to two batches are lost, and the broker comes back knowing only the last one of a producer."""

    async def script(world: World) -> None:
        def reload(_: Call) -> None:
            producers = world.brokers.topics[TOPIC].partitions[0].log.producers
            producers.reload(world.brokers.clock())  # as measured, after kill -9

        _on(world, b"a", lambda _: Drop(apply=True), reload)
        _on(world, b"b", lambda _: CloseAfter())

    sends = (0.2, b"z"), (1.0, b"a"), (0.0, b"b")
    return Plan(seed, (_client(0, *sends, depth=2),), (), script=script)


def handed_on(seed: int) -> Plan:
    """A producer has gone, another has come, kproxy is killed; then the second writes what the first has written."""

    async def script(world: World) -> None:
        await trio.sleep_until(4.0)
        await world.crash(0, 0.1)

    first, second = (
        _client(0, (0.2, b"x"), magic=0, version=1),
        _client(1, (2.0, b"y"), (4.0, b"x"), magic=0, version=1),
    )
    return Plan(seed, (first, second), (), script=script, strict=True)


def left_open(seed: int) -> Plan:
    """A connection breaks while a batch is in flight, and kproxy is killed; its retry comes before the batch does."""

    async def script(world: World) -> None:
        _on(world, b"a", lambda _: Delay(before=6.0))
        await _cut(world, 0, 2.0)
        await trio.sleep_until(3.0)
        await world.crash(0, 0.1)

    return Plan(seed, (_client(0, (0.2, b"z"), (1.0, b"a"), (6.0, b"b"), backoffs=(2.0,)),), (), script=script)


async def _hold_answers(world: World, number: int, time: float, seconds: float) -> None:
    """No response reaches a client over the connection that it has at that time."""
    await trio.sleep_until(time)
    link = world.clients[number].link
    assert link is not None
    link.down.stall(seconds)


async def _stop(world: World, index: int, time: float) -> None:
    """A kproxy ends in good order, and starts again."""
    await trio.sleep_until(time)
    server = world.instances[index].server
    assert server is not None
    await server.drain()
    await world.crash(index, 0.1)


def stopped(seed: int) -> Plan:
    """A connection breaks with a response in flight; kproxy stops in good order and starts; then comes the retry."""

    async def script(world: World) -> None:
        await _hold_answers(world, 0, 0.9, 5.0)
        await _cut(world, 0, 2.0)
        await _stop(world, 0, 2.5)

    return Plan(seed, (_client(0, (0.2, b"z"), (1.0, b"a"), backoffs=(3.0,)),), (), script=script)


def long_before(seed: int) -> Plan:
    """kproxy is killed; the next record equals one that was acknowledged long before, and has no timestamp."""

    async def script(world: World) -> None:
        await trio.sleep_until(12.0)
        await world.crash(0, 0.1)

    between = [(1.0, b"y%d" % nth) for nth in range(9)]
    client = _client(0, (0.5, b"x"), *between, (5.0, b"x"), magic=0, version=1)
    return Plan(seed, (client,), (), script=script, strict=True)


def deep(seed: int) -> Plan:
    """Many requests of some seconds are without a response when kproxy is killed."""

    async def script(world: World) -> None:
        await _hold_answers(world, 0, 0.9, 20.0)
        await _cut(world, 0, 9.0)
        await world.crash(0, 0.1)

    sends = (0.2, b"z"), *((0.7, b"%d" % nth) for nth in range(11))
    return Plan(seed, (_client(0, *sends, depth=12, request_timeout=30.0),), (), script=script)


def not_there_yet(seed: int) -> Plan:
    """A batch for a partition that does not exist is in flight for long; its client goes to another instance.

    Then the partition appears, and then the batch arrives.
    """

    async def script(world: World) -> None:
        _on(world, b"a", lambda _: Delay(before=16.0))
        await trio.sleep_until(14.0)
        world.grow()
        await trio.sleep_until(20.0)

    sends = Send(0.2, ((0, (b"z",)),)), Send(1.0, ((PARTITIONS, (b"a",)),)), Send(1.0, ((0, (b"b",)),))
    client = plain_client(0, sends, request_timeout=2.0, tries=1000, instances=2)
    return Plan(seed, (client,), (), 2, dict(FLEET.options), script=script)


def expired(seed: int) -> Plan:
    """Brokers forget the producer of records two days old at once; a response is lost."""

    async def script(world: World) -> None:
        _on(world, b"a", lambda _: CloseAfter())

    clients = (_client(0, (0.2, b"z"), (1.0, b"a"), (1.0, b"b"), age=OLD),)
    return Plan(seed, clients, (), script=script, expiry_check_ms=1)


def swept(seed: int) -> Plan:
    """A record whose response is lost is compacted away, for a newer one with its key, before it is sent again."""

    async def script(world: World) -> None:
        await trio.sleep_until(0.9)
        link = world.clients[0].link
        assert link is not None
        link.down.stall(5.0)
        await _cut(world, 0, 2.5)
        await trio.sleep_until(5.0)
        world.compact(0)

    clients = (
        _client(0, (1.0, b"a"), labels=Labels((b"k",)), backoffs=(6.0,)),
        _client(1, (3.5, b"b"), labels=Labels((b"k",))),
    )
    return Plan(seed, clients, (), script=script, topic=(("cleanup.policy", "compact"),))


def unanswered(seed: int) -> Plan:
    """A connection breaks after a response; another process of that name writes the same and wants no response."""

    async def script(world: World) -> None:
        await _cut(world, 0, 2.0)

    same: dict[str, Any] = {"client_id": "c", "host": "10.0.0.1", "magic": 0, "version": 1}
    clients = (_client(0, (0.5, b"x"), (8.0, b"z"), **same), _client(1, (3.0, b"x"), (0.1, b"y"), acks=0, **same))
    return Plan(seed, clients, (), script=script, strict=True)


def half_told(seed: int) -> Plan:
    """The first of two equal records in flight is acknowledged; the second is sent again on another connection."""

    async def script(world: World) -> None:
        _on(world, b"x", None, lambda _: Delay(after=1.0))
        await _cut(world, 0, 2.2)

    client = _client(0, (0.5, b"z"), (1.0, b"x"), (0.0, b"x"), depth=2, magic=0, version=1)
    return Plan(seed, (client,), (), script=script, strict=True)


def late_told(seed: int) -> Plan:
    """The first of two equal records is acknowledged too late; the second waited for so long that it was refused.

    The first is alone in flight after a silence; the next one waits for it, and the one after that is not accepted.
    """

    return _late(seed, 3.65)


def late_written(seed: int) -> Plan:
    """The same, but the first is acknowledged while the second still waits, which was read long before."""
    return _late(seed, 3.6)


def _late(seed: int, seconds: float) -> Plan:
    async def script(world: World) -> None:
        _on(world, b"x", lambda _: Delay(before=seconds))
        await _cut_next(world, 5.0)

    sends = (0.2, b"z"), (3.0, b"x"), (0.0, b"y"), (0.0, b"x")
    return Plan(seed, (_client(0, *sends, depth=3, magic=0, version=1),), (), script=script, strict=True)


def told_beside(seed: int) -> Plan:
    """The first of two equal records receives a time-out, and the second a success; then the connection breaks.

    Both are in the log then, and only the first is sent again.
    """

    async def script(world: World) -> None:
        _on(world, b"x", lambda _: Delay(before=3.8))
        await trio.sleep_until(4.6)
        link = world.clients[0].link
        assert link is not None
        link.up.stall(1.5)
        await _cut(world, 0, 5.8)

    sends = (0.2, b"z"), (1.04, b"x"), (1.0, b"x")
    client = _client(0, *sends, depth=2, magic=0, version=1)
    return Plan(seed, (client,), (), script=script, strict=True)


def late_leased(seed: int) -> Plan:
    """A request waits for a producer id; another one arrives meanwhile, and an equal record long after it.

    In between a request after a silence shows that all was received, and the connection breaks.
    """

    async def script(world: World) -> None:
        slow = [Delay(before=1.6)]
        world.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda _: slow.pop() if slow else None)
        _on(world, b"x", lambda _: Delay(before=1.9))
        await _cut_next(world, 8.8)

    sends = (0.36, b"z"), (1.4, b"x"), (6.0, b"y"), (2.0, b"x")
    return Plan(seed, (_client(0, *sends, depth=2, magic=0, version=1),), (), script=script, strict=True)


def long_had(seed: int) -> Plan:
    """A connection breaks long after a record that is then written once more, as a new one."""

    async def script(world: World) -> None:
        await _cut(world, 0, 6.0)

    between = [(0.2, b"y%d" % nth) for nth in range(14)]
    client = _client(0, (0.5, b"x"), *between, (4.0, b"x"), magic=0, version=1)
    return Plan(seed, (client,), (), script=script, strict=True)


def long_given_up(seed: int) -> Plan:
    """A connection becomes half-open and is given up; long after that a response is lost."""

    async def script(world: World) -> None:
        await trio.sleep_until(39.5)
        link = world.clients[0].link
        assert link is not None
        link.down.stall(5.0)
        await _cut(world, 0, 41.0)

    sends = (0.2, b"z"), (1.5, b"a"), (38.3, b"b"), (5.0, b"c")
    return Plan(seed, (_client(0, *sends),), (FaultPlan(1.0, "half_open", 0.0, 0.0),), script=script)


def long_cut(seed: int) -> Plan:
    """A connection breaks; on the next one, to which nothing happens, two equal records follow each other."""

    async def script(world: World) -> None:
        await _cut(world, 0, 1.0)

    client = _client(0, (0.2, b"z"), (2.0, b"y"), (2.0, b"x"), (1.0, b"x"), magic=0, version=1)
    return Plan(seed, (client,), (), script=script)


def one_each(seed: int) -> Plan:
    """A process for each of some equal records; each closes its connection in good order."""
    same: dict[str, Any] = {"client_id": "c", "host": "10.0.0.1", "magic": 0, "version": 1}
    return Plan(seed, tuple(_client(number, (0.5 + number, b"x"), **same) for number in range(4)), (), strict=True)


def told_and_cut(seed: int) -> Plan:
    """A client has read a response when its connection breaks; then it sends an equal record at another time."""

    async def script(world: World) -> None:
        await _cut(world, 0, 1.0)

    return Plan(seed, (_client(0, (0.5, b"x"), (1.5, b"x")),), (), script=script, strict=True)


def two_programs(seed: int) -> Plan:
    """Two programs of one name send equal records at the same time; the connection of one breaks before the response.

    The other one's record arrives after that.
    """

    async def script(world: World) -> None:
        await trio.sleep_until(1.9)
        links = [client.link for client in world.clients]
        assert links[0] is not None
        assert links[1] is not None
        links[0].down.stall(5.0)
        links[1].up.stall(1.2)
        await _cut(world, 0, 2.5)

    same: dict[str, Any] = {"client_id": "c", "host": "10.0.0.1"}
    first = _client(0, (0.2, b"w"), (0.8, b"w2"), (1.0, b"x"), (4.0, b"y"), backoffs=(3.0,), **same)
    return Plan(seed, (first, _client(1, (0.6, b"z"), (1.4, b"x"), **same)), (), script=script, strict=True)


def far_away(seed: int) -> Plan:
    """More than ten requests arrive while the responses are in flight; then the connection breaks."""

    async def script(world: World) -> None:
        await trio.sleep_until(1.5)
        link = world.clients[0].link
        assert link is not None
        link.down.stall(5.0)
        await _cut(world, 0, 4.5)

    sends = [(0.2, b"z"), *((1.6 if nth == 0 else 0.05, b"%d" % nth) for nth in range(30))]
    client = _client(0, *sends, depth=40)
    return Plan(seed, (client,), (), options={"clients_in_flight": 5}, script=script)


def led_away(seed: int) -> Plan:
    """A partition's leader moves; what the client sends in rounds is refused, and repeated at the new leader."""

    async def script(world: World) -> None:
        for first in b"0", b"3":
            _on(world, first, lambda _: Delay(after=0.3))  # all of its round is at kproxy then
        await trio.sleep_until(1.5)
        second = world.brokers.topics[TOPIC].partitions[1].leader
        world.brokers.move_leader(TOPIC, 0, second)

    gaps = {0: 1.0, 3: 1.0}
    sends = (0.2, b"z"), *((gaps.get(nth, 0.0), b"%d" % nth) for nth in range(16))
    client = _client(0, *sends, depth=3, in_rounds=True, keeps_connections=True)
    return Plan(seed, (client,), (), script=script)


def spaced_round(seed: int) -> Plan:
    """A broker is slow, and the last two requests of a round, one some time after the other, can't be taken in time.

    The second one is refused long after the client received that of the first one, which it had sent before.
    """

    async def script(world: World) -> None:
        _on(world, b"0", lambda _: Delay(before=12.0))

    sends = (0.2, b"z"), *((6.0 if nth == 0 else 0.7, b"%d" % nth) for nth in range(7)), (9.0, b"c")
    client = _client(0, *sends, depth=7, in_rounds=True, fills_for=5.0, timeout_ms=6000, request_timeout=20.0)
    return Plan(seed, (client,), (), script=script)


def led_back(seed: int) -> Plan:
    """A partition's leader moves and moves back; the client's retry comes over its older connection, to the first.

    The request that it repeats came over a newer one, and waits for a producer id until after that.
    """

    async def script(world: World) -> None:
        await trio.sleep_until(1.0)
        first, second = (world.brokers.topics[TOPIC].partitions[at].leader for at in range(2))
        world.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda _: Delay(before=1.8))
        world.brokers.move_leader(TOPIC, 0, second)
        await trio.sleep_until(2.5)
        world.brokers.move_leader(TOPIC, 0, first)

    # kproxy follows the leader with the first record after the move, and tells the client so with the second
    sends = (0.2, b"z"), (1.0, b"x"), (0.5, b"a"), (0.1, b"b"), (4.0, b"c")
    client = _client(0, *sends, request_timeout=1.0, backoffs=(0.02,), keeps_connections=True)
    return Plan(seed, (client,), (), script=script)


#: Entries of the log of producer ids count for 70 s; all that happens takes that time as a week.
_SOON_EXPIRED: Final = {"producer_state_log_retention_ms": 70_000, "retry_window_ms": 10_000}


async def _weeks(world: World, until: float) -> None:
    """Brokers delete what they may."""
    while trio.current_time() < until:
        await trio.sleep(10)
        world.brokers.apply_retention()


def outlived(seed: int) -> Plan:
    """A connection lasts for longer than an entry; then a batch is in flight for long, and its client moves."""

    async def script(world: World) -> None:
        _on(world, b"a", lambda _: Delay(before=12.0))
        await _weeks(world, 170)

    sends = Send(0.2, ((0, (b"z",)),)), Send(150.0, ((0, (b"a",)),)), Send(1.0, ((0, (b"b",)),))
    client = plain_client(0, sends, request_timeout=2.0, tries=1000, instances=2)
    return Plan(seed, (client,), (), 2, {**dict(FLEET.options), **_SOON_EXPIRED}, script=script)


def outlived_and_killed(seed: int) -> Plan:
    """A connection lasts for longer than an entry; then a batch is in flight for long, and kproxy is killed."""

    async def script(world: World) -> None:
        _on(world, b"a", lambda _: Delay(before=6.0))
        await _weeks(world, 150)
        await _cut(world, 0, 152.0)
        await trio.sleep_until(153.0)
        await world.crash(0, 0.1)
        await trio.sleep_until(170.0)

    client = _client(0, (0.2, b"z"), (151.0, b"a"), (6.0, b"b"), backoffs=(2.0,))
    return Plan(seed, (client,), (), options=dict(_SOON_EXPIRED), script=script)


def unrecorded(seed: int) -> Plan:
    """A variant of ``outlived``: the client's instance can't write its partition of the log until the client moves."""

    async def script(world: World) -> None:
        _on(world, b"a", lambda _: Delay(before=12.0))
        await trio.sleep_until(1.0)
        refused = world.brokers.control(ApiKey.PRODUCE, _refuses_entries)
        await _weeks(world, 100)
        await trio.sleep_until(103)
        world.brokers.controls.remove(refused)
        await trio.sleep_until(120)

    sends = Send(0.2, ((0, (b"z",)),)), Send(100.0, ((0, (b"a",)),)), Send(1.0, ((0, (b"b",)),))
    client = plain_client(0, sends, request_timeout=2.0, tries=1000, instances=2)
    return Plan(seed, (client,), (), 2, {**dict(FLEET.options), **_SOON_EXPIRED}, script=script)


def _refuses_entries(call: Call) -> Fault | None:
    own = (LANES, partition_of(instance_name(0), len(call.cluster.topics[LANES].partitions)))
    written = {(topic.name, part.index) for topic in call.request.topic_data for part in topic.partition_data}
    return refusal(call, ErrorCode.NOT_ENOUGH_REPLICAS) if own in written else None
