"""Batches of a transaction that have their place in the order as soon as they arrive: no task waits for them."""

from typing import Any

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.dispatch import Dispatch
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from tests.net.harness import proxied
from tests.net.txn.wire_producer import TV1, WireProducer

P0, P1 = ("t", 0), ("t", 1)


class Waiting(trio.abc.Instrument):
    """Counts the tasks that wait for a coordinator."""

    def __init__(self) -> None:
        self.begun = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.begun += Dispatch._ask.__qualname__ in task.name


@pytest.mark.parametrize("home", [Home.KPROXY, Home.BROKER_FENCED])
async def test_only_the_first_batch_of_a_partition_has_a_task(home: Home) -> None:
    options: dict[str, Any] = {
        "coordinator": Transactions,
        "transactions_home": (HomeRule("*", home),),
        "transaction_state_log_num_partitions": 4,
    }
    waiting = Waiting()
    async with proxied(**options) as proxy:
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client() as client:
            producer = WireProducer(client, "id", TV1)
            assert await producer.init() == 0
            assert await producer.add(P0, P1) == [0, 0]
            assert await producer.produce("1", P0, P1) == [0, 0]
            trio.lowlevel.add_instrument(waiting)
            for value in ("2", "3", "4"):
                assert await producer.produce(value, P0, P1) == [0, 0]
            assert waiting.begun == 0
            trio.lowlevel.remove_instrument(waiting)
            assert await producer.end() == 0
            assert await producer.produce("late", P0) == [ErrorCode.INVALID_TXN_STATE]
        assert all(part.log.end_offset >= 4 for part in proxy.brokers.topics["t"].partitions)
