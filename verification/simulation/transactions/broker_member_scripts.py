"""Runs made by hand: groups whose members write in the brokers' own transactions, and what befalls them."""

import trio

from kproxy.codec.messages import ApiKey
from kproxy.proxy.coordinator_rules import Home
from kproxy.testing.fake_broker import Call, Close, Delay
from kproxy.testing.fake_broker.controls import Fault
from kproxy.testing.fake_broker.markers import end_transaction
from kproxy.txn.procedures.member_ids import PREFIX
from verification.simulation.transactions.homes import HomePlan
from verification.simulation.transactions.member_driver import Driver
from verification.simulation.transactions.member_plans import DriverLife, MemberGroupPlan
from verification.simulation.transactions.member_scripts import attempt, batch, member_group
from verification.simulation.transactions.plan import WorldPlan
from verification.simulation.transactions.scripts import Script, by_hand
from verification.simulation.transactions.world import TransactionWorld

#: By seed: every level of the brokers' transactions.
_LEVELS = (2, 1, 0)
#: A driver ends so, while the brokers don't hear how its batch does.
_DIES = 8.0


def _at_home(seed: int, script: Script) -> WorldPlan:
    return by_hand(seed, script, instances=2, place=HomePlan(Home.BROKER, _LEVELS[seed % len(_LEVELS)]))


def _driver(world: TransactionWorld, plan: MemberGroupPlan) -> Driver:
    return world.member_groups.driver(plan)


def committed(seed: int) -> WorldPlan:
    """Members at both kproxies, and again under the same ids of the brokers'."""
    plan = member_group(*(batch(attempt(1), attempt(1), attempt(0)) for _ in range(2)))
    return _at_home(seed, lambda world: _driver(world, plan).run(1))


def prepared_in_turn(seed: int) -> WorldPlan:
    """A member begins when another one at the same kproxy is prepared."""
    plan = member_group(batch(attempt(0), attempt(0, gap=2.0)))
    return _at_home(seed, lambda world: _driver(world, plan).run(1))


def decided_and_gone(seed: int) -> WorldPlan:
    """The brokers hear nothing of a decision until its driver has died, and so has the kproxy that it asked."""
    plan = member_group(batch(attempt(1), attempt(0)), lives=(DriverLife(0.5, 0, _DIES),), request_timeout=2.0)

    async def script(world: TransactionWorld) -> None:
        def control(call: Call) -> Fault | None:
            return Close() if trio.current_time() < _DIES + 2.0 else None

        world.brokers.control(ApiKey.END_TXN, control)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_driver(world, plan).run, 1)
            await trio.sleep(_DIES + 1.0)
            await world.crash(0, 0.5)

    return _at_home(seed, script)


def told_unheard(seed: int) -> WorldPlan:
    """The brokers receive a decision only when it is sent again."""
    plan = member_group(batch(attempt(1), attempt(0)))

    async def script(world: TransactionWorld) -> None:
        left = [Close()] * 4
        world.brokers.control(ApiKey.END_TXN, lambda _: left.pop() if left else None)
        await _driver(world, plan).run(1)

    return _at_home(seed, script)


def ended_by_the_broker(seed: int) -> WorldPlan:
    """The broker aborts a member that is prepared, before it is decided."""
    plan = member_group(batch(attempt(1), attempt(0), pause=6.0), lives=(DriverLife(0.5, 0, _DIES + 4.0),))

    async def script(world: TransactionWorld) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_driver(world, plan).run, 1)
            await trio.sleep(4.0)
            ids = world.brokers.transactional_ids
            owner = ids[min(name for name in ids if name.startswith(PREFIX))]
            owner.fence()
            end_transaction(world.brokers, owner)
            world.member_groups.history.lost(plan.transactional_id)

    return _at_home(seed, script)


def added_late(seed: int) -> WorldPlan:
    """Partitions are added by requests that arrive long after the end of their members, too."""
    plan = member_group(batch(attempt(1), attempt(0)))

    async def script(world: TransactionWorld) -> None:
        left = [Delay(before=_DIES)] * 2
        world.brokers.control(ApiKey.ADD_PARTITIONS_TO_TXN, lambda _: left.pop() if left else None)
        await _driver(world, plan).run(1)
        await trio.sleep(_DIES)

    return by_hand(seed, script, instances=2, place=HomePlan(Home.BROKER, seed % 2))
