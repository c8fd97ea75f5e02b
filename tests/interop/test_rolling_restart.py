"""Three gateways in front of Kafka are restarted one after the other, while producers write in transactions."""

from contextlib import AsyncExitStack

import pytest
import trio

from kproxy.config import ExitCode
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.ports import free_ports
from tests.support.processes import Process, kproxy, serving
from tests.support.transactional_load import TransactionalLoad

pytestmark = [pytest.mark.kafka, pytest.mark.java]

_GATEWAYS = 3
_PORTS = 4
_TOPIC = "rolling-restart"


async def test_nothing_is_lost_doubled_or_torn(kafka: RealKafka) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(_TOPIC, 2)
    ports = free_ports(_GATEWAYS * _PORTS)
    firsts = ports[::_PORTS]

    async def start(index: int) -> Process:
        first = firsts[index]
        running = await stack.enter_async_context(
            kproxy(
                kafka.bootstrap, "--listen", f"127.0.0.1:{first}", "--broker-ports", f"{first + 1}-{first + 3}",
                "--instance-id", f"rolling-{index}", "--transactions-home", "kproxy", "--shutdown-grace-ms", "60000",
            )
        )  # fmt: skip
        await serving(running)
        return running

    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        gateways = [await start(index) for index in range(_GATEWAYS)]
        load = TransactionalLoad(_TOPIC, firsts)
        for index in range(_GATEWAYS):
            nursery.start_soon(load.run, index)
        await load.past(10)
        for index, gateway in enumerate(gateways):
            gateway.process.terminate()
            with trio.fail_after(90):
                assert await gateway.process.wait() == ExitCode.OK
            await gateway.said("stopped; nothing is left")
            gateways[index] = await start(index)
            await load.past(10)
        load.stop.set()
        await load.ended(_GATEWAYS)
        await load.check()
