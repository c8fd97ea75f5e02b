"""Clients that know nothing of transactions, in transactions: by hand over the control API, or each request one."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from kproxy.client import ControlClient, ControlError, ControlUnreachable
from kproxy.codec.topic_partition import TopicPartition
from verification.chaos.habits import PendingRecord
from verification.chaos.link import Address
from verification.chaos.plain_writer import PlainWriter, Values
from verification.chaos.recorder import Recorder, now
from verification.history import Kind, Operation, Outcome, Send

TIMEOUT_MS: Final = 15_000
_DECISION_S: Final = 90.0
_PAUSE_S: Final = 0.1
_BACKOFF_S: Final = 0.3
_ATTEMPTS: Final = 4
_ABORTS: Final = 0.2
"""The share of transactions that are aborted for no reason."""


@dataclass(frozen=True, slots=True)
class Unaware:
    """Who writes where; ``name`` is the client.id, ``transactional_id`` is for those whose transactions go by hand."""

    name: str
    places: tuple[TopicPartition, ...]
    transactional_id: str = ""
    version: int = 2
    """Of its Produce requests."""


class _Client:
    """What both kinds do: unique values, round after round, until they are stopped."""

    def __init__(self, who: Unaware, bootstrap: Address, recorder: Recorder, seed: int) -> None:
        self._who = who
        self._recorder = recorder
        self._writer = PlainWriter(who.name, bootstrap, recorder, who.version)
        self._chance = random.Random(f"{who.name} {seed}")
        self._stopping = False
        self._number = 0

    def stop(self) -> None:
        """Begin nothing new."""
        self._stopping = True

    async def run(self) -> None:
        """Write, transaction after transaction."""
        try:
            while not self._stopping:
                await self._round()
                await trio.sleep(_PAUSE_S)
        finally:
            self._writer.close()

    async def _round(self) -> None:
        raise NotImplementedError

    def _values(self) -> dict[TopicPartition, list[PendingRecord]]:
        """New records for some of the partitions, at least two of them."""
        places = self._chance.sample(self._who.places, self._chance.randint(2, len(self._who.places)))
        return {place: [self._new(place) for _ in range(self._chance.randint(1, 3))] for place in sorted(places)}

    def _new(self, place: TopicPartition) -> PendingRecord:
        """A record that keeps its time when it is sent again."""
        self._number += 1
        return PendingRecord(place, f"{self._who.name}:{self._number}", time.time_ns() // 1_000_000, now())

    def _record(
        self,
        outcome: Outcome,
        invoke: int,
        values: Values,
        offsets: dict[TopicPartition, int],
        asked: int | None,
        error: str,
    ) -> None:
        sends = tuple(
            Send(*place, offsets[place] + at if place in offsets else None, record.value)
            for place, batch in values.items()
            for at, record in enumerate(batch)
        )
        name = self._who.name
        self._recorder.note(name, f"{outcome}: {error}")
        self._recorder.add(Operation(name, Kind.TXN, outcome, invoke, now(), sends, error=error, asked=asked))


class PerRequest(_Client):
    """Each request is a transaction; it is never sent again, for its repetition would be another one."""

    async def _round(self) -> None:
        for leader, values in await self._writer.by_leader(self._values()):
            invoke = now()
            offsets = await self._writer.send(leader, values)
            outcome = Outcome.OK if len(offsets) == len(values) else Outcome.INFO
            self._record(outcome, invoke, values, offsets, invoke, "")


class ByHand(_Client):
    """Begins and ends its transactions over the control API, and sends again what is not acknowledged."""

    def __init__(self, who: Unaware, bootstrap: Address, control: ControlClient, recorder: Recorder, seed: int) -> None:
        super().__init__(who, bootstrap, recorder, seed)
        self._control = control
        self._batch = 0

    async def _round(self) -> None:
        if not await self._begin():
            return
        invoke, values = now(), self._values()
        offsets = await self._write(values)
        if len(offsets) < len(values) or self._chance.random() < _ABORTS:
            await self._abort()
            self._record(Outcome.FAIL, invoke, values, offsets, None, "aborted")
            return
        asked = now()
        outcome, error = await self._commit()
        self._record(outcome, invoke, values, offsets, asked, error)

    async def _begin(self) -> bool:
        """Whether a new transaction is open; what may be open of the last one is aborted."""
        who = self._who
        begin = partial(
            self._control.begin, client_id=who.name, transactional_id=who.transactional_id, timeout_ms=TIMEOUT_MS
        )
        try:
            await trio.to_thread.run_sync(begin)
        except (ControlError, ControlUnreachable) as error:
            self._meet(error)
            await self._abort()
            await trio.sleep(_BACKOFF_S)
            return False
        return True

    async def _write(self, values: Values) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        for attempt in range(_ATTEMPTS):
            if attempt:
                await trio.sleep(_BACKOFF_S)
            left = {place: batch for place, batch in values.items() if place not in offsets}
            for leader, part in await self._writer.by_leader(left):
                offsets |= await self._writer.send(leader, part)
            if len(offsets) == len(values):
                break
        return offsets

    async def _abort(self) -> None:
        def abort() -> None:
            name = self._who.transactional_id
            self._control.abort(name, owner=self._control.describe(name).owner)

        try:
            await trio.to_thread.run_sync(abort)
        except (ControlError, ControlUnreachable) as error:
            self._meet(error)

    async def _commit(self) -> tuple[Outcome, str]:
        """Ask under one batch id until the response is definite; what is refused may be committed if it was open."""
        self._batch += 1
        commit = partial(self._control.commit, self._who.transactional_id, batch_id=str(self._batch))
        deadline, unsure, error = trio.current_time() + _DECISION_S, False, ""
        while trio.current_time() < deadline:
            try:
                await trio.to_thread.run_sync(commit)
            except ControlUnreachable as failure:
                unsure, error = True, str(failure)
            except ControlError as failure:
                error = failure.error
                if error == "TRANSACTION_ABORTABLE":
                    return Outcome.FAIL, error
                if not failure.retriable:
                    return Outcome.INFO if unsure else Outcome.FAIL, error
                unsure = True
            else:
                return Outcome.OK, ""
            self._recorder.errors[f"commit: {error[:40]}"] += 1
            await trio.sleep(_BACKOFF_S)
        return Outcome.INFO, error

    def _meet(self, error: ControlError | ControlUnreachable) -> None:
        name = error.error if isinstance(error, ControlError) else "control API unreachable"
        self._recorder.errors[name] += 1
        self._recorder.note(self._who.name, str(error))


def places_of(topics: Sequence[str], partitions: int) -> tuple[TopicPartition, ...]:
    """All partitions of topics that have so many."""
    return tuple((topic, partition) for topic in topics for partition in range(partitions))
