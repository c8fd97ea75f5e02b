"""Clients of one transactional id: what they ask, what they do with each response, and what they have heard."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

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
from kproxy.txn.requests import ClientBatch, IdHolder, TxnRequest, Written
from kproxy.txn.txn_error import TxnError
from verification.explorer.client_steps import FIRST, Make, Sending, Waiting
from verification.explorer.engine import Move, Step, Task
from verification.explorer.instance import Instance, batch_of
from verification.explorer.scripts import Script, Told, Txn
from verification.explorer.world import PARTITIONS, World

TIMEOUT_MS: Final = 60_000
#: Seconds until a request is sent again to an instance that does not coordinate the id: it takes it over then.
_PATIENCE: Final = 3.0
REPLACED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Fatal(KproxyError):
    """A client that can only end."""


class Abortable(KproxyError):
    """A client that has to abort its transaction."""


class Lost(Exception):
    """A client's connection has ended."""


class Client:
    """One producer."""

    def __init__(self, world: World, number: int, script: Script) -> None:
        """Begin with nothing asked."""
        self.world, self.number, self.script = world, number, script
        self.name = f"client {number}"
        self.at = script.at
        self.connection = 100 * number + 1
        self.identity = NOBODY
        self.told: list[Told] = []
        self.waiting: set[Waiting] = set()
        self.ended = ""
        #: Whether its first InitProducerId may still be served after it was repeated: that replaces the client.
        self.has_rival = False
        #: How often a response said that its transaction can only be aborted; the request and the error that ended it.
        self.aborts = 0
        self.refused = ("", ErrorCode.NONE)
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def generation(self) -> int:
        """The group's, as far as the client knows."""
        return self.world.generation

    def offset(self, number: int) -> int:
        """The group's offset after its n-th transaction."""
        return number

    def start(self) -> None:
        """Begins."""
        self.world.engine.start(self.name, self, self._run(), self._end)

    def moves(self) -> Iterator[Move]:
        """Yield what may happen to it by itself."""
        return iter(())

    def may_lose(self, what: str) -> bool:
        """Whether the connection over which it asks for something may end."""
        return True

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
        async def ask(instance: Instance, request: TxnRequest) -> Producer:
            return await instance.requests.init_producer_id(
                self.script.transactional_id, TIMEOUT_MS, request.client, self.name, holder=request.holder
            )

        is_first = self.identity == NOBODY
        self._take(await self._ask(FIRST if is_first else "InitProducerId with its identity", ask))

    def _take(self, identity: Producer) -> None:
        """Continue under an identity that it has received."""
        if identity != self.identity:
            self.world.given.append((identity, self.name))
        self.identity = identity
        self._sequences.clear()

    async def _transaction(self, txn: Txn) -> None:
        told = Told()
        self.told.append(told)
        if txn.renews:
            await self._initialize()
        counts = list(zip(PARTITIONS, txn.records, strict=False))
        places = [place for place, number in counts if number]
        try:
            if not self.script.second and places:
                await self._add(places)
            await self._write_all(told, [place for place, number in counts for _ in range(number)])
            if txn.offsets:
                await self._move_offsets()
                told.offsets = True
            if txn.commits:
                await self._finish(told, committed=True)
                return
        except Abortable:
            pass
        if txn.ends_renewed:
            told.asked.append(False)
            await self._initialize()
            told.committed = False
            return
        await self._finish(told, committed=False)

    def request(self) -> TxnRequest:
        """Return a request that names its identity and its connection."""
        holder = IdHolder("", self.name)
        return TxnRequest(self.script.transactional_id, self.identity, self.connection, self.name, holder)

    async def _add(self, places: Sequence[TopicPartition]) -> None:
        async def ask(instance: Instance, request: TxnRequest) -> None:
            errors = await instance.requests.add_partitions(request, places)
            assert not errors

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

        async def ask(instance: Instance, request: TxnRequest) -> Written:
            batch = ClientBatch(*place, batch_of(f"<{payload}>"), 1, sequence)
            rows = await instance.requests.produce(request, [batch], implicit=second, accepted=lambda: None)
            return rows[0]

        error, offset, _ = await self._ask(f"Produce {payload}", ask)
        if error:
            raise Abortable(f"{payload}: {error}")
        if offset >= 0 and (found := self.world.partitions[place].rows[offset].payload) != payload:
            self.world.misplaced.append(f"{found} is at {place[1]}:{offset}, and not {payload}")
        told.acknowledged.append(payload)

    async def _move_offsets(self) -> None:
        second, generation = self.script.second, self.generation
        if not second:

            async def add(instance: Instance, request: TxnRequest) -> None:
                await instance.requests.add_offsets(request, "g")

            await self._ask("AddOffsetsToTxn", add)

        async def ask(instance: Instance, request: TxnRequest) -> None:
            rows = [TransactionOffsetsTopic("in", [TransactionOffsetsPartition(0, self.offset(len(self.told)))])]
            offsets = TransactionOffsets(
                group_id="g", generation_id=generation, member_id=f"m{self.number}", topics=rows
            )
            await instance.requests.commit_offsets(request, offsets, implicit=second)

        await self._ask("TxnOffsetCommit", ask)

    async def _finish(self, told: Told, *, committed: bool) -> None:
        told.asked.append(committed)
        second = self.script.second

        async def ask(instance: Instance, request: TxnRequest) -> Producer:
            return await instance.requests.end(request, committed=committed, bumps=second)

        try:
            identity = await self._ask(f"EndTxn {'commit' if committed else 'abort'}", ask)
        except Abortable:
            if not committed:
                raise Fatal("an abort was refused") from None
            await self._finish(told, committed=False)
            return
        told.committed = committed
        if second:
            self._take(identity)

    async def _ask(self, what: str, make: Make) -> Any:
        attempt = -1
        while True:
            attempt += 1
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
                    self.aborts += 1
                    raise Abortable(what) from None
                self.refused = what, ErrorCode(error.error_code)
                if not attempt and what == "EndTxn commit" and error.error_code in REPLACED:
                    self.told[-1].is_denied = True
                raise Fatal(f"{what}: {error}") from None
