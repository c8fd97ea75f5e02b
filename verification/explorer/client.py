"""Clients of one transactional id: what they ask, what they do with each response, and what they have heard."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import KproxyError
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import ALONE
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.txn_error import TxnError
from verification.explorer.engine import Move, Step, Task
from verification.explorer.instance import Instance, batch_of
from verification.explorer.world import NAME, PARTITIONS, World

_TIMEOUT_MS: Final = 60_000
#: Seconds until a request is sent again to an instance that does not coordinate the id: it takes it over then.
_PATIENCE: Final = 3.0
_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Txn(NamedTuple):
    """What a transaction is to write: how many records to each partition; and whether it moves a group's offsets."""

    records: tuple[int, ...] = (1,)
    commits: bool = True
    offsets: bool = False


class Script(NamedTuple):
    """What a client does."""

    txns: tuple[Txn, ...]
    #: The second protocol: partitions join by being written, and each end gives a new identity (KIP-890).
    second: bool = False
    #: Its records are in flight at the same time, perhaps through several instances.
    pipelined: bool = False


@dataclass
class Told:
    """What a client knows of a transaction."""

    sent: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    #: Which ends it has asked for: whether to commit.
    asked: list[bool] = field(default_factory=list)
    #: What it has heard: None: nothing yet.
    committed: bool | None = None
    #: Whether the group's offsets were acknowledged.
    offsets: bool = False


class Fatal(KproxyError):
    """A client that can only end."""


class Abortable(KproxyError):
    """A client that has to abort its transaction."""


class Lost(Exception):
    """A client's connection has ended."""


class Sending(Step):
    """Waits until a request is sent to an instance."""

    def __init__(self, client: "Client", what: str, make: Callable[[Instance], Coroutine[Step, Any, Any]]) -> None:
        """``make`` begins what the instance does."""
        super().__init__("send", what)
        self._client, self._what, self._make = client, what, make

    def moves(self) -> Iterator[Move]:
        """To the instance that it used last, or to another one."""
        client = self._client
        for number, instance in enumerate(client.world.instances):
            is_same = number == client.at
            if is_same or client.world.budget["moves"]:
                text = f"{client.name} asks {instance.name}: {self._what}"
                yield Move(text, partial(self._send, number), is_fault=not is_same)

    def _send(self, number: int) -> None:
        client, world = self._client, self._client.world
        if number != client.at:
            world.budget.take("moves")
            client.leave()
            client.at = number
        instance = world.instances[number]
        waiting = Waiting(client, instance, self._what)
        assert self.task is not None
        task = self.task
        client.waiting.add(waiting)
        task.resume(waiting)
        waiting.begin(self._make(instance))


class Waiting(Step):
    """Waits for an instance's response."""

    def __init__(self, client: "Client", instance: Instance, what: str) -> None:
        """To a request that was sent."""
        super().__init__("response", what)
        self._client, self.instance, self._what = client, instance, what
        self._done: Task | None = None

    def begin(self, coroutine: Coroutine[Step, Any, Any]) -> None:
        """The instance takes the request."""
        name = f"{self.instance.name}/{self._what}"
        self._client.world.engine.start(name, self.instance, coroutine, self._answer)

    @property
    def is_awaited(self) -> bool:
        """Whether its client still waits for it."""
        return self.task is not None and self.task.waits is self

    def _answer(self, task: Task) -> None:
        self._done = task
        self.facts = (*self.facts, "answered", task.result, task.error)
        if self.is_awaited and not self._client.world.budget["unheard"]:
            self._hear()

    def moves(self) -> Iterator[Move]:
        """The response is read, or the connection ends before."""
        if self._done is not None:
            yield Move(f"{self._client.name} reads the response: {self._what}", self._hear)
        if self._client.world.budget["unheard"]:
            yield Move(f"{self._client.name} loses its connection: {self._what}", self._lose, is_fault=True)

    def _hear(self) -> None:
        assert self.task is not None
        assert self._done is not None
        self._client.waiting.discard(self)
        self.task.resume(self._done.result, self._done.error)

    def _lose(self) -> None:
        self._client.world.budget.take("unheard")
        self.break_off()

    def break_off(self) -> None:
        """The connection has ended."""
        assert self.task is not None
        self._client.waiting.discard(self)
        self._client.leave()
        self.task.resume(error=OSError("the connection ended"))


class Client:
    """One producer."""

    def __init__(self, world: World, number: int, script: Script) -> None:
        """It has asked nothing yet."""
        self.world, self.number, self.script = world, number, script
        self.name = f"client {number}"
        self.at = 0
        self.connection = 100 * number + 1
        self.identity = NOBODY
        self.told: list[Told] = []
        self.waiting: set[Waiting] = set()
        self.ended = ""
        self._sequences: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """Begins."""
        self.world.engine.start(self.name, self, self._run(), self._end)

    def leave(self) -> None:
        """Its next request comes over another connection."""
        instance = self.world.instances[self.at]
        for owner in instance.owners:
            owner.id.closed(self.connection)
        self.connection += 1

    def lost(self, instance: Instance) -> None:
        """An instance was killed."""
        for waiting in [one for one in self.waiting if one.instance is instance]:
            waiting.break_off()

    def _end(self, task: Task) -> None:
        self.ended = self.ended or ("done" if task.error is None else repr(task.error))

    # -- what it does

    async def _run(self) -> None:
        try:
            await self._initialize()
            for txn in self.script.txns:
                await self._transaction(txn)
        except Fatal as error:
            self.ended = f"fatal: {error}"

    async def _initialize(self) -> None:
        async def ask(instance: Instance) -> Producer:
            return await instance.owners.initialize(NAME, _TIMEOUT_MS, NOBODY, self.name)

        self.identity = await self._ask("InitProducerId", ask)
        self._sequences.clear()

    async def _transaction(self, txn: Txn) -> None:
        told = Told()
        self.told.append(told)
        counts = list(zip(PARTITIONS, txn.records, strict=False))
        places = [place for place, count in counts if count]
        try:
            if not self.script.second and places:
                await self._add(places)
            await self._write_all(told, [place for place, count in counts for _ in range(count)])
            if txn.offsets:
                await self._move_offsets()
                told.offsets = True
            if txn.commits:
                await self._finish(told, committed=True)
                return
        except Abortable:
            pass
        await self._finish(told, committed=False)

    def _request(self) -> TxnRequest:
        return TxnRequest(NAME, self.identity, self.connection, self.name)

    async def _add(self, places: Sequence[TopicPartition]) -> None:
        async def ask(instance: Instance) -> None:
            request = self._request()
            owner = await instance.owners.owner(request)
            await owner.join(request, places)

        await self._ask("AddPartitionsToTxn", ask)

    async def _write_all(self, told: Told, places: Sequence[TopicPartition]) -> None:
        if not self.script.pipelined:
            for place in places:
                await self._write(told, place)
            return
        left, failed, all_done = [len(places)], list[Exception](), Step("writes")

        def done(task: Task) -> None:
            left[0] -= 1
            failed.extend([] if task.error is None else [task.error])
            if not left[0] and all_done.task is not None:
                all_done.task.resume()

        for place in places:
            self.world.engine.start(f"{self.name} writes", self, self._write(told, place), done)
        if left[0]:
            await all_done
        if failed:
            raise failed[0]

    async def _write(self, told: Told, place: TopicPartition) -> None:
        payload = f"{self.number}.{len(told.sent)}.{len(self.told)}"
        told.sent.append(payload)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        second = self.script.second

        async def ask(instance: Instance) -> int:
            request = self._request()
            batch = ClientBatch(*place, batch_of(f"<{payload}>"), 1, sequence)
            owner = await instance.owners.owner(request)
            rows = await owner.produce(request, [batch], implicit=second, accepted=lambda: None)
            return rows[0].error_code

        error = await self._ask(f"Produce {payload}", ask)
        if error:
            raise Abortable(f"{payload}: {error}")
        told.acknowledged.append(payload)

    async def _move_offsets(self) -> None:
        second, generation = self.script.second, self.world.generation
        if not second:

            async def add(instance: Instance) -> None:
                request = self._request()
                await (await instance.owners.owner(request)).add_offsets(request, "g")

            await self._ask("AddOffsetsToTxn", add)

        async def ask(instance: Instance) -> None:
            request = self._request()
            rows = [TransactionOffsetsTopic("in", [TransactionOffsetsPartition(0, len(self.told))])]
            offsets = TransactionOffsets(group_id="g", generation_id=generation, member_id="m", topics=rows)
            await (await instance.owners.owner(request)).commit_offsets(request, offsets, implicit=second)

        await self._ask("TxnOffsetCommit", ask)

    async def _finish(self, told: Told, *, committed: bool) -> None:
        told.asked.append(committed)
        second = self.script.second

        async def ask(instance: Instance) -> Producer:
            request = self._request()
            owner = await instance.owners.owner(request)
            return await owner.end(request, committed=committed, bumps=second, also=ALONE)

        try:
            identity = await self._ask(f"EndTxn {'commit' if committed else 'abort'}", ask)
        except Abortable:
            if not committed:
                raise Fatal("an abort was refused") from None
            await self._finish(told, committed=False)
            return
        told.committed = committed
        if second:
            self.identity = identity
            self._sequences.clear()

    async def _ask(self, what: str, make: Callable[[Instance], Coroutine[Step, Any, Any]]) -> Any:
        while True:
            try:
                waiting: Waiting = await Sending(self, what, make)
                return await waiting
            except OSError:
                continue
            except TxnError as error:
                if error.error_code in _AGAIN:
                    if error.error_code is ErrorCode.NOT_COORDINATOR:
                        self.world.time.seconds += _PATIENCE
                    if not self.world.budget["again"]:
                        raise Fatal("it has asked often enough") from None
                    self.world.budget.take("again")
                    continue
                if error.error_code is ErrorCode.TRANSACTION_ABORTABLE:
                    raise Abortable(what) from None
                raise Fatal(f"{what}: {error}") from None
