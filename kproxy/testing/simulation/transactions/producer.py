"""A transactional producer, modelled: what it asks, in which versions, what it does about each error."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import trio

from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
)
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.simulation.plan import TOPIC
from kproxy.testing.simulation.transactions import invariants
from kproxy.testing.simulation.transactions.calls import LOST, Address, Calls
from kproxy.testing.simulation.transactions.history import Claimed, TransactionHistory
from kproxy.testing.simulation.transactions.plan import Life, ProducerPlan, Round, TransactionPlan
from kproxy.txn.ids import Producer

_NOBODY: Final = Producer(-1, -1)
#: How long a call goes on (max.block.ms), and a batch is sent again (delivery.timeout.ms), in seconds.
_MAX_BLOCK: Final = 30.0
_DELIVERY: Final = 20.0
_BACKOFFS: Final = (0.02, 0.1, 0.3)
_PRODUCE_TIMEOUT_MS: Final = 4000
_TRANSACTION: Final = 1

_FIRST: Final[Mapping[int, int]] = {
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.PRODUCE: 9,
}
_SECOND: Final[Mapping[int, int]] = {
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.END_TXN: 5,
    ApiKey.PRODUCE: 12,
}
#: The application is told to abort.
_ABORTABLE: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID})
_STATE_LOST: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Abortable(Exception):
    """The transaction can only be aborted; ``renew``: the producer asks for a new epoch behind it."""

    def __init__(self, why: str, *, renew: bool = False) -> None:
        super().__init__(why)
        self.renew = renew


class Fatal(Exception):
    """The producer can only be closed."""


class TransactionalProducer:
    """All lives of one."""

    def __init__(
        self, plan: ProducerPlan, calls: Callable[[Life, int], Calls], history: TransactionHistory, seed: int
    ) -> None:
        """``calls`` makes the connections of a life; by its number."""
        self.plan = plan
        self._calls = calls
        self._history = history
        self._rng = Random(f"{seed} producer {plan.number}")

    async def run(self) -> None:
        """One life after the other."""
        for nth, life in enumerate(self.plan.lives):
            await trio.sleep(life.gap)
            calls = self._calls(life, nth)
            process = _Process(self.plan, nth, life, calls, self._history, self._rng)
            with trio.move_on_after(life.dies_after if life.dies_after is not None else float("inf")) as scope:
                await process.run()
            if scope.cancelled_caught:
                process.killed()
            calls.close()


class _Process:
    """One life."""

    def __init__(
        self, plan: ProducerPlan, nth: int, life: Life, calls: Calls, history: TransactionHistory, rng: Random
    ) -> None:
        self._plan = plan
        self._nth = nth
        self._life = life
        self._calls = calls
        self._history = history
        self._rng = rng
        self._versions = _SECOND if plan.second_version else _FIRST
        self._coordinator: Address | None = None
        self._me = _NOBODY
        self._sequences: dict[int, int] = {}
        self._initializing = False

    def _say(self, text: str) -> None:
        self._history.note(f"producer {self._plan.number}.{self._nth} {text}")

    def killed(self) -> None:
        """The process is gone; what it has sent may still arrive."""
        self._say("is killed")
        if self._initializing:
            self._history.loose.add(self._plan.transactional_id)

    async def run(self) -> None:
        """Until its work is done, or it can't go on."""
        try:
            await self._init(_NOBODY)
            for nth, planned in enumerate(self._life.transactions):
                await trio.sleep(planned.gap)
                name = f"{self._plan.number}.{self._nth}.{nth}"
                claimed = self._history.open(name, self._plan.number, self._plan.transactional_id)
                await self._transaction(planned, claimed)
        except Fatal as error:
            self._say(f"ends: {error}")
        else:
            self._say("is done")

    async def _transaction(self, planned: TransactionPlan, claimed: Claimed) -> None:
        joined: set[int] = set()
        renew = False
        try:
            for one in planned.rounds:
                await trio.sleep(one.gap)
                await self._round(one, claimed, joined)
            await trio.sleep(planned.pause)
            if planned.commits:
                await self._end(claimed, committed=True)
                return
        except Abortable as error:
            self._say(f"aborts {claimed.name}: {error}")
            renew = error.renew
        try:
            await self._end(claimed, committed=False)
        except Abortable as error:
            self._history.breaks(invariants.CAUSE, f"an abort of {claimed.name} is answered with {error}")
            raise Fatal(str(error)) from error
        if renew and not self._plan.second_version:
            await self._init(self._me)

    # -- the coordinator

    async def _init(self, had: Producer) -> None:
        self._say(f"asks for a producer id ({had.epoch})")
        plan = self._plan
        self._initializing = True
        answer = await self._coordinate(
            InitProducerIdRequest(plan.transactional_id, plan.timeout_ms, had.producer_id, had.epoch)
        )
        self._initializing = False
        self._judge_error(answer.error_code)
        self._me = Producer(answer.producer_id, answer.producer_epoch)
        self._history.given.setdefault(plan.transactional_id, []).append(self._me)
        self._sequences.clear()
        self._say(f"is {self._me.producer_id}/{self._me.epoch}")

    async def _coordinate(self, message: Any) -> Any:
        """The coordinator's answer that is no invitation to ask again."""
        deadline = trio.current_time() + _MAX_BLOCK
        while trio.current_time() < deadline:
            try:
                if self._coordinator is None:
                    self._coordinator = await self._find()
                answer = await self._calls.ask(self._coordinator, message, self._versions[message.API_KEY])
            except LOST as error:
                self._say(f"has no answer to {type(message).__name__}: {error!r}")
                if isinstance(message, InitProducerIdRequest):
                    self._history.loose.add(self._plan.transactional_id)
                self._coordinator = None
            else:
                code = _code(answer)
                if not ErrorCode(code).retriable and code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    return answer
                self._say(f"is told {ErrorCode(code).name} by the coordinator")
                if code in _MOVED:
                    self._coordinator = None
            await trio.sleep(self._rng.choice(_BACKOFFS))
        raise Fatal("max.block.ms is over")

    async def _find(self) -> Address:
        request = FindCoordinatorRequest(key=self._plan.transactional_id, key_type=_TRANSACTION)
        answer: Any = await self._calls.bootstrap(request, self._versions[ApiKey.FIND_COORDINATOR])
        if answer.error_code:
            raise OSError(f"no coordinator: {ErrorCode(answer.error_code).name}")
        return answer.host, answer.port

    def _judge_error(self, code: int) -> None:
        """Raises what an error means to the producer, and notes one that it should not get."""
        if not code:
            return
        name = ErrorCode(code).name
        if code in _ABORTABLE:
            raise Abortable(name)
        history, mine = self._history, self._plan.transactional_id
        alone = mine not in history.loose and mine not in history.shared
        if code not in _FENCED or alone:
            history.breaks(invariants.CAUSE, f"producer {self._plan.number}.{self._nth} is told {name}")
        raise Fatal(name)

    async def _end(self, claimed: Claimed, *, committed: bool) -> None:
        if not claimed.values and not self._plan.second_version and not claimed.joined:
            return  # nothing was begun
        fenced = self._history.is_fenced(self._plan.transactional_id, self._me)
        claimed.asked |= committed
        self._say(f"{'commits' if committed else 'aborts'} {claimed.name} as {self._me.epoch}")
        answer = await self._coordinate(EndTxnRequest(self._plan.transactional_id, *self._me, committed))
        if answer.error_code in _ABORTABLE and committed:
            claimed.told = False
        self._judge_error(answer.error_code)
        claimed.told = committed
        self._say(f"is told that {claimed.name} is {'committed' if committed else 'aborted'}")
        if fenced and claimed.values:
            self._history.breaks(invariants.FENCED, f"{claimed.name} ended well, though a newer producer had the id")
        if self._plan.second_version:
            self._me = Producer(answer.producer_id, answer.producer_epoch)
            self._sequences.clear()

    # -- data

    async def _round(self, one: Round, claimed: Claimed, joined: set[int]) -> None:
        fresh = [place for place, _ in one.batches if place not in joined]
        if fresh and not self._plan.second_version:
            await self._join(fresh, claimed)
            joined.update(fresh)
        batches = [_Batch(place, self._values(claimed, place, count), self) for place, count in one.batches]
        failures: list[Abortable | Fatal] = []

        async def deliver(batch: "_Batch") -> None:
            try:
                await self._deliver(batch, claimed)
            except (Abortable, Fatal) as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for batch in batches:
                nursery.start_soon(deliver, batch)
        for failure in sorted(failures, key=lambda error: isinstance(error, Abortable)):
            raise failure

    async def _join(self, places: Sequence[int], claimed: Claimed) -> None:
        claimed.joined = True
        answer = await self._coordinate(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._plan.transactional_id,
                v3_and_below_producer_id=self._me.producer_id,
                v3_and_below_producer_epoch=self._me.epoch,
                v3_and_below_topics=[AddPartitionsToTxnRequestAddPartitionsToTxnTopic(TOPIC, list(places))],
            )
        )
        self._judge_error(_code(answer))

    def _values(self, claimed: Claimed, place: int, count: int) -> list[bytes]:
        had = claimed.values.setdefault(place, [])
        values = [f"{claimed.name}:{place}.{len(had) + at}".encode() for at in range(count)]
        had += values
        fenced = self._history.is_fenced(self._plan.transactional_id, self._me)
        for value in values:
            self._history.by_value[value] = claimed
            if fenced:
                claimed.zombies.add(value)
        return values

    async def _deliver(self, batch: "_Batch", claimed: Claimed) -> None:
        """Sends a batch, and again, until something definite is said of it."""
        deadline = trio.current_time() + _DELIVERY
        unknown = False
        while trio.current_time() < deadline:
            try:
                leader = await self._calls.leader(batch.place)
                self._say(f"sends {batch.place}: {batch.text} at {batch.sequence} as {self._me.epoch}")
                answer: Any = await self._calls.ask(leader, batch.request, self._versions[ApiKey.PRODUCE])
            except LOST as error:
                self._say(f"has no answer to Produce {batch.text}: {error!r}")
                unknown = True
                self._calls.forget(batch.place)
            else:
                (row,) = answer.responses[0].partition_responses
                if not row.error_code:
                    claimed.acknowledged.update(batch.values)
                    self._history.acknowledged += len(batch.values)
                    return
                self._say(f"is told {ErrorCode(row.error_code).name} of {batch.text}")
                if not ErrorCode(row.error_code).retriable:
                    self._failed(batch, row.error_code, unknown)
                self._calls.forget(batch.place)
            await trio.sleep(self._rng.choice(_BACKOFFS))
        raise Abortable("delivery.timeout.ms is over", renew=True)

    def _failed(self, batch: "_Batch", code: int, unknown: bool) -> None:
        """As the Java producer: what was never sent twice gives its sequence back."""
        if (
            unknown
            or self._plan.renews
            or code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
        ):
            raise Abortable(ErrorCode(code).name, renew=True)
        if code == ErrorCode.INVALID_TXN_STATE and not self._plan.second_version:
            raise Abortable(ErrorCode(code).name, renew=True)  # what brokers say before Produce v11
        self._sequences[batch.place] -= len(batch.values)
        self._judge_error(code)

    def next_sequence(self, place: int, count: int) -> int:
        """Takes the next sequences of a partition."""
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + count
        return sequence

    @property
    def me(self) -> Producer:
        """As the client knows itself."""
        return self._me

    @property
    def transactional_id(self) -> str:
        """Of the producer."""
        return self._plan.transactional_id


class _Batch:
    """Some records for one partition, under one sequence for ever."""

    def __init__(self, place: int, values: list[bytes], process: _Process) -> None:
        self.place = place
        self.values = values
        self.sequence = process.next_sequence(place, len(values))
        self.text = b" ".join(values).decode()
        data = build_batch(
            [Record(at, 0, None, value) for at, value in enumerate(values)],
            producer_id=process.me.producer_id,
            producer_epoch=process.me.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        part = ProduceRequestPartitionProduceData(index=place, records=bytes(data))
        self.request = ProduceRequest(
            transactional_id=process.transactional_id,
            acks=-1,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            topic_data=[ProduceRequestTopicProduceData(name=TOPIC, partition_data=[part])],
        )


def _code(answer: Any) -> int:
    """The error of a coordinator's answer: of AddPartitionsToTxn the first."""
    topics = getattr(answer, "results_by_topic_v3_and_below", None)
    if topics is None:
        return int(answer.error_code)
    codes = [row.partition_error_code for topic in topics for row in topic.results_by_partition]
    return next((int(code) for code in codes if code), 0)
