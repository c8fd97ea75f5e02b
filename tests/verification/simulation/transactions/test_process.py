"""One life of a model producer, in front of a whole kproxy."""

from collections.abc import Awaitable, Callable

import pytest

from verification.simulation.instance import LEG
from verification.simulation.transactions.coordinators import Fatal
from verification.simulation.transactions.history import Input
from verification.simulation.transactions.process import Abortable
from verification.simulation.transactions.scripts import by_hand, producer
from verification.simulation.transactions.steering import lose_response, next_generation
from verification.simulation.transactions.world import TransactionWorld, run


def led(script: Callable[[TransactionWorld], Awaitable[None]], *plans: object) -> tuple[str, ...]:
    """The trace of a run in which nothing broke."""
    outcome = run(by_hand(1, script, *(plans or (producer(),))))  # type: ignore[arg-type]
    assert outcome.broken is None
    return outcome.trace


def count(trace: tuple[str, ...], text: str) -> int:
    return sum(text in line for line in trace)


@pytest.mark.parametrize("second_version", [False, True])
def test_a_transaction_is_written_and_committed(second_version: bool) -> None:
    plan = producer(second_version=second_version)

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        for nth in range(2):
            claimed = process.begin(nth)
            await process.write(claimed, ((0, 2), (1, 1)))
            await process.move(claimed, Input("g", nth + 1))
            await process.end(claimed, committed=not nth)
            assert claimed.told is not bool(nth)
        assert await world.group_watch("group", 0).position("g") == 1

    trace = led(script, plan)
    assert count(trace, "learns that 0.0.0 is committed") == 1
    assert count(trace, "learns that 0.0.1 is aborted") == 1


def test_a_producer_that_pipelines_sends_a_batch_for_each_record() -> None:
    plan = producer(pipelines=True)

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        claimed = process.begin(0)
        await process.write(claimed, ((0, 3),))
        await process.end(claimed, committed=True)

    trace = led(script, plan)
    assert [count(trace, f"sends 0: 0.0.0:0.{n} at {n} as") for n in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("pipelines", [False, True])
def test_a_producer_that_drops_what_has_no_response_uses_its_sequences_again(pipelines: bool) -> None:
    plan = producer(reuses=True, pipelines=pipelines)

    async def script(world: TransactionWorld) -> None:
        process = world.process(plan, 0)
        await process.initialize()
        lose_response(world, "producer-0.0", b"0.0.0:0.0")
        claimed = process.begin(0)
        with pytest.raises(Abortable):
            await process.write(claimed, ((0, 2),))
        await process.end(claimed, committed=False)
        with pytest.raises(Abortable):
            await process.write(process.begin(1), ((0, 2),))

    trace = led(script, plan)
    sent = [line for line in trace if "sends 0: 0.0." in line and " at 0 as " in line]
    assert [line.split()[5] for line in sent] == ["0.0.0:0.0", "0.0.1:0.0"]
    assert count(trace, "receives INVALID_TXN_STATE for 0.0.1:0.0") == 1


def test_nothing_is_asked_of_the_coordinator_for_a_transaction_that_was_not_begun() -> None:
    async def script(world: TransactionWorld) -> None:
        process = world.process(producer(), 0)
        await process.initialize()
        await process.end(process.begin(0), committed=True)

    assert not count(led(script), "commits 0.0.0")


@pytest.mark.parametrize("repeats", [False, True])
def test_a_producer_that_was_fenced_gets_its_error_which_is_definite_if_it_has_asked_once(repeats: bool) -> None:
    plans = producer(0), producer(1)

    async def script(world: TransactionWorld) -> None:
        first, second = (world.process(plan, 0) for plan in plans)
        await first.initialize()
        claimed = first.begin(0)
        await first.write(claimed, ((0, 1),))
        await second.initialize()
        if repeats:
            for link in world.network.live(LEG):
                link.cut()
        with pytest.raises(Fatal):
            await first.end(claimed, committed=True)
        assert claimed.told is (None if repeats else False)

    led(script, *plans)


def test_a_group_that_has_moved_on_aborts_the_transaction() -> None:
    async def script(world: TransactionWorld) -> None:
        process = world.process(producer(), 0)
        await process.initialize()
        claimed = process.begin(0)
        await process.write(claimed, ((0, 1),))
        old = next_generation(world, "g", "a")
        next_generation(world, "g", "b")
        with pytest.raises(Abortable):
            await process.move(claimed, Input("g", 1), "a", old)
        await process.end(claimed, committed=False)

    led(script)
