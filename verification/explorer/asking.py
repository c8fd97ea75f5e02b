"""Requests of one kproxy to the broker's coordinator: each arrives, or late, or again."""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, Final

from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnResponse
from kproxy.codec._generated.describe_transactions import DescribeTransactionsResponseTransactionState as Described
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.broker import broker_requests
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_protocol import Protocol
from kproxy.txn.txn_error import TxnError
from verification.explorer.coordinating import CoordinatingWorld
from verification.explorer.engine import Move, Step
from verification.explorer.instance import Instance

_AHEAD_SECONDS: Final = 2.0
_NAMES: Final = {
    "InitProducerIdRequest": "InitProducerId",
    "EndTxnRequest": "EndTxn",
    "AddPartitionsToTxnRequest": "AddPartitionsToTxn",
}


class Asking(Step):
    """Waits for the coordinator's response to a request."""

    def __init__(
        self, instance: Instance, request: Any, left_open: Callable[[], None] | None, *, repeats: bool
    ) -> None:
        """``left_open`` is called where a request had no response, and is sent again.

        ``repeats``: whether it may be sent again.
        """
        super().__init__("ask", type(request).__name__, repr(request))
        self._instance, self._request, self._left_open = instance, request, left_open
        self._repeats = repeats
        self._is_repeated = False

    @property
    def _world(self) -> CoordinatingWorld:
        world = self._instance.world
        assert isinstance(world, CoordinatingWorld)
        return world

    @property
    def _what(self) -> str:
        kind = type(self._request).__name__
        return f"{self._instance.name}'s {_NAMES[kind]}"

    def moves(self) -> Iterator[Move]:
        """Yield its arrival; a commit's perhaps again, as its response was lost; or that there is no response in time.

        A request without a response may still arrive. It is sent again, or its sender gives it up.
        """
        yield Move(f"the broker takes {self._what}", self._arrive)
        is_commit = isinstance(self._request, EndTxnRequest) and self._request.committed
        if self._world.budget["repeat"] and is_commit:
            yield Move(f"the broker takes {self._what}, and kproxy repeats it", self._repeat, is_fault=True)
        if self._world.budget["unanswered"]:
            if self._repeats:
                yield Move(f"{self._what} will be late, and kproxy repeats it", self._send_again, is_fault=True)
            yield Move(f"{self._what} will be late, and kproxy hears nothing", self._give_up, is_fault=True)
            if isinstance(self._request, EndTxnRequest):
                yield Move(f"{self._what} is lost, and kproxy hears nothing", self._lose, is_fault=True)

    def _arrive(self) -> None:
        assert self.task is not None
        self.task.resume(self._world.ask(self._request, is_late=False))

    def _repeat(self) -> None:
        self._world.budget.take("repeat")
        self._world.ask(self._request, is_late=False)
        assert self._left_open is not None
        self._left_open()
        self._is_repeated = True
        self.facts = (*self.facts, "repeated")

    def _send_again(self) -> None:
        self._take_unanswered()
        self.given_up()
        if self._left_open is not None:
            self._left_open()

    def _give_up(self) -> None:
        self.given_up()
        self._lose()

    def _lose(self) -> None:
        self._take_unanswered()
        assert self.task is not None
        self.task.resume(error=TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no response"))

    def _take_unanswered(self) -> None:
        self._world.budget.take("unanswered")
        self._world.harm()

    def given_up(self) -> None:
        """Let it arrive later, or never."""
        world, request, what = self._world, self._request, self._what
        key = ("late", type(request).__name__, repr(request))
        world.send(f"the broker takes {what}, which is late", lambda: _ignore(world.ask(request, is_late=True)), *key)


class Telling(Step):
    """Waits for what the coordinator says of an id."""

    def __init__(self, world: CoordinatingWorld, transactional_id: str) -> None:
        """Put it into a world."""
        super().__init__("describe", transactional_id)
        self._world, self._name = world, transactional_id

    def moves(self) -> Iterator[Move]:
        """Yield the answer."""
        yield Move("the broker describes the transaction", self._answer)

    def _answer(self) -> None:
        assert self.task is not None
        self.task.resume(self._world.describe(self._name))


class Requests(BrokerRequests):
    """The product's requests, without its connections."""

    def __init__(self, instance: Instance, transactional_id: str) -> None:
        """Take an id."""
        assert isinstance(instance.world, CoordinatingWorld)
        self._instance, self._name, self._world = instance, transactional_id, instance.world

    async def protocol(self, *, refresh: bool = False) -> Protocol:
        """Return the protocol of the world's level."""
        return Protocol.of(self._world.level)

    async def describes(self) -> bool:
        """Return true, as brokers of Kafka 3.0 and later do."""
        return True

    async def describe(self) -> Described | None:
        """Ask the coordinator."""
        found: Described | None = await Telling(self._world, self._name)
        return found

    async def add_ahead(self, producer: Producer, places: Collection[TopicPartition]) -> None:
        """Do as the product does."""
        with suppress(TxnError), self._world.time.scope(_AHEAD_SECONDS):
            await self.add_partitions(producer, places)

    async def _ask(
        self,
        request: Any,
        kind: type[Any],
        *,
        left_open: Callable[[], None] | None = None,
        repeats: bool = True,
        **_: Any,
    ) -> Any:
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        while (answer := await Asking(self._instance, request, left_open, repeats=repeats)) is busy:
            pass
        if isinstance(answer, ErrorCode):
            broker_requests._check(answer, self._name)
            return AddPartitionsToTxnResponse()
        return answer

    @property
    def is_connected(self) -> bool:
        """Return true: no connection can be missing."""
        return False

    def disconnect(self) -> None:
        """Do nothing: no connection is kept."""

    def close(self) -> None:
        """Do nothing: no connection is kept."""


def _ignore(_: object) -> None:
    pass
