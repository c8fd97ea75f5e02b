"""What comes while everything is read for the last time is read, too; what is torn then is found."""

from collections.abc import Callable

import trio

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.messages import ApiKey
from kproxy.proxy.coordinator_rules import Home
from kproxy.testing.fake_broker import Call
from kproxy.testing.fake_broker.controls import Answer, Fault
from verification.simulation.plan import TOPIC
from verification.simulation.transactions import invariants, scripts
from verification.simulation.transactions.homes import HomePlan
from verification.simulation.transactions.plan import WorldPlan
from verification.simulation.transactions.steering import Gate, values
from verification.simulation.transactions.ways import Steps, Way
from verification.simulation.transactions.world import TransactionWorld, run

_BOTH = ((0, 1), (1, 1))
_PER_REQUEST = scripts.producer(way=Way.PER_REQUEST, transactional_id="per.request 0")


def _end(world: TransactionWorld, partition: int) -> int:
    return world.brokers.topics[TOPIC].partitions[partition].log.end_offset


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - logs tell nobody; the run's clock is virtual
        await trio.sleep(0.01)


async def _killed_writing(process: Steps, gate: Gate) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.write, process.begin(1), _BOTH)
        await gate.reached.wait()
        nursery.cancel_scope.cancel()
    process.killed()
    process.close()


def _late(come: Callable[[TransactionWorld, Gate], None]) -> WorldPlan:
    """The last request of a producer that was killed is delayed before it reaches the brokers."""

    async def script(world: TransactionWorld) -> None:
        process = world.steps(_PER_REQUEST, 0)
        await process.initialize()
        await process.write(process.begin(0), _BOTH)
        gate = Gate(world, lambda call: any(value.startswith(b"0.0.") for value in values(call)))
        come(world, gate)
        await _killed_writing(process, gate)

    return scripts.by_hand(3, script, _PER_REQUEST, place=HomePlan(Home.BROKER, 2))


def _when_half_is_read(world: TransactionWorld, gate: Gate) -> None:
    """It comes when the first of the last readers has read partition 0, and asks how far it may read partition 1."""
    ends = [_end(world, partition) for partition in range(2)]

    async def control(call: Call) -> None:
        asked = [row.partition_index for topic in call.request.topics for row in topic.partitions]
        if call.client_id == "last-0" and asked == [1]:
            gate.open()
            await _until(lambda: all(_end(world, partition) > ends[partition] for partition in range(2)))

    world.brokers.control(ApiKey.LIST_OFFSETS, control)


def test_what_comes_when_half_is_read_is_read_whole() -> None:
    assert run(_late(_when_half_is_read)).broken is None


def test_what_comes_torn_is_found() -> None:
    def says_it_is_written(call: Call) -> Fault | None:
        if not any(b":1." in value for value in values(call)):
            return None
        row = ProduceResponsePartitionProduceResponse(index=1, base_offset=2)
        return Answer(ProduceResponse([ProduceResponseTopicProduceResponse(name=TOPIC, partition_responses=[row])]))

    def come(world: TransactionWorld, gate: Gate) -> None:
        _when_half_is_read(world, gate)
        world.brokers.control(ApiKey.PRODUCE, says_it_is_written)

    broken = run(_late(come)).broken
    assert broken is not None
    assert broken[0] == invariants.TORN
