"""Faults, by name: each strikes once, at a place and with a force that two numbers decide."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.testing.fake_broker import Answer, Call, CloseAfter, Delay, Drop, Edit
from kproxy.testing.fake_broker.controls import Fault
from verification.simulation.instance import LEG
from verification.simulation.link import Link
from verification.simulation.plan import BROKERS, BUSY_SECONDS, PARTITIONS, TOPIC, FaultPlan

if TYPE_CHECKING:
    from verification.simulation.world import World

T = TypeVar("T")
BROKER_LEG: Final = "broker"
#: Most bytes that still go through before a connection is cut.
_CUT_BYTES: Final = 600
_LONGEST_DELAY: Final = 9.0
#: Longest that a broker holds a request: it may outlive the connection, and the kproxy, that sent it.
_LONGEST_HOLD: Final = 5.0
_LONGEST_OUTAGE: Final = 6.0
#: Clocks jump by an hour at most, either way.
_LARGEST_JUMP: Final = 3600
#: A route is cut for 1 to so many seconds.
_LONGEST_CUT: Final = 60.0


async def strike(world: "World", fault: FaultPlan) -> None:
    """Lets one fault happen."""
    world.history.note(f"fault {fault.kind} ({fault.where:.3f}, {fault.much:.3f})")
    await _KINDS[fault.kind](world, fault)


def _pick(items: Sequence[T], where: float) -> T | None:
    return items[int(where * len(items))] if items else None


def _link(leg: str, harm: Callable[["World", Link, FaultPlan], None]) -> Callable[["World", FaultPlan], Any]:
    async def strike_link(world: "World", fault: FaultPlan) -> None:
        link = _pick(world.network.live(leg), fault.where)
        if link is not None:
            world.history.note(f"harms connection {link.number} of {link.hosts[0]} to {link.hosts[1]}")
            for client in world.clients:
                if client.has(link):
                    world.history.troubled.add(client.plan.number)
            harm(world, link, fault)

    return strike_link


def _cut(_: "World", link: Link, fault: FaultPlan) -> None:
    link.cut_after(1 + int(fault.much * _CUT_BYTES), answers=False)


def _cut_answer(_: "World", link: Link, fault: FaultPlan) -> None:
    link.cut_after(1 + int(fault.much * _CUT_BYTES / 10), answers=True)


def _upstream_cut(_: "World", link: Link, fault: FaultPlan) -> None:
    answers = fault.much < 0.5
    link.cut_after(1 + int(fault.much * _CUT_BYTES) % 200, answers=answers)


def _delay(_: "World", link: Link, fault: FaultPlan) -> None:
    link.stall(fault.much * _LONGEST_DELAY)


def _half_open(_: "World", link: Link, __: FaultPlan) -> None:
    link.vanish()


def _route(*, there: bool = True, back: bool = True) -> Callable[["World", Link, FaultPlan], None]:
    def cut(world: "World", link: Link, fault: FaultPlan) -> None:
        one, other = link.hosts
        world.network.cut_route(one, other, _LONGEST_CUT**fault.much, there=there, back=back)
        for client in world.clients:
            if client.plan.host == one:
                world.history.troubled.add(client.plan.number)

    return cut


async def _balancer(world: "World", _: FaultPlan) -> None:
    world.balancer.restart()


def _close(_: "World", link: Link, __: FaultPlan) -> None:
    link.near.close()


def _slow_reader(world: "World", link: Link, fault: FaultPlan) -> None:
    for client in world.clients:
        if client.link is link:
            client.reads_from = trio.current_time() + fault.much * _LONGEST_DELAY


async def _crash(world: "World", fault: FaultPlan) -> None:
    await world.crash(int(fault.where * len(world.instances)), 0.01 + fault.much * 2)


async def _clock(world: "World", fault: FaultPlan) -> None:
    world.jump((fault.much - 0.5) * 2 * _LARGEST_JUMP)


async def _leader(world: "World", fault: FaultPlan) -> None:
    index = int(fault.where * PARTITIONS)
    topic = world.brokers.topics.get(TOPIC)
    if topic is not None:
        in_sync = sorted(topic.partitions[index].isr)
        able = [node for node in in_sync if world.brokers.brokers[node].serves]
        node = _pick(able, fault.much)
        if node is not None:
            world.brokers.move_leader(TOPIC, index, node)


async def _broker(world: "World", fault: FaultPlan) -> None:
    await world.bounce(1 + int(fault.where * BROKERS), fault.much * _LONGEST_OUTAGE)


async def _controller(world: "World", fault: FaultPlan) -> None:
    world.brokers.controller_down()
    await trio.sleep(fault.much * _LONGEST_OUTAGE)
    world.brokers.controller_up()


async def _disk(world: "World", fault: FaultPlan) -> None:
    node = 1 + int(fault.where * BROKERS)
    if not world.brokers.brokers[node].failed:
        world.brokers.disk_full(node)
        await trio.sleep(fault.much * _LONGEST_OUTAGE)
        await world.repair(node)


async def _lag(world: "World", fault: FaultPlan) -> None:
    node = 1 + int(fault.where * BROKERS)
    world.brokers.pause_replication(node)
    await trio.sleep(fault.much * _LONGEST_OUTAGE)
    world.brokers.resume_replication(node)


async def _more_partitions(world: "World", _: FaultPlan) -> None:
    world.grow()


async def _topic(world: "World", fault: FaultPlan) -> None:
    await world.remake_topic(fault.much * _LONGEST_OUTAGE)


async def _state_lost(world: "World", fault: FaultPlan) -> None:
    world.expire_producers(int(fault.where * PARTITIONS))


def _answers(make: Callable[[Call, FaultPlan], Fault]) -> Callable[["World", FaultPlan], Any]:
    async def strike_answers(world: "World", fault: FaultPlan) -> None:
        node = 1 + int(fault.where * BROKERS)

        def control(call: Call) -> Fault | None:
            if call.broker_id != node or call.request.acks == 0 or trio.current_time() > BUSY_SECONDS:
                return None
            world.history.note(f"broker {node} does so ({fault.kind})")
            made = make(call, fault)
            if isinstance(made, Delay):
                world.history.last_produce = trio.current_time() + made.before
            return made

        world.brokers.control(ApiKey.PRODUCE, control, times=1 + int(fault.much * 4))

    return strike_answers


def _not_enough_replicas(call: Call, _: FaultPlan) -> Fault:
    return refusal(call, ErrorCode.NOT_ENOUGH_REPLICAS)


def refusal(call: Call, error: ErrorCode) -> Fault:
    """Nothing of a Produce request is applied, and this is said of each batch."""
    response = ProduceResponse()
    for topic in call.request.topic_data:
        rows = [
            ProduceResponsePartitionProduceResponse(index=part.index, error_code=error, base_offset=-1)
            for part in topic.partition_data
        ]
        response.responses.append(
            ProduceResponseTopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        )
    return Answer(response)


def _says(error: ErrorCode) -> Callable[[Call, FaultPlan], Fault]:
    def change(message: Message) -> None:
        assert isinstance(message, ProduceResponse)
        for topic in message.responses:
            for row in topic.partition_responses:
                row.error_code, row.base_offset = error, -1

    return lambda _, __: Edit(change)


def _lost_answer(_: Call, __: FaultPlan) -> Fault:
    return CloseAfter()


def _dropped_answer(_: Call, fault: FaultPlan) -> Fault:
    return Drop(apply=fault.much < 0.7)


def _slow(_: Call, fault: FaultPlan) -> Fault:
    return Delay(before=fault.much * _LONGEST_HOLD)


_KINDS: Final[dict[str, Callable[["World", FaultPlan], Any]]] = {
    "crash": _crash,
    "cut": _link(LEG, _cut),
    "cut_answer": _link(LEG, _cut_answer),
    "delay": _link(LEG, _delay),
    "close": _link(LEG, _close),
    "half_open": _link(LEG, _half_open),
    "route": _link(LEG, _route()),
    "route_there": _link(LEG, _route(back=False)),
    "route_back": _link(LEG, _route(there=False)),
    "balancer": _balancer,
    "slow_reader": _link(LEG, _slow_reader),
    "clock": _clock,
    "upstream_cut": _link(BROKER_LEG, _upstream_cut),
    "upstream_delay": _link(BROKER_LEG, _delay),
    "upstream_half_open": _link(BROKER_LEG, _half_open),
    "lost_answer": _answers(_lost_answer),
    "dropped_answer": _answers(_dropped_answer),
    "slow_broker": _answers(_slow),
    "not_enough_replicas": _answers(_not_enough_replicas),
    "after_append": _answers(_says(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)),
    "timed_out": _answers(_says(ErrorCode.REQUEST_TIMED_OUT)),
    "stepped_down": _answers(_says(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    "leader": _leader,
    "broker": _broker,
    "state_lost": _state_lost,
    "controller": _controller,
    "disk": _disk,
    "lag": _lag,
    "more_partitions": _more_partitions,
    "topic": _topic,
}
