"""A proxy under attack, and another client of it to whom nothing of that may matter."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from structlog.testing import capture_logs

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import build_batch
from tests.net.harness import FrameClient, Proxied, errors_of, produce, proxied, records, values_in

#: The partition of topic ``t`` to which nobody writes but the witness.
WITNESS = 2
GOOD = bytes(build_batch(records(b"good")))


@asynccontextmanager
async def witnessed(**options: Any) -> AsyncIterator[Proxied]:
    """In front of topic ``t`` with 3 partitions; a client from before must still be served, and no bug be logged."""
    with capture_logs() as logs:
        async with proxied(**options) as proxy:
            proxy.brokers.create_topic("t", 3)
            async with await proxy.client(1, client_id="witness") as witness:
                await _writes(proxy, witness, b"before")
                yield proxy
                await _writes(proxy, witness, b"behind")
    assert [line for line in logs if "exc_info" in line] == []


async def _writes(proxy: Proxied, witness: FrameClient, value: bytes) -> None:
    assert errors_of(await witness.call(produce("t", value, partition=WITNESS), 8)) == [0]
    assert values_in(proxy.brokers, "t", WITNESS)[-1] == value


def request(*sets: bytes | bytearray | None, transactional_id: str | None = None) -> ProduceRequest:
    """A Produce request with one record set for each partition of ``t``, from 0 on."""
    rows = [
        ProduceRequestPartitionProduceData(index=index, records=None if data is None else bytes(data))
        for index, data in enumerate(sets)
    ]
    data = ProduceRequestTopicProduceData(name="t", partition_data=rows)
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=60_000, topic_data=[data])
