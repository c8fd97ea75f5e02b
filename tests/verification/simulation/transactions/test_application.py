"""A model application whose OffsetCommits end its transactions, in front of whole kproxies."""

import pytest
import trio

from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker import Close
from tests.verification.simulation.transactions.test_legacy import BOTH, client, led, refuse_once
from verification.simulation.transactions.process import Abortable
from verification.simulation.transactions.steering import goes_well
from verification.simulation.transactions.ways import Way
from verification.simulation.transactions.world import TransactionWorld


def test_an_application_whose_batch_fails_begins_at_its_offsets_again() -> None:
    async def script(world: TransactionWorld) -> None:
        process = world.steps(client(Way.ON_OFFSET_COMMIT), 0)
        first, second = process.begin(0), process.begin(1)
        await goes_well(process.write(first, BOTH))
        refuse_once(world)
        with pytest.raises(Abortable):
            await process.write(first, BOTH)
        await process.end(first, committed=False)
        await process.write(second, BOTH)
        await process.end(second, committed=True)
        process.close()
        assert (first.input, second.told) == (second.input, True)

    assert sum("begins at 0 in generation" in line for line in led(script)) == 2


def test_an_application_continues_at_another_kproxy() -> None:
    async def script(world: TransactionWorld) -> None:
        for instance in range(2):
            process = world.steps(client(Way.ON_OFFSET_COMMIT), instance)
            world.brokers.control(ApiKey.OFFSET_FETCH, lambda _: Close(), times=1)
            claimed = process.begin(0)
            await process.write(claimed, BOTH)
            await process.end(claimed, committed=True)
            assert claimed.told
            process.killed()
            process.close()
            await trio.sleep(0.5)

    assert any("begins at 1 in generation" in line for line in led(script, 2))
