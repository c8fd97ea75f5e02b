"""Owners of one transactional id whose log is in memory and whose data count as written, and the client that asks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import trio

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.messages import Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.proxy.traces import NoTraces
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.prepared_parts import ALONE, DecisionScope
from kproxy.txn.procedures.former import Former
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.view import IdView
from kproxy.txn.writes import GIVEN_UP, PartitionWrites, TxnSend
from tests.txn.procedures.memory_log import P0, Desk

TIMEOUT_MS = 60_000


class Held:
    """Something that a request waits for until the test lets it go."""

    def __init__(self) -> None:
        self.reached, self.go = trio.Event(), trio.Event()

    async def __call__(self, *_: object) -> int:
        self.reached.set()
        await self.go.wait()
        return 0


class DataWriter:
    """Takes batches, which count as written at once; it has room, and is flushed, if nothing holds it."""

    def __init__(self) -> None:
        self.failed: int | None = None
        self.recreated: str | None = None
        self.is_abandoned = False
        self.accepted: list[TopicPartition] = []
        self.flushing: Held | None = None
        self.filled: Held | None = None

    def accept(self, batches: Sequence[tuple[str, int, memoryview, int]]) -> list[TxnSend]:
        error = GIVEN_UP if self.is_abandoned else 0
        self.accepted += [] if error else [(name, index) for name, index, _, _ in batches]
        return [
            TxnSend((name, index), data, records, 0, settled=True, error_code=error, base_offset=5)
            for name, index, data, records in batches
        ]

    async def room(self, _: int) -> None:
        if self.filled is not None:
            await self.filled()

    async def flush(self) -> None:
        if self.flushing is not None:
            await self.flushing()

    async def settled(self, _: Sequence[TxnSend]) -> None:
        await trio.lowlevel.checkpoint()

    def written(self) -> Mapping[TopicPartition, PartitionWrites]:
        return {place: PartitionWrites(5 + self.accepted.count(place), ()) for place in self.accepted}

    def abandon(self) -> None:
        self.is_abandoned = True


class DataConnections:
    """Where data are sent, which count as written."""

    is_open = False

    def writer(self, *_: object) -> DataWriter:
        return DataWriter()

    def rest(self) -> None:
        pass

    def close(self) -> None:
        pass


class Traces(NoTraces):
    """Keeps what transactions went through."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.outcomes: list[tuple[str, set[TopicPartition]]] = []

    def step(self, transactional_id: str, name: str) -> None:
        self.steps.append(name)

    def ended(self, transactional_id: str, outcome: str, places: Collection[TopicPartition]) -> None:
        self.outcomes.append((outcome, set(places)))


class At:
    """One instance with its owner of the id; its requests are those of the client that has the id there."""

    def __init__(self, name: str = "a", records: list[Message] | None = None) -> None:
        self.desk = Desk(name, records)
        self.traces = Traces()
        self.desk.tools = replace(self.desk.tools, traces=self.traces, connections=DataConnections)
        self.desk.former.read = self._read_former
        self.desk.former.fence = self._fence
        self.fenced: list[TopicPartition] = []
        self.former = Former({}, {}, {})
        self.owner = LogOwner("id", self.desk.tools)
        self.stats = self.desk.tools.stats
        self.connection = 1

    async def _read_former(self, *_: object) -> Former:
        await trio.lowlevel.checkpoint()
        return self.former

    async def _fence(self, ids: object, following: Producer, places: Sequence[TopicPartition]) -> None:
        await trio.lowlevel.checkpoint()
        self.fenced += places

    def other(self, name: str = "b") -> "At":
        """Another instance, or this one restarted, on the same log."""
        return At(name, self.desk.log.records)

    @property
    def client(self) -> Producer:
        return self.owner.id.client

    @property
    def request(self) -> TxnRequest:
        return TxnRequest("id", self.client, self.connection, "test")

    @property
    def writer(self) -> Any:
        """Of the open transaction."""
        assert self.owner.transaction is not None
        return self.owner.transaction.writer

    async def view(self) -> IdView:
        return await self.desk.read()

    async def init(self, resumed: Producer = NOBODY) -> "At":
        await self.owner.initialize(TIMEOUT_MS, resumed, "test")
        return self

    async def adopt(self) -> "At":
        await self.owner.adopt(await self.view())
        return self

    async def offsets(
        self,
        group: str = "g",
        *,
        partition: int = 0,
        implicit: bool = True,
        generation: int = -1,
    ) -> None:
        """TxnOffsetCommit: in ``implicit`` they begin a transaction."""
        rows = [TransactionOffsetsTopic("in", [TransactionOffsetsPartition(partition, 5)])]
        found = TransactionOffsets(group_id=group, generation_id=generation, member_id="m", topics=rows)
        await self.owner.commit_offsets(self.request, found, implicit=implicit)

    async def write(
        self, place: TopicPartition = P0, sequence: int = 0, *, implicit: bool = True, accepted: list[str] | None = None
    ) -> Sequence[Written]:
        batch = ClientBatch(*place, memoryview(b"data"), 1, sequence)
        taken = accepted if accepted is not None else []
        return await self.owner.produce(
            self.request, [batch], implicit=implicit, accepted=lambda: taken.append("accepted")
        )

    async def end(
        self,
        *,
        committed: bool = True,
        bumps: bool = False,
        also: DecisionScope = ALONE,
        client: Producer | None = None,
    ) -> Producer:
        request = self.request if client is None else self.request._replace(client=client)
        return await self.owner.end(request, committed=committed, bumps=bumps, also=also)

    def miss_next_read(self) -> None:
        """The log does not answer once."""
        log, read = self.desk.log, self.desk.log.read_to_end

        async def missed(transactional_id: str) -> IdView | None:
            log.read_to_end = read  # type: ignore[method-assign]
            raise OSError("no answer")

        log.read_to_end = missed  # type: ignore[method-assign]

    async def end_elsewhere(self) -> None:
        """Another instance ends what is open by a claim on behalf of this one, as when it is overdue."""
        acting = self.other("c").desk
        view = await acting.read()
        acting.keeper.serve(view)
        since = view.open_since()
        assert since is not None
        await acting.keeper.end_open(since)

    @contextmanager
    def before_append(self, kind: type, do: Any, times: int = 1) -> Iterator[None]:
        """``do`` is awaited before the next records of a kind are appended."""
        append, left = self.desk.log.append, [times]

        async def controlled(entry: Entry, *place: int) -> None:
            if isinstance(entry.body, kind) and left[0]:
                left[0] -= 1
                await do()
            await append(entry, *place)

        self.desk.log.append = controlled  # type: ignore[method-assign]
        yield
        self.desk.log.append = append  # type: ignore[method-assign]
