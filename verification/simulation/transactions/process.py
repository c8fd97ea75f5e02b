"""A process of a transactional producer, modelled: what it asks, in which versions, what it makes of each error."""

from collections.abc import Mapping, Sequence
from math import inf
from random import Random
from typing import Any, Final

import trio

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
)
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.txn.ids import Producer
from verification.simulation.plan import TOPIC
from verification.simulation.transactions import invariants
from verification.simulation.transactions.batches import ClientBatch
from verification.simulation.transactions.calls import LOST, Calls
from verification.simulation.transactions.causes import Causes
from verification.simulation.transactions.coordinators import GROUP, Coordinators, Fatal, error_of
from verification.simulation.transactions.history import Asked, Claimed, Input, TransactionHistory
from verification.simulation.transactions.plan import ProducerPlan
from verification.simulation.transactions.routes import Route

NOBODY: Final = Producer(-1, -1)
#: The time for which a batch is sent again (delivery.timeout.ms), in seconds.
_DELIVERY: Final = 20.0
_BACKOFFS: Final = (0.02, 0.1, 0.3)

_FIRST: Final[Mapping[int, int]] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.END_TXN: 3,
    ApiKey.PRODUCE: 9,
}
_SECOND: Final[Mapping[int, int]] = {
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.END_TXN: 5,
    ApiKey.PRODUCE: 12,
}
#: The application is asked to abort.
_ABORTABLE: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID})
#: A newer producer has the id. In response to a repeated EndTxn this says nothing of the first.
_REPLACED: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_GROUP_MOVED: Final = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
_STATE_LOST: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Abortable(Exception):
    """The transaction can only be aborted; ``renew``: the producer asks for a new epoch after it."""

    def __init__(self, why: str, *, renew: bool = False) -> None:
        super().__init__(why)
        self.renew = renew


class Process:
    """One life of a producer, step by step; all steps raise ``Abortable`` and ``Fatal``."""

    def __init__(
        self, plan: ProducerPlan, name: str, calls: Calls, history: TransactionHistory, rng: Random, route: Route
    ) -> None:
        """``name`` in the trace, and before the names of its transactions; ``route``: which kproxies it asks."""
        self.route = route
        self._plan = plan
        self._name = name
        self._calls = calls
        self._history = history
        self._rng = rng
        self._versions = _SECOND if plan.second_version else _FIRST
        self._coordinators = Coordinators(calls, self._versions, rng, self.say)
        self._me = NOBODY
        self._sequences: dict[int, int] = {}
        self._joined: set[int] = set()
        self._initializing: Asked | None = None
        #: When it received its identity, by trio's clock.
        self._told_at = inf
        self._causes = Causes(
            history, plan.transactional_id, route.visited, plan.timeout_ms, second_version=plan.second_version
        )

    def say(self, text: str) -> None:
        """Notes what it does."""
        self._history.note(f"producer {self._name} {text}")

    def killed(self) -> None:
        """The process has ended; what it has sent may still arrive."""
        self.say("is killed")
        if self._initializing is not None:
            self._history.strays(self._initializing, trio.current_time())

    def close(self) -> None:
        """Closes its connections."""
        self._calls.close()

    # -- the coordinator

    async def initialize(self, *, again: bool = False) -> None:
        """InitProducerId; ``again``: with the identity that it has (KIP-360)."""
        had = self._me if again else NOBODY
        self.say(f"asks for a producer id ({had.epoch})")
        plan, history = self._plan, self._history
        self._initializing = asked = history.asks_identity(plan.transactional_id, trio.current_time())
        self._causes.initializes(asked, again=again)
        request = InitProducerIdRequest(plan.transactional_id, plan.timeout_ms, had.producer_id, had.epoch)
        answer = await self._coordinate(request, lost=lambda: history.strays(asked, trio.current_time()))
        self._initializing = None
        if not asked.is_stray:
            asked.over = trio.current_time()
        self._judge(answer.error_code)
        self._causes.initialized()
        self._me = Producer(answer.producer_id, answer.producer_epoch)
        self._told_at = trio.current_time()
        history.gives(plan.transactional_id, self._me, asked.sent)
        self._look_at_identity()
        self._sequences.clear()
        self.say(f"is {self._me.producer_id}/{self._me.epoch}")

    async def _coordinate(self, message: Any, **more: Any) -> Any:
        return await self._coordinators.ask(message, self._plan.transactional_id, **more)

    def begin(self, nth: int) -> Claimed:
        """A new transaction."""
        self._joined = set()
        return self._history.open(f"{self._name}.{nth}", self._plan.number, self._plan.transactional_id)

    async def end(self, claimed: Claimed, *, committed: bool) -> None:
        """EndTxn, unless nothing was begun."""
        if not claimed.begun and not self._plan.second_version:
            return
        fenced = self._is_fenced()
        if committed:
            self._history.asks(claimed)
        self.say(f"{'commits' if committed else 'aborts'} {claimed.name} as {self._me.epoch}")
        request, repeated = EndTxnRequest(self._plan.transactional_id, *self._me, committed), list[bool]()
        answer = await self._coordinate(request, again=lambda: repeated.append(True))
        self._causes.ended()
        if answer.error_code in (_ABORTABLE if repeated else _ABORTABLE | _REPLACED) and committed:
            claimed.told = False
        self._judge(answer.error_code)
        claimed.told = committed
        self.say(f"learns that {claimed.name} is {'committed' if committed else 'aborted'}")
        if fenced and claimed.values:
            self._history.breaks(invariants.FENCED, f"{claimed.name} ended well, though a newer producer had the id")
        if self._plan.second_version:
            self._me = Producer(answer.producer_id, answer.producer_epoch)
            self._look_at_identity()
            self._sequences.clear()

    def _look_at_identity(self) -> None:
        holder = self._history.holder(self._me, self._name)
        if holder != self._name:
            what = f"{self._me.producer_id}/{self._me.epoch}"
            self._history.breaks(invariants.IDENTITY, f"producer {self._name} is named {what}, as {holder} is")

    def _judge(self, code: int) -> None:
        """Raises what an error means to the producer, and notes one that it should not get."""
        if not code:
            return
        name = ErrorCode(code).name
        if code in _ABORTABLE:
            raise Abortable(name)
        if not self._causes.has(code):
            self._history.breaks(invariants.CAUSE, f"producer {self._name} receives {name}")
        raise Fatal(name)

    def _is_fenced(self) -> bool:
        return self._history.is_fenced(self._plan.transactional_id, self._me, self._told_at)

    # -- offsets

    async def move(self, claimed: Claimed, what: Input, member_id: str = "", generation: int = -1) -> None:
        """``sendOffsetsToTransaction``: the group has read its input so far; without a member nobody is checked."""
        self.say(f"moves {what.group} to {what.position} in {claimed.name}")
        claimed.input, claimed.begun = what, True
        self._causes.works()
        who = (self._plan.transactional_id, *self._me)
        if not self._plan.second_version:
            self._judge((await self._coordinate(AddOffsetsToTxnRequest(*who, what.group))).error_code)
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=what.position)
        request = TxnOffsetCommitRequest(
            who[0],
            what.group,
            *self._me,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
        )
        code = error_of(await self._coordinators.ask(request, what.group, key_type=GROUP))
        if code in _GROUP_MOVED:
            raise Abortable(ErrorCode(code).name)
        self._judge(code)

    # -- data

    async def write(self, claimed: Claimed, batches: Sequence[tuple[int, int]]) -> None:
        """Writes so many records each to some partitions, until something definite is said of all."""
        self._causes.works()
        fresh = [place for place, _ in batches if place not in self._joined]
        if fresh and not self._plan.second_version:
            await self._join(fresh, claimed)
            self._joined.update(fresh)
        claimed.begun = True
        made = [self._batches(claimed, place, count) for place, count in batches]
        failures: list[Abortable | Fatal] = []

        async def deliver(some: list[ClientBatch]) -> None:
            try:
                await self._deliver(some, claimed)
            except (Abortable, Fatal) as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for some in made:
                nursery.start_soon(deliver, some)
        for failure in sorted(failures, key=lambda error: isinstance(error, Abortable)):
            raise failure

    async def _join(self, places: Sequence[int], claimed: Claimed) -> None:
        claimed.begun = True
        answer = await self._coordinate(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._plan.transactional_id,
                v3_and_below_producer_id=self._me.producer_id,
                v3_and_below_producer_epoch=self._me.epoch,
                v3_and_below_topics=[AddPartitionsToTxnRequestAddPartitionsToTxnTopic(TOPIC, list(places))],
            )
        )
        self._judge(error_of(answer))

    def _batches(self, claimed: Claimed, place: int, count: int) -> list[ClientBatch]:
        """New records: as one batch or, of a producer that has several requests in flight, a batch for each."""
        values = self._history.values(claimed, place, count, late=self._is_fenced())
        parts = [[value] for value in values] if self._plan.pipelines else [values]
        made = []
        for part in parts:
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + len(part)
            made.append(ClientBatch(place, part, self._plan.transactional_id, self._me, sequence))
        return made

    async def _deliver(self, batches: list[ClientBatch], claimed: Claimed) -> None:
        """Sends batches of a partition, and again, until something definite is said of all."""
        place, left, unknown = batches[0].place, batches, len(batches) > 1
        deadline = trio.current_time() + _DELIVERY
        while trio.current_time() < deadline:
            answers: list[Any] = []
            try:
                leader = await self._calls.leader(place)
                for batch in left:
                    self.say(f"sends {place}: {batch.text} at {batch.sequence} as {self._me.epoch}")
                version = self._versions[ApiKey.PRODUCE]
                answers = await self._calls.ask_all(leader, [batch.request for batch in left], version)
            except LOST as error:
                self.say(f"finds no leader of {place}: {error!r}")
            unknown |= len(answers) < len(left)
            left = self._undelivered(left, answers, claimed, unknown=unknown)
            if not left:
                return
            self._calls.forget(place)
            await trio.sleep(self._rng.choice(_BACKOFFS))
        raise Abortable("delivery.timeout.ms has passed", renew=True)

    def _undelivered(
        self, batches: list[ClientBatch], answers: list[Any], claimed: Claimed, *, unknown: bool
    ) -> list[ClientBatch]:
        """The batches to send again; ``Abortable`` or ``Fatal`` after an error that is definite."""
        left: list[ClientBatch] = []
        for batch, answer in zip(batches, answers, strict=False):
            (row,) = answer.responses[0].partition_responses
            if not row.error_code:
                self._history.acknowledges(claimed, batch.place, batch.values, row.base_offset)
                continue
            self.say(f"receives {ErrorCode(row.error_code).name} for {batch.text}")
            is_behind = bool(left) and row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if not is_behind and not ErrorCode(row.error_code).retriable:
                self._failed(batch, row.error_code, unknown=unknown)
            left.append(batch)
        unheard = batches[len(answers) :]
        if unheard:
            self.say(f"has no answer to Produce {' '.join(batch.text for batch in unheard)}")
        left += unheard
        if unheard and self._plan.reuses:
            self._sequences[left[0].place] = left[0].sequence
            raise Abortable("it drops what has no response")
        return left

    def _failed(self, batch: ClientBatch, code: int, *, unknown: bool) -> None:
        """Fails a batch like the Java producer: a batch that was never sent twice gives its sequence back."""
        if self._plan.reuses:
            raise Abortable(ErrorCode(code).name)
        is_old = code == ErrorCode.INVALID_TXN_STATE and not self._plan.second_version  # what brokers say before v11
        if unknown or self._plan.renews or code in _STATE_LOST or is_old:
            raise Abortable(ErrorCode(code).name, renew=True)
        self._sequences[batch.place] -= len(batch.values)
        self._judge(code)
