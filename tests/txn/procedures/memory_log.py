"""The transaction log of one id in memory, as one instance reads it, and what the parts of its owner are given."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.log_appender import AppendUnknown
from kproxy.net.txn.trio_time import TrioTime
from kproxy.proxy.traces import NoTraces
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.procedures.partition_ends import PartitionEnds
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.writes import PartitionWrites

T = TypeVar("T")
P0, P1 = ("t", 0), ("t", 1)
TRIO_TIME = TrioTime(lambda: 0.0)


async def at_once(work: Callable[[], Awaitable[T]]) -> T:
    """Waits where nobody aborts anything."""
    return await work()


@dataclass
class MemoryLog:
    """Records that instances share, and how far this one has read them."""

    records: list[Message] = field(default_factory=list)
    view: IdView | None = None
    #: Kinds of records that are lost, and of those whose response is lost.
    lost: Collection[type] = ()
    unheard: Collection[type] = ()
    is_silent: bool = False
    _position: int = 0

    @property
    def views(self) -> Any:
        return SimpleNamespace(of=lambda _: self.view, copies_bytes=lambda: 0)

    def is_foreign(self, _: str) -> bool:
        return False

    async def read_to_end(self, transactional_id: str) -> IdView | None:
        await trio.lowlevel.checkpoint()
        if self.is_silent:
            raise OSError("no answer")
        for offset, body in list(enumerate(self.records))[self._position :]:
            view = self.view or IdView(transactional_id)
            if view.apply(body, LogPosition(offset, 1000 * offset)):
                self.view = view
        self._position = len(self.records)
        return self.view

    async def append(self, entry: Entry, *place: int) -> None:
        await self.append_unread(entry, *place)
        await self.read_to_end(entry.transactional_id)

    async def append_unread(self, entry: Entry, *_: int) -> int:
        if type(entry.body) not in self.lost:
            self.records.append(entry.body)
        if type(entry.body) in (*self.lost, *self.unheard):
            raise AppendUnknown(0, ErrorCode.REQUEST_TIMED_OUT)
        return len(self.records) - 1


@dataclass
class Groups:
    """Groups of which some have moved on, and the transactions whose offsets hold."""

    errors: dict[str, ErrorCode] = field(default_factory=dict)
    held: list[Producer] = field(default_factory=list)
    is_full: bool = False
    #: What their coordinators' responses wait for.
    waits_for: Callable[[], Awaitable[object]] | None = None

    async def check(self, offsets: TransactionOffsets) -> int:
        if self.waits_for is not None:
            await self.waits_for()
        return self.errors.get(offsets.group_id, ErrorCode.NONE)

    def check_room(self) -> None:
        if self.is_full:
            raise TxnError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "too many")

    def committed(self, _: str, producer: Producer) -> None:
        self.held.append(producer)


class Writer:
    """Has written a record to each of these partitions, before an offset each."""

    def __init__(self, **written: int) -> None:
        self.failed: int | None = None
        self.recreated: str | None = None
        self.flushed = False
        self._written = {("t", int(name[1:])): PartitionWrites(end, (), end - 1) for name, end in written.items()}

    async def flush(self) -> None:
        self.flushed = True

    def written(self) -> Mapping[TopicPartition, PartitionWrites]:
        return self._written


class Desk:
    """One instance, as far as one transactional id needs it."""

    def __init__(self, name: str = "a", records: list[Message] | None = None) -> None:
        self.log = MemoryLog(records if records is not None else [])
        self.groups, self.asked = Groups(), Counter[str]()
        self.former: Any = SimpleNamespace()
        self.tools = OwnerTools(
            log=self.log,  # type: ignore[arg-type]
            stats=TransactionStats(),
            groups=self.groups,
            ends=self._ends,
            topics=self,
            former=self.former,
            connections=lambda: None,  # type: ignore[arg-type,return-value]
            nonce=lambda: f"{name}{self.asked.total() + len(self.log.records):>15}".encode(),
            instance_id=name,
            ask_producer_id=self._new_producer_id,
            time=TRIO_TIME,
            traces=NoTraces(),
            report=lambda *_, **__: None,
        )
        self.keeper = ClaimKeeper("id", self.tools)
        self.ends = PartitionEnds(self._ends, self, TRIO_TIME)

    async def _new_producer_id(self) -> int:
        self.asked["producer id"] += 1
        return 100 + self.asked["producer id"]

    async def _ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.asked["ends"] += 1
        return dict.fromkeys(places, 5)

    async def errors(self, _: Collection[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        return {}

    def topic_id(self, _: str) -> bytes | None:
        return None

    def is_known_writable(self, _: TopicPartition) -> bool:
        return True

    async def initialized(self) -> "Desk":
        """After InitProducerId of a new client."""
        await self.keeper.claim_to_initialize(NOBODY)
        return self

    async def transaction(self, **written: int) -> Transaction:
        """A transaction under the next epoch, which the log names with the partitions that it has written."""
        found = Transaction(await self.keeper.take_epoch(), Writer(**written), trio.current_time())  # type: ignore[arg-type]
        places = dict.fromkeys(found.writer.written(), 1)
        assert self.keeper.claim is not None
        await self.keeper.append(found.announcement(self.keeper.claim.nonce, places, {}))
        found.announced.update(places)
        return found

    async def read(self) -> IdView:
        """What the log says now."""
        view = await self.keeper.read_to_end()
        assert view is not None
        return view
