"""Faults of the transaction log, and of partitions' knowledge of transactions' producers."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.log_topic import TOPIC as LOG
from kproxy.proxy.coordinator_rules import Home
from kproxy.testing.fake_broker import Call, CloseAfter, Delay, Drop
from kproxy.testing.fake_broker.controls import Fault
from verification.simulation.faults import BROKER_LEG, refusal
from verification.simulation.instance import LEG
from verification.simulation.plan import BUSY_SECONDS, TOPIC, FaultPlan
from verification.simulation.transactions.broker_txn_faults import NATIVE
from verification.simulation.transactions.homes import LOG_PARTITIONS
from verification.simulation.transactions.plan import PLACES
from verification.simulation.transactions.steering import values

if TYPE_CHECKING:
    from verification.simulation.transactions.world import TransactionWorld

_LONGEST: Final = 6.0
#: Of writes to a partition, in seconds: longer than any time-out of a transaction here, and the patience of the check.
_LONGEST_REFUSAL: Final = 40.0
_LATEST: Final = 9.0
#: Outages of a kproxy: longer than another one waits before it takes over what is open.
_SHORTEST_OUTAGE: Final = 2.0
_LONGEST_OUTAGE: Final = 12.0
#: Requests that may come late: all that producers of KIP-98 send in transactions, and what others send.
_OF_KIP_98: Final = (
    ApiKey.END_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_OFFSETS_TO_TXN,
)
_PLAIN: Final = (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.PRODUCE)
#: Sizes of a snapshot's chunks, in bytes: many, some, one.
_CHUNKS: Final = (200, 2_000, 200_000)


def _of_log(make: Callable[[FaultPlan], Fault]) -> Callable[["TransactionWorld", FaultPlan], Any]:
    """Makes a fault of some appends to the transaction log."""

    async def strike(world: "TransactionWorld", fault: FaultPlan) -> None:
        left = 1 + int(fault.where * 3)

        def control(call: Call) -> Fault | None:
            nonlocal left
            if not left or trio.current_time() > BUSY_SECONDS or all(t.name != LOG for t in call.request.topic_data):
                return None
            left -= 1
            world.history.note(f"broker {call.broker_id} does so ({fault.kind})")
            return make(fault)

        world.brokers.control(ApiKey.PRODUCE, control)

    return strike


async def _log_leader(world: "TransactionWorld", fault: FaultPlan) -> None:
    topic = world.brokers.topics.get(LOG)
    if topic is None:
        return
    index = int(fault.where * LOG_PARTITIONS)
    able = [node for node in sorted(topic.partitions[index].isr) if world.brokers.brokers[node].serves]
    if able:
        world.brokers.move_leader(LOG, index, able[int(fault.much * len(able))])


async def _forget(world: "TransactionWorld", fault: FaultPlan) -> None:
    _forget_in(world, TOPIC, int(fault.where * PLACES))


async def _forget_log(world: "TransactionWorld", fault: FaultPlan) -> None:
    _forget_in(world, LOG, int(fault.where * LOG_PARTITIONS))


def _forget_in(world: "TransactionWorld", name: str, index: int) -> None:
    """A partition forgets all producers without an open transaction: as if what they wrote were a day old."""
    if name in world.brokers.topics:
        world.brokers.expire_producers(name, index)


async def _log_broker(world: "TransactionWorld", fault: FaultPlan) -> None:
    """The broker that leads a partition of the log goes, and comes back."""
    topic = world.brokers.topics.get(LOG)
    if topic is not None:
        leader = topic.partitions[int(fault.where * LOG_PARTITIONS)].leader
        if leader in world.brokers.brokers:
            await world.bounce(leader, fault.much * _LONGEST)


async def _snapshot(world: "TransactionWorld", fault: FaultPlan) -> None:
    """A kproxy takes a snapshot of a partition of the log, in chunks of some size, and deletes what it states."""
    instance = world.instances[int(fault.much * len(world.instances))]
    if instance.transactions is not None and instance.up and instance.transactions.log.opened.is_set():
        index = int(fault.where * LOG_PARTITIONS)
        with suppress(trio.ClosedResourceError):
            await instance.transactions.snapshots.take(index, _CHUNKS[int(fault.where * 997) % len(_CHUNKS)])


async def _no_replicas(world: "TransactionWorld", fault: FaultPlan) -> None:
    """A partition of the data takes no writes for long."""
    place, until = int(fault.where * PLACES), trio.current_time() + fault.much * _LONGEST_REFUSAL

    def control(call: Call) -> Fault | None:
        if trio.current_time() >= until or not any(b":%d." % place in value for value in values(call)):
            return None
        return refusal(call, ErrorCode.NOT_ENOUGH_REPLICAS)

    world.brokers.control(ApiKey.PRODUCE, control)


async def _late(world: "TransactionWorld", fault: FaultPlan) -> None:
    """The next request of a kind that a producer sends is in flight for long."""
    keys = _PLAIN if world.place.home is Home.BROKER else _OF_KIP_98
    world.late.append((frozenset({keys[int(fault.where * len(keys))]}), fault.much * _LATEST))


async def _control_late(world: "TransactionWorld", fault: FaultPlan) -> None:
    """Some of the next control requests are in flight for long."""
    world.post.late += [fault.much * _LATEST] * (1 + int(fault.where * 3))


async def _control_lost(world: "TransactionWorld", fault: FaultPlan) -> None:
    """Some of the next responses to control requests do not come."""
    world.post.lost += 1 + int(fault.where * 3)


def _outage(fault: FaultPlan) -> float:
    return _SHORTEST_OUTAGE + fault.much * (_LONGEST_OUTAGE - _SHORTEST_OUTAGE)


async def _gone(world: "TransactionWorld", fault: FaultPlan) -> None:
    """A kproxy is killed, and started again late."""
    await world.crash(int(fault.where * len(world.instances)), _outage(fault))


def _held(*legs: str) -> Callable[["TransactionWorld", FaultPlan], Any]:
    """A kproxy receives nothing, and what it sends does not arrive, for long; then all of it arrives."""

    async def strike(world: "TransactionWorld", fault: FaultPlan) -> None:
        instance = world.instances[int(fault.where * len(world.instances))]
        for leg in legs:
            world.network.hold(instance.name, leg, _outage(fault))

    return strike


FAULTS: Final[dict[str, Callable[["TransactionWorld", FaultPlan], Any]]] = {
    "log_leader": _log_leader,
    "log_lost": _of_log(lambda _: CloseAfter()),
    "log_unheard": _of_log(lambda fault: Drop(apply=fault.much < 0.7)),
    "log_slow": _of_log(lambda fault: Delay(before=fault.much * _LONGEST)),
    "forget": _forget,
    "forget_log": _forget_log,
    "log_broker": _log_broker,
    "snapshot": _snapshot,
    "no_replicas": _no_replicas,
    "late": _late,
    "control_late": _control_late,
    "control_lost": _control_lost,
    "gone": _gone,
    "frozen": _held(LEG, BROKER_LEG),
    "cut_off": _held(BROKER_LEG),
    **NATIVE,
}
