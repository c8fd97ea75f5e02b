"""One kproxy where the broker decides: its owner of the id, and what that asks of the coordinator and its log."""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, Final

from kproxy.codec._generated.add_partitions_to_txn import AddPartitionsToTxnResponse
from kproxy.codec._generated.describe_transactions import DescribeTransactionsResponseTransactionState as Described
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec.batch import Record
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.broker import broker_requests
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.net.txn.log_partition import LogPartition
from kproxy.net.txn.transaction_log import ViewSink
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_owners import BrokerOwners, BrokerTools
from kproxy.txn.procedures.broker_protocol import Protocol
from kproxy.txn.stored_epochs import StoredEpoch, StoredEpochs, encode_key, encode_value
from kproxy.txn.txn_error import TxnError
from kproxy.txn.views import Views
from verification.explorer.broker_world import BrokerWorld
from verification.explorer.engine import Event, Move, Step
from verification.explorer.instance import DataConnections, Instance, report
from verification.explorer.world import NAME

_AHEAD_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 30.0
_UNUSED_MS: Final = 604_800_000
_NAMES: Final = {"InitProducerIdRequest": "InitProducerId", "EndTxnRequest": "EndTxn"}


class Asking(Step):
    """Waits for the coordinator's response to a request."""

    def __init__(self, instance: "BrokerInstance", request: Any, left_open: Callable[[], None] | None) -> None:
        """``left_open`` is called where a request had no response, and is sent again."""
        super().__init__("ask", type(request).__name__, repr(request))
        self._instance, self._request, self._left_open = instance, request, left_open
        self._is_repeated = False

    @property
    def _world(self) -> BrokerWorld:
        world = self._instance.world
        assert isinstance(world, BrokerWorld)
        return world

    @property
    def _what(self) -> str:
        kind = type(self._request).__name__
        return f"{self._instance.name}'s {_NAMES.get(kind, kind)}"

    def moves(self) -> Iterator[Move]:
        """Yield its arrival; a commit's perhaps again, as its response was lost."""
        yield Move(f"the broker takes {self._what}", self._arrive)
        is_commit = isinstance(self._request, EndTxnRequest) and self._request.committed
        if self._world.budget["repeat"] and is_commit:
            yield Move(f"the broker takes {self._what}, and kproxy repeats it", self._repeat, is_fault=True)

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

    def given_up(self) -> None:
        """Let it arrive later, or never."""
        world, request, what = self._world, self._request, self._what
        key = ("late", type(request).__name__, repr(request))
        world.send(f"the broker takes {what}, which is late", lambda: _ignore(world.ask(request, is_late=True)), *key)


class Telling(Step):
    """Waits for what the coordinator says of the id."""

    def __init__(self, world: BrokerWorld) -> None:
        """Put it into a world."""
        super().__init__("describe")
        self._world = world

    def moves(self) -> Iterator[Move]:
        """Yield the answer."""
        yield Move("the broker describes the transaction", self._answer)

    def _answer(self) -> None:
        assert self.task is not None
        self.task.resume(self._world.describe())


class Requests(BrokerRequests):
    """The product's requests, without its connections."""

    def __init__(self, instance: "BrokerInstance") -> None:
        """Take the one id."""
        self._instance, self._name = instance, NAME

    async def protocol(self, *, refresh: bool = False) -> Protocol:
        """Return the protocol of the world's level."""
        return Protocol.of(self._instance.broker.level)

    async def describes(self) -> bool:
        """Return true, as brokers of Kafka 3.0 and later do."""
        return True

    async def describe(self) -> Described | None:
        """Ask the coordinator."""
        found: Described | None = await Telling(self._instance.broker)
        return found

    async def add_ahead(self, producer: Producer, places: Collection[TopicPartition]) -> None:
        """Do as the product does."""
        with suppress(TxnError), self._instance.world.time.scope(_AHEAD_SECONDS):
            await self.add_partitions(producer, places)

    async def _ask(
        self, request: Any, kind: type[Any], *, left_open: Callable[[], None] | None = None, **_: Any
    ) -> Any:
        while (answer := await Asking(self._instance, request, left_open)) is ErrorCode.CONCURRENT_TRANSACTIONS:
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


class EpochLog:
    """``procedures.kept_epoch.EpochLog``: entries become durable one after the other."""

    enabled = True

    def __init__(self, instance: "BrokerInstance") -> None:
        """Take it as read."""
        self._instance = instance
        self.opened = Event()
        self.opened.set()
        #: Entries that are not durable yet.
        self.pending: list[tuple[StoredEpoch | None, Event]] = []

    async def epochs(self) -> StoredEpochs:
        """Return the one entry that is durable."""
        name, stored = self._instance.name, self._instance.broker.recorded
        found = StoredEpochs(name)
        if stored is not None:
            found.take(Record(0, 0, encode_key(name, NAME), encode_value(stored)))
        return found

    def has_epochs_before(self, recorded_ms: int) -> bool:
        """Nothing is so old."""
        return False

    def put_epoch(self, transactional_id: str, stored: StoredEpoch | None) -> Event:
        """The entry is under way from now on."""
        done = Event()
        self.pending.append((stored, done))
        return done

    def now_ms(self) -> int:
        """Return ms since 1970."""
        return self._instance.world.time.wall_ms()

    def moves(self) -> Iterator[Move]:
        """The next entry is durable."""
        if self.pending:
            yield Move(f"the log takes {_text(self.pending[0][0])}", self._take)

    def _take(self) -> None:
        stored, done = self.pending.pop(0)
        self._instance.broker.recorded = stored
        done.set()

    def given_up(self) -> None:
        """Let what a process that was killed has sent come to the log later, if the world says so."""
        world = self._instance.broker
        for stored, _ in self.pending:
            if world.budget["late_log"]:

                def take(stored: StoredEpoch | None = stored) -> None:
                    world.recorded = stored
                    world.harm()

                world.send(f"the log takes {_text(stored)}, which is late", take, "log", stored)


def make_owners(instance: "BrokerInstance") -> BrokerOwners:
    """The product's owners, without its connections."""
    return BrokerOwners(
        BrokerTools(
            requests=lambda _: Requests(instance),
            connections=lambda: DataConnections(instance),
            log=instance.entries,
            stats=TransactionStats(),
            time=instance.world.time,
            report=report,
            alone=instance.alone,
            is_own_topic=lambda _: False,
            patience_s=_PATIENCE_SECONDS,
            unused_ms=_UNUSED_MS,
        )
    )


class BrokerInstance(Instance):
    """One process."""

    def __init__(self, world: BrokerWorld, name: str, life: int = 0) -> None:
        """``life``: how often it was started before."""
        self.world, self.broker, self.name, self.life = world, world, name, life
        self.is_killed, self._nonces, self.writers = False, 0, []
        self.views, self.rejects_read = Views(), 0
        self.reading = LogPartition(0, ViewSink(self.views))
        self.entries = EpochLog(self)
        self.owners: Any = make_owners(self)
        self.take_requests()

    def moves(self) -> Iterator[Move]:
        """Its log takes an entry, or it is killed."""
        yield from self.entries.moves()
        if self.world.budget["crash"]:
            yield Move(f"{self.name} is killed, and started again", self.crash, is_fault=True)

    def again(self) -> "BrokerInstance":
        """The process after this one."""
        self.entries.given_up()
        return type(self)(self.broker, self.name, self.life + 1)


def _text(stored: StoredEpoch | None) -> str:
    return "nothing" if stored is None else f"epoch {stored.upstream.epoch}, {stored.last.name.lower()}"


def _ignore(_: object) -> None:
    pass
