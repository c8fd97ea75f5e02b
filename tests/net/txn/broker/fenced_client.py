"""A client of KIP-98 whose transactions the broker decides and kproxy asks for: ``broker-fenced``."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.coordinator import Coordinator
from kproxy.proxy.transaction_messages import NO_PRODUCER
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.native_stage import TIMEOUT_MS, TOPIC, Kproxy, Stage
from tests.net.txn.log_harness import PATIENCE
from tests.net.txn.wire_producer import transactional_batch


@dataclass
class Client:
    """One producer, with the sequences that it has reached in each partition.

    ``second``: it speaks KIP-890's protocol, whose partitions and groups join by being written.
    """

    kproxy: Kproxy
    name: str = "id"
    second: bool = False
    producer: Producer = NO_PRODUCER
    connection: int = 1
    next: dict[int, int] = field(default_factory=dict)

    @property
    def coordinator(self) -> Coordinator:
        """Who is asked."""
        return self.kproxy.coordinator

    @property
    def request(self) -> TxnRequest:
        """Who it is."""
        return TxnRequest(self.name, self.producer, self.connection, "client")

    def over(self, connection: int) -> "Client":
        """The same by another connection."""
        return replace(self, connection=connection, next=dict(self.next))

    async def init(self, resumed: Producer | None = None, timeout_ms: int = TIMEOUT_MS) -> None:
        """InitProducerId; ``resumed``: the identity under which it continues."""
        with trio.fail_after(PATIENCE):
            self.producer = await self.coordinator.init_producer_id(self.name, timeout_ms, resumed, "client")
        self.next.clear()

    async def add(self, *indexes: int) -> None:
        """AddPartitionsToTxn."""
        with trio.fail_after(PATIENCE):
            places = [(TOPIC, index) for index in indexes or (0,)]
            assert await self.coordinator.add_partitions(self.request, places) == {}

    def batch(self, value: str, sequence: int, index: int = 0) -> ClientBatch:
        """One record."""
        data = bytearray(transactional_batch(value, self.producer, sequence))
        return ClientBatch(TOPIC, index, memoryview(data), 1, sequence)

    async def produce(self, value: str, sequence: int, index: int = 0) -> Written:
        """One record in a batch of its own."""
        batch = self.batch(value, sequence, index)
        with trio.fail_after(PATIENCE):
            rows = await self.coordinator.produce(self.request, [batch], implicit=self.second, accepted=lambda: None)
        return rows[0]

    async def send(self, value: str, index: int = 0) -> ErrorCode:
        """The next record; what becomes of it."""
        sequence = self.next.get(index, 0)
        written = await self.produce(value, sequence, index)
        self.next[index] = sequence + 1
        return ErrorCode(written.error_code)

    async def write(self, value: str, *indexes: int) -> None:
        """One record in each partition, added before if need be."""
        if not self.second:
            await self.add(*indexes)
        for index in indexes or (0,):
            assert await self.send(value, index) is ErrorCode.NONE

    async def add_offsets(self, group: str) -> None:
        """AddOffsetsToTxn."""
        with trio.fail_after(PATIENCE):
            await self.coordinator.add_offsets(self.request, group)

    async def offsets(
        self, group: str, offset: int, generation: int = -1, member: str = "", partition: int = 0
    ) -> None:
        """TxnOffsetCommit of one partition."""
        rows = [TransactionOffsetsTopic(TOPIC, [TransactionOffsetsPartition(partition, offset)])]
        offsets = TransactionOffsets(group_id=group, generation_id=generation, member_id=member, topics=rows)
        with trio.fail_after(PATIENCE):
            await self.coordinator.commit_offsets(self.request, offsets, implicit=self.second)

    async def end(self, *, committed: bool = True) -> None:
        """EndTxn."""
        with trio.fail_after(PATIENCE):
            former = self.producer
            self.producer = await self.coordinator.end(self.request, committed=committed, bumps=self.second)
        if self.producer != former:
            self.next.clear()

    async def transaction(self, value: str, *, committed: bool = True) -> None:
        """A whole one."""
        await self.write(value)
        await self.end(committed=committed)


async def client_of(cast: Stage, *, second: bool = False, **options: Any) -> Client:
    """Of a kproxy of its own, with the id."""
    client = Client(await cast.kproxy(**options), second=second)
    await client.init()
    return client


async def told(error: ErrorCode, *asks: Any) -> None:
    """Each of these is refused so."""
    for ask in asks:
        with pytest.raises(TxnError) as raised:
            await ask
        assert raised.value.error_code is error, raised.value


def states(cast: Stage, names: Sequence[str] = ("id",)) -> list[str]:
    """Of transactional ids at the broker."""
    return [cast.server.cluster.transactional_ids[name].state.name for name in names]
