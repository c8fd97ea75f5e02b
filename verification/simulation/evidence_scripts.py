"""Runs made by hand about what a client has received: late acknowledgements, cut routes, processes that come and go.

The seed decides the order of what happens at one time, and the rest of the network's timing.
"""

from collections.abc import Callable
from typing import Any, Final

import trio

from verification.simulation.history import State
from verification.simulation.link import Link
from verification.simulation.plan import TOPIC, ClientPlan, Plan, Relay, Send, plain_client
from verification.simulation.tcp import AckHabits
from verification.simulation.weather import Weather
from verification.simulation.world import World

#: Clients of the formats before timestamps.
_UNTIMED: Final[dict[str, Any]] = {"magic": 0, "version": 1}
#: Of two processes.
_ONE_NAME: Final[dict[str, Any]] = {"client_id": "rdkafka", "host": "10.0.0.1"}
#: The client's kernel acknowledges late, as it may.
#: Seconds until kproxy has made its own topics.
_PREPARED: Final = 5.0
_LATE: Final = Weather(acks=AckHabits((0.04,), 0.0))
_LATER: Final = Weather(acks=AckHabits((0.2,), 0.0))


def _client(number: int, *sends: tuple[float, bytes], **more: Any) -> ClientPlan:
    """A producer of single records for partition 0, each so many seconds after the one before."""
    return plain_client(number, tuple(Send(gap, ((0, (value,)),)) for gap, value in sends), **more)


async def _acknowledged(world: World, client: int, records: int) -> Link:
    """The connection of a client that has read so many successes."""
    while True:
        done = [one for one in world.history.records if one.client.number == client and one.state is State.OK]
        link = world.clients[client].link if world.clients else None
        if len(done) >= records and link is not None:
            return link
        await trio.sleep(0.001)


async def _written(world: World) -> Link:
    """The connection of the first client, once a record is in the log."""
    log = world.brokers.topics[TOPIC].partitions[0].log
    while log.end_offset < 1:  # noqa: ASYNC110 - a broker's log, unannounced
        await trio.sleep(0.001)
    link = world.clients[0].link
    assert link is not None
    return link


# -- connections that ended in good order (A1)


def process_for_each(seed: int) -> Plan:
    """One process for each record, without timestamps: open, closed, open, closed, open."""
    values = (b"open", b"closed", b"open", b"closed", b"open")
    sends = tuple((0.3, value) for value in values)
    return Plan(seed, (_client(0, *sends, closes_each=True, **_UNTIMED),), (), strict=True)


def run_twice(seed: int) -> Plan:
    """A script of twenty equal records is run twice."""
    once, then = (0.3, b"x"), ((0.0, b"x"),) * 19
    clients = (
        _client(0, once, *then, **_UNTIMED, **_ONE_NAME),
        _client(1, (3.0, b"x"), *then, **_UNTIMED, **_ONE_NAME),
    )
    return Plan(seed, clients, (), strict=True)


def heartbeat(seed: int) -> Plan:
    """A heartbeat every 5 s, without timestamps, each over a connection of its own."""
    return Plan(seed, (_client(0, *[(5.0, b"up")] * 8, closes_each=True, **_UNTIMED),), (), strict=True)


# -- acknowledgements that do not come (A3)


def _cut_after_success(seed: int, weather: Weather, *, back: bool) -> Plan:
    async def script(world: World) -> None:
        link = await _acknowledged(world, 0, 1)
        world.network.cut_route("10.0.0.1", "kproxy-0", 1.6, back=back)
        await trio.sleep(1.6)
        link.cut()

    client = _client(0, (0.5, b"x"), (3.0, b"x"), (0.5, b"y"))
    return Plan(seed, (client,), (), script=script, strict=True, weather=weather)


def cut_before_ack(seed: int) -> Plan:
    """A client reads a success; its route is cut before its kernel acknowledges, and the connection reset after 1.6 s.

    It writes an equal record then, with another timestamp.
    """
    return _cut_after_success(seed, _LATE, back=True)


def acks_lost(seed: int) -> Plan:
    """A variant of ``cut_before_ack``: only the bytes that the client sends are lost."""
    return _cut_after_success(seed, _LATER, back=False)


# -- two programs of one name (A4)


def two_programs(seed: int) -> Plan:
    """Two programs with one name and host write equal records with equal timestamps; one loses its acknowledgement.

    The connection of the other was in use long before that. A first record of each has kproxy make its own topics:
    if that took so long that one came only after the other had left, the two would count as one.
    """

    async def script(world: World) -> None:
        link = await _acknowledged(world, 0, 3)
        await trio.sleep(0.5)
        link.down.stall(9.0)  # kproxy's response does not arrive
        await trio.sleep_until(_PREPARED + 2.7)
        link.cut()

    soon, later = (0.1, b"o"), (0.2, b"p")
    sends = (soon, (_PREPARED, b"a"), (0.9, b"d"), (1.1, b"x"))
    first = _client(0, *sends, clock_ms=1000, backoffs=(9.0,), **_ONE_NAME)
    second = _client(1, later, (_PREPARED + 0.1, b"b"), (2.6, b"x"), (0.1, b"c"), clock_ms=1000, **_ONE_NAME)
    return Plan(seed, (first, second), (), script=script, strict=True)


def relayed(seed: int) -> Plan:
    """A relay that nobody declared loses its client, ends the connection in good order, and reads on for 5 s.

    It has passed on more requests than kproxy has read, so that kproxy can't see the end: all that it writes is
    acknowledged, also after the client has sent everything again over another connection.
    """

    async def script(world: World) -> None:
        link = await _acknowledged(world, 0, 3)
        link.cut()

    sends = tuple((0.001, b"%d" % nth) for nth in range(60))
    habits = {"depth": 1000, "backoffs": (0.05,), "tries": 1000, "clock_ms": 1000, "relay": Relay.UNKNOWN}
    client = _client(0, *sends, **habits, **_ONE_NAME)
    weather = Weather(clients=(0.001,), brokers=(0.05,), capacities=(700,))
    return Plan(seed, (client,), (), script=script, strict=True, weather=weather)


# -- how many requests precede an acknowledgement (B5)


def deep_and_far(seed: int) -> Plan:
    """A client 100 ms away with a thousand requests in flight; its connection is reset twice."""

    async def script(world: World) -> None:
        for time in 1.0, 2.0:
            await trio.sleep_until(time)
            link = world.clients[0].link
            if link is not None:
                link.cut()

    sends = tuple((0.004, b"%d" % nth) for nth in range(400))
    client = _client(0, *sends, depth=1000, backoffs=(0.1,), tries=1000)
    weather = Weather(clients=(0.07,), brokers=(0.001,), capacities=(65_536,))
    return Plan(seed, (client,), (), script=script, strict=True, weather=weather)


def reads_late(seed: int) -> Plan:
    """A response takes 5 s to a client's kernel. The client waits for the end of a write then, and does not read it.

    It gives up and closes its connection after its time-out. kproxy learns of that 10 s after it wrote the response,
    and 5 s after that arrived.
    """

    async def script(world: World) -> None:
        link = await _written(world)
        link.down.stall(5.0)
        await trio.sleep(3.9)
        link.up.stall(6.5)

    habits = {"depth": 5, "request_timeout": 6.0, "timeout_ms": 30_000, "backoffs": (5.0,), **_UNTIMED}
    client = _client(0, (0.5, b"x"), (4.3, bytes(5000)), **habits)
    weather = Weather(clients=(0.001,), brokers=(0.001,), capacities=(700,))
    return Plan(seed, (client,), (), script=script, weather=weather, options={"clients_request_timeout_ms": 6000})


def late_on_the_way(seed: int) -> Plan:
    """A response takes 7 s to a client's kernel. The client gives up after 6 s, and sends the request again there."""

    async def script(world: World) -> None:
        link = await _written(world)
        link.down.stall(7.0)

    client = _client(0, (0.5, b"x"), depth=2, request_timeout=6.0, closes_on_timeout=False)
    return Plan(seed, (client,), (), script=script, weather=Weather(clients=(0.001,), brokers=(0.001,)))


# -- connections that were left (B6)


def overtaken(seed: int) -> Plan:
    """A client closes a slow connection with a request in flight, and sends it again over a fast one.

    The retry arrives first, then the request, then the end of its connection.
    """

    async def script(world: World) -> None:
        link = await _acknowledged(world, 0, 1)
        link.up.latency = 0.5
        await trio.sleep_until(1.3)
        link.near.close()

    client = _client(0, (0.5, b"a"), (0.5, b"b"), (2.0, b"c"), backoffs=(0.02,))
    return Plan(seed, (client,), (), script=script, weather=Weather(clients=(0.001,), brokers=(0.001,)))


def short_cut_route(seed: int) -> Plan:
    """A route is cut for 4 s when a request has been written; its client gives up after 3 s, and retries."""
    return _cut_route(seed, 4.0, 3.0)


# -- a user time-out (B6)


def long_cut_route(seed: int) -> Plan:
    """A route is cut for 43 s when a request has been written; its client gives up after 30 s, and retries."""
    return _cut_route(seed, 43.0, 30.0)


def _cut_route(seed: int, seconds: float, patience: float) -> Plan:
    async def script(world: World) -> None:
        log = world.brokers.topics[TOPIC].partitions[0].log
        while log.end_offset < 2:  # noqa: ASYNC110 - a broker's log, unannounced
            await trio.sleep(0.001)
        world.network.cut_route("10.0.0.1", "kproxy-0", seconds)

    timeout_ms = int(patience * 1000)
    client = _client(0, (0.2, b"z"), (0.8, b"a"), (0.1, b"b"), request_timeout=patience, timeout_ms=timeout_ms)
    return Plan(seed, (client,), (), script=script, options={"clients_request_timeout_ms": timeout_ms})


Script = Callable[[int], Plan]
#: By the item of the issue that they show.
BY_ITEM: Final[dict[str, tuple[Script, ...]]] = {
    "A1": (process_for_each, run_twice, heartbeat),
    "A3": (cut_before_ack, acks_lost),
    "A4": (two_programs, relayed),
    "B5": (deep_and_far, reads_late, late_on_the_way),
    "B6": (overtaken, short_cut_route, long_cut_route),
}
