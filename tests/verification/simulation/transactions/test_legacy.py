"""Model producers that know nothing of transactions, in front of a whole kproxy."""

from collections.abc import Awaitable, Callable

import pytest

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.coordinator_rules import Home
from kproxy.testing.fake_broker import Call
from kproxy.testing.fake_broker.controls import Fault
from verification.simulation.faults import refusal
from verification.simulation.transactions.homes import HomePlan
from verification.simulation.transactions.plan import ProducerPlan
from verification.simulation.transactions.scripts import by_hand, producer
from verification.simulation.transactions.steering import values
from verification.simulation.transactions.ways import Way
from verification.simulation.transactions.world import TransactionWorld, run

AT_BROKERS = HomePlan(Home.BROKER)
BOTH = ((0, 2), (1, 1))


def client(way: Way) -> ProducerPlan:
    return producer(way=way, transactional_id="id")


def refuse_once(world: TransactionWorld) -> None:
    """The next Produce request of a client is refused for good."""

    def refuse(call: Call) -> Fault | None:
        return refusal(call, ErrorCode.MESSAGE_TOO_LARGE) if any(values(call)) else None

    world.brokers.control(ApiKey.PRODUCE, refuse, times=1)


def led(script: Callable[[TransactionWorld], Awaitable[None]], instances: int = 1) -> tuple[str, ...]:
    """The trace of a run in which nothing broke."""
    outcome = run(by_hand(1, script, producer(way=Way.ON_OFFSET_COMMIT), instances=instances, place=AT_BROKERS))
    assert outcome.broken is None
    return outcome.trace


@pytest.mark.parametrize("way", [Way.BY_HAND, Way.ON_OFFSET_COMMIT])
def test_transactions_are_committed_and_aborted(way: Way) -> None:
    told: list[bool | None] = []

    async def script(world: TransactionWorld) -> None:
        process = world.steps(client(way), 0)
        await process.initialize()
        for nth in range(3):
            claimed = process.begin(nth)
            await process.write(claimed, BOTH)
            await process.end(claimed, committed=nth != 1)
            told.append(claimed.told)
        process.close()

    trace = led(script)
    assert (told[0], told[2]) == (True, True)
    assert told[1] is not True
    assert sum("is asked EndTxn" in line for line in trace) >= 3


def test_each_request_is_a_transaction() -> None:
    async def script(world: TransactionWorld) -> None:
        process = world.steps(client(Way.PER_REQUEST), 0)
        await process.initialize()
        claimed = process.begin(0)
        for _ in range(2):
            await process.write(claimed, BOTH)
        await process.end(claimed, committed=True)
        process.close()
        assert [one.told for one in world.told.transactions if one.values] == [True, True]

    led(script)


def test_a_request_that_is_refused_or_unheard_is_not_repeated() -> None:
    async def script(world: TransactionWorld) -> None:
        process = world.steps(client(Way.PER_REQUEST), 0)
        refuse_once(world)
        claimed = process.begin(0)
        await process.write(claimed, ((0, 1), (3, 1)))
        await world.crash(0, 0.5)
        await process.write(claimed, BOTH)
        process.close()
        assert next(one.told for one in world.told.transactions if one.values) is not True

    led(script)


def test_a_beginning_by_hand_whose_answer_was_lost_is_begun_again() -> None:
    async def script(world: TransactionWorld) -> None:
        process = world.steps(client(Way.BY_HAND), 0)
        world.post.lost = 1
        claimed = process.begin(0)
        await process.write(claimed, BOTH)
        await process.end(claimed, committed=True)
        process.close()
        assert claimed.told

    assert any("CONCURRENT_TRANSACTIONS for begin" in line for line in led(script))


def test_a_commit_by_hand_whose_answer_was_lost_is_reported_when_it_is_repeated() -> None:
    async def script(world: TransactionWorld) -> None:
        process = world.steps(client(Way.BY_HAND), 0)
        claimed = process.begin(0)
        await process.write(claimed, BOTH)
        world.post.lost = 1
        await process.end(claimed, committed=True)
        process.close()
        assert claimed.told

    led(script)


def test_what_its_kproxy_had_open_by_hand_is_nobodys_when_it_is_killed() -> None:
    async def script(world: TransactionWorld) -> None:
        process = world.steps(client(Way.BY_HAND), 0)
        claimed = process.begin(0)
        await process.write(claimed, BOTH)
        await world.crash(0, 0.5)
        await process.end(claimed, committed=True)
        process.close()
        assert claimed.told is None

    assert any("TRANSACTIONAL_ID_NOT_FOUND for commit" in line for line in led(script))
