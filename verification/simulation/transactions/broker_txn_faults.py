"""Faults of brokers' own transactions: of their coordinators, and of kproxy's requests to them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker import Call, CloseAfter, Delay, Drop
from kproxy.testing.fake_broker.controls import Fault
from verification.simulation.plan import BUSY_SECONDS, FaultPlan

if TYPE_CHECKING:
    from verification.simulation.transactions.world import TransactionWorld

_LONGEST: Final = 6.0
_KEYS: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.END_TXN,
)


def _names(world: "TransactionWorld") -> list[str]:
    """The names that coordinators know: transactional ids, and groups."""
    return sorted({*world.brokers.transactional_ids, *world.brokers.groups})


async def _coordinator(world: "TransactionWorld", fault: FaultPlan) -> None:
    """Some ids and groups go to another broker, which may have to load what it is to know."""
    names, nodes = _names(world), sorted(world.brokers.brokers)
    node = nodes[int(fault.much * len(nodes))]
    for name in names[int(fault.where * len(names)) :]:
        world.brokers.move_coordinator(name, node)
    if fault.much * 100 % 1 < 0.5:
        await _load(world, node, fault.where * _LONGEST / 2)


async def _loading(world: "TransactionWorld", fault: FaultPlan) -> None:
    nodes = sorted(world.brokers.brokers)
    await _load(world, nodes[int(fault.where * len(nodes))], fault.much * _LONGEST)


async def _load(world: "TransactionWorld", node: int, seconds: float) -> None:
    world.brokers.load_coordinators(node)
    await trio.sleep(seconds)
    world.brokers.coordinators_loaded(node)


async def _markers(world: "TransactionWorld", fault: FaultPlan) -> None:
    """Ends are decided, and not complete."""
    world.brokers.hold_markers()
    await trio.sleep(fault.much * _LONGEST)
    world.brokers.release_markers()


async def _expire_id(world: "TransactionWorld", fault: FaultPlan) -> None:
    names = sorted(world.brokers.transactional_ids)
    if names:
        name = names[int(fault.where * len(names))]
        world.brokers.expire_transactional_id(name)
        if name not in world.brokers.transactional_ids:
            world.told.expired[name] = trio.current_time()


def _asked(make: Callable[[FaultPlan], Fault]) -> Callable[["TransactionWorld", FaultPlan], Any]:
    """Makes a fault of some requests of one kind to coordinators."""

    async def strike(world: "TransactionWorld", fault: FaultPlan) -> None:
        left, key = 1 + int(fault.where * 1000) % 3, _KEYS[int(fault.where * len(_KEYS))]

        def control(call: Call) -> Fault | None:
            nonlocal left
            if not left or trio.current_time() > BUSY_SECONDS:
                return None
            left -= 1
            world.history.note(f"broker {call.broker_id} does so ({fault.kind}) to {type(call.request).__name__}")
            if key is ApiKey.INIT_PRODUCER_ID:  # what comes late of it fences who has got the id by its repetition
                world.told.may_come_late(call.request.transactional_id, trio.current_time())
            return make(fault)

        world.brokers.control(key, control)

    return strike


NATIVE: Final[dict[str, Callable[["TransactionWorld", FaultPlan], Any]]] = {
    "coordinator": _coordinator,
    "loading": _loading,
    "markers": _markers,
    "expire_id": _expire_id,
    "native_lost": _asked(lambda _: CloseAfter()),
    "native_unheard": _asked(lambda fault: Drop(apply=fault.much < 0.7)),
    "native_slow": _asked(lambda fault: Delay(before=fault.much * _LONGEST)),
}
