"""Producers that share one transactional id and one group, and take both over from each other again and again.

Each copies an imaginary partition: input n becomes one output record, and the group's offset moves to n + 1 in the same
transaction. A producer that was fenced sometimes ignores it and still sends its EndTxn: a zombie.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from verification.chaos.link import Address, LinkLost
from verification.chaos.raw_transactions import Protocol, RawTransactions, Refused
from verification.chaos.recorder import Recorder, now
from verification.history import Commit, Kind, Operation, Outcome, Producer, Send, Source

_PATIENCE_S: Final = 40.0
_LAST_S: Final = 60.0
_BACKOFF_S: Final = 0.2
_ABORTS: Final = 0.2
_ZOMBIES: Final = 0.5
_LATE: Final = 0.2
"""The share of transactions in which the EndTxn of the one before arrives once more."""
_AWAY_S: Final = (1.0, 4.0)
"""How long a producer that was fenced leaves the id to the other one."""
_ZOMBIE_S: Final = (0.0, 2.0)
"""How long a zombie waits before its EndTxn: the other producer may have begun a transaction."""
_DEFINITE: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
        # what TxnOffsetCommit v3 holds in place of the one above (kproxy.proxy.txn_errors)
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""Errors after which a request has had no effect and a retry has none either."""
_T = TypeVar("_T")


class _Over(Exception):
    """The transaction can't be continued: a definite error, or none of the retries was answered."""

    def __init__(self, error: str, *, definite: bool) -> None:
        self.definite = definite
        super().__init__(error)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the producers of one id have in common; ``transactional_id`` is also the name of their group."""

    transactional_id: str
    places: tuple[TopicPartition, ...]
    protocol: Protocol
    source: TopicPartition
    """The partition that they pretend to read: it exists and is empty; the group's offsets are of it."""


@dataclass(slots=True)
class _Transaction:
    """One attempt to copy some inputs."""

    identity: Producer
    invoke: int
    first: int
    sends: list[Send]
    asked: int | None = None

    @property
    def sources(self) -> range:
        return range(self.first, self.first + len(self.sends))


class Twin:
    """One of the producers.

    :param name: its client id, and its process in the history.
    :param bootstrap: twins may have different ones.
    """

    def __init__(self, name: str, shared: Shared, bootstrap: Address, recorder: Recorder, seed: int) -> None:
        self.name = name
        self._shared = shared
        self._recorder = recorder
        self._producer = RawTransactions(bootstrap, name, shared.transactional_id, shared.protocol)
        self._chance = random.Random(f"{name} {seed}")
        self._ends_at: float | None = None
        self._succeeded = False
        self._number = 0
        self._position = 0
        self._ended: tuple[Producer, bool, int] | None = None
        """The last EndTxn that succeeded: its identity, whether it committed, and when it was sent."""

    def stop(self) -> None:
        """Begin nothing new after the first commit, for which there is a minute more: the other one may have the id."""
        self._ends_at = trio.current_time() + _LAST_S

    def _goes_on(self) -> bool:
        return self._ends_at is None or (not self._succeeded and trio.current_time() < self._ends_at)

    async def run(self) -> None:
        """Take the id over, write until fenced, wait, take it over again."""
        try:
            while self._goes_on():
                try:
                    await self._live()
                except _Over as error:
                    self._recorder.note(self.name, f"leaves: {error}")
                    self._producer.close_coordinators()
                    await trio.sleep(self._chance.uniform(*_AWAY_S))
        finally:
            self._producer.close()

    async def read_position(self) -> None:
        """Take down the group's committed offset as the final one.

        :raises TimeoutError: it could not be read in 40 s.
        """
        invoke = now()
        try:
            offset = await self._until_done(lambda: self._producer.position(self._shared.source))
        except _Over as error:
            raise TimeoutError(f"the offset of {self._shared.transactional_id}: {error}") from error
        finally:
            self._producer.close()
        commits = (Commit(*self._shared.source, offset),)
        group = self._shared.transactional_id
        self._recorder.add(
            Operation(self.name, Kind.GROUP, Outcome.OK, invoke, now(), commits=commits, group=group, final=True)
        )

    async def _live(self) -> None:
        await self._until_done(self._init)
        self._position = await self._until_done(lambda: self._producer.position(self._shared.source))
        while self._goes_on():
            await self._transaction()

    async def _init(self) -> None:
        invoke = now()
        try:
            identity = await self._producer.init()
        except (Refused, LinkLost) as error:
            self._record(Kind.INIT, Outcome.INFO, invoke, None, error=str(error))
            raise
        self._ended = None
        self._recorder.note(self.name, f"is producer {identity.producer_id:x} epoch {identity.epoch}")
        self._record(Kind.INIT, Outcome.OK, invoke, identity)

    async def _transaction(self) -> None:
        transaction = _Transaction(self._producer.identity, now(), self._position, [])
        commit = self._chance.random() >= _ABORTS
        fenced: _Over | None = None
        try:
            await self._fill(transaction)
        except _Over as error:
            if not error.definite or self._chance.random() >= _ZOMBIES:
                self._settle(transaction, Outcome.FAIL, str(error))
                raise
            fenced, commit = error, True
            await trio.sleep(self._chance.uniform(*_ZOMBIE_S))
        transaction.asked = now() if commit else None
        try:
            following = await self._end(transaction.identity, commit)
        except _Over as error:
            self._settle(transaction, Outcome.INFO if commit and not error.definite else Outcome.FAIL, str(error))
            raise
        self._settle(transaction, Outcome.OK if commit else Outcome.FAIL, "" if commit else "aborted")
        self._producer.become(following)
        self._position += len(transaction.sends) if commit else 0
        self._succeeded = self._succeeded or commit
        if fenced is not None:
            raise fenced

    async def _fill(self, transaction: _Transaction) -> None:
        producer, protocol = self._producer, self._shared.protocol
        batches = self._batches(transaction)
        if not protocol.second:
            await self._until_done(lambda: producer.add_partitions(sorted(batches)))
        for place, values in batches.items():
            data = producer.batch(place, values)
            await self._until_done(lambda place=place, data=data: producer.write(place, data))  # type: ignore[misc]
        await self._end_late()
        if not protocol.second:
            await self._until_done(producer.add_group)
        moved = {self._shared.source: transaction.sources.stop}
        await self._until_done(lambda: producer.commit_offsets(moved))

    def _batches(self, transaction: _Transaction) -> dict[TopicPartition, list[str]]:
        """New outputs, each for some partition, at least two of them."""
        batches: dict[TopicPartition, list[str]] = {}
        for source in range(self._position, self._position + self._chance.randint(2, 5)):
            self._number += 1
            place, value = self._chance.choice(self._shared.places), f"{self.name}:{source}:{self._number}"
            batches.setdefault(place, []).append(value)
            transaction.sends.append(Send(*place, None, value))
        return batches

    async def _end_late(self) -> None:
        """Let the EndTxn of the transaction before arrive once more, if its epoch shows that it is late (KIP-890)."""
        if self._ended is None or not self._shared.protocol.second or self._chance.random() >= _LATE:
            return
        identity, commit, invoke = self._ended
        delivered, outcome, error = now(), Outcome.OK, ""
        try:
            await self._producer.end(identity, commit=commit)
        except Refused as refusal:
            outcome, error = Outcome.FAIL, str(refusal)
        except LinkLost as lost:
            outcome, error = Outcome.INFO, str(lost)
        self._record(Kind.END, outcome, invoke, identity, error=error, delivered=delivered)

    async def _end(self, identity: Producer, commit: bool) -> Producer:
        """Ask until the response is definite; a definite error after one that is not leaves the outcome open."""
        unsure, invoke = False, now()  # of the first request: an operation includes its retries

        async def ask() -> Producer:
            nonlocal unsure
            outcome, error = Outcome.OK, ""
            try:
                following = await self._producer.end(identity, commit=commit)
            except Refused as refusal:
                definite = refusal.error in _DEFINITE
                outcome, error = (Outcome.FAIL if definite else Outcome.INFO), str(refusal)
                unsure = unsure or not definite
                raise
            except LinkLost as lost:
                outcome, error, unsure = Outcome.INFO, str(lost), True
                raise
            finally:
                self._record(Kind.END, outcome, invoke, identity, error=error)
            self._ended = identity, commit, invoke
            return following

        try:
            return await self._until_done(ask)
        except _Over as error:
            raise _Over(str(error), definite=error.definite and not unsure) from error

    async def _until_done(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat a request until it succeeds or is refused for good, 40 s at most."""
        deadline = trio.current_time() + _PATIENCE_S
        while True:
            try:
                return await ask()
            except Refused as refusal:
                self._recorder.errors[str(refusal)] += 1
                error = str(refusal)
                if refusal.error in _DEFINITE:
                    raise _Over(error, definite=True) from refusal
                if not refusal.error.retriable:
                    self._recorder.unexpected[f"{self.name}: {error}"] += 1
                    raise _Over(error, definite=False) from refusal
                if refusal.error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                    self._producer.close_coordinators()
            except LinkLost as lost:
                error = str(lost)
                self._recorder.errors[error] += 1
            if trio.current_time() > deadline:
                raise _Over(f"no success in {_PATIENCE_S:.0f} s: {error}", definite=False)
            await trio.sleep(_BACKOFF_S)

    def _settle(self, transaction: _Transaction, outcome: Outcome, error: str) -> None:
        self._recorder.note(self.name, f"{transaction.sources}: {outcome} {error}")
        self._recorder.add(
            Operation(
                self.name,
                Kind.TXN,
                outcome,
                transaction.invoke,
                now(),
                sends=tuple(transaction.sends),
                commits=(Commit(*self._shared.source, transaction.sources.stop),),
                group=self._shared.transactional_id,
                error=error,
                asked=transaction.asked,
                transactional_id=self._shared.transactional_id,
                producer=transaction.identity,
                sources=tuple(Source(*self._shared.source, offset) for offset in transaction.sources),
            )
        )

    def _record(
        self,
        kind: Kind,
        outcome: Outcome,
        invoke: int,
        identity: Producer | None,
        *,
        error: str = "",
        delivered: int | None = None,
    ) -> None:
        self._recorder.add(
            Operation(
                self.name,
                kind,
                outcome,
                invoke,
                now(),
                error=error,
                transactional_id=self._shared.transactional_id,
                producer=identity,
                delivered=delivered,
            )
        )
