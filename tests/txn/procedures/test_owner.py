"""What both owners of a transactional id share, with a writer that does what a test says."""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kproxy.codec.messages import ErrorCode
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.id_lock import Interrupted
from kproxy.txn.procedures.owner import Owner
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.requests import ClientBatch, TxnRequest, Written
from kproxy.txn.states import TransactionEvent, TransactionState
from kproxy.txn.txn_error import TxnError
from kproxy.txn.writes import TxnSend
from tests.txn.procedures.memory_log import TRIO_TIME

ME = Producer(4000, 3)
P0, P1 = ("t", 0), ("t", 1)
REQUEST = TxnRequest("id", ME, 1, "c")


class Writer:
    """Takes all batches; each is settled when a test says so."""

    def __init__(self) -> None:
        self.failed: int | None = None
        self.recreated: str | None = None
        self.most_bytes = 10
        self.sends: list[TxnSend] = []
        self.abandoned = 0
        self._waiting: list[tuple[Sequence[TxnSend], Callable[[], None]]] = []

    def accept(self, batches: Iterable[tuple[str, int, memoryview, int]]) -> list[TxnSend]:
        sends = [TxnSend((topic, index), batch, records, -1) for topic, index, batch, records in batches]
        self.sends += sends
        return sends

    def has_room(self, size: int) -> bool:
        return size <= self.most_bytes

    def when_settled(self, sends: Sequence[TxnSend], done: Callable[[], None]) -> None:
        assert None not in sends
        self._waiting.append((sends, done))
        self.settle()

    async def settled(self, sends: Sequence[TxnSend]) -> None:
        done = trio.Event()
        self.when_settled(sends, done.set)
        await done.wait()

    def settle(self, *sends: TxnSend) -> None:
        for at, send in enumerate(sends):
            send.settled, send.base_offset = True, 10 + at
        for row in list(self._waiting):
            if all(send.settled for send in row[0]):
                self._waiting.remove(row)
                row[1]()

    def abandon(self) -> None:
        self.abandoned += 1


class OneOwner(Owner):
    """Admits the client that has the id; its transactions are begun by a test."""

    def __init__(self) -> None:
        self.closed = 0
        connections: Any = SimpleNamespace(close=self._close)
        super().__init__(TransactionStats(), connections, TRIO_TIME)
        self.id.client = ME
        self.writer = Writer()

    def _close(self) -> None:
        self.closed += 1

    async def join(self, *_: Any) -> None:
        raise NotImplementedError

    async def commit_offsets(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    async def produce(self, *_: Any, **__: Any) -> Sequence[Written]:
        raise NotImplementedError

    async def end(self, *_: Any, **__: Any) -> Producer:
        raise NotImplementedError

    async def prepare(self, *_: Any) -> None:
        raise NotImplementedError

    async def _begin(self) -> Transaction:
        if self.transaction is None:
            writer: Any = self.writer
            self.transaction = Transaction(Producer(7, 0), writer, trio.current_time())
            self.id.begin()
            self._stats.open += 1
        return self.transaction

    def _admit(self, request: TxnRequest, coordinator: str | None) -> None:
        self.id.admit(request, coordinator)

    async def begun(self, *places: tuple[str, int]) -> Transaction:
        """One that has these partitions."""
        transaction = await self._begin()
        transaction.joined.update(places)
        transaction.announced.update(places)
        self._admit(REQUEST, None)
        return transaction


def batch(place: tuple[str, int] = P0, sequence: int = -1) -> ClientBatch:
    return ClientBatch(*place, memoryview(b"12345"), 1, sequence)


async def test_who_takes_part_is_known_while_a_transaction_is_open() -> None:
    await trio.sleep(0.01)
    now = trio.current_time()
    owner = OneOwner()
    assert now <= owner.used_at <= trio.current_time()
    assert (owner.is_open, set(owner.parties())) == (False, set())
    await owner.begun()
    assert (owner.is_open, set(owner.parties())) == (True, {1})
    owner.transaction = None  # its outcome is unknown
    assert (owner.is_open, set(owner.parties())) == (False, set())
    owner.close()
    assert owner.closed == 1


async def test_a_group_is_added_in_its_turn() -> None:
    owner = OneOwner()
    async with trio.open_nursery() as nursery, owner._lock:
        nursery.start_soon(owner.add_offsets, REQUEST, "g")
        await wait_all_tasks_blocked()
        assert owner.transaction is None
    with pytest.raises(TxnError, match="group h was not added"):
        owner._check_group_added("h", implicit=False)
    owner._check_group_added("h", implicit=True)
    owner._check_group_added("g", implicit=False)
    owner.id.doom("a test")
    with pytest.raises(TxnError, match="a test"):
        await owner.add_offsets(REQUEST, "h")
    with pytest.raises(TxnError, match="INVALID_PRODUCER_EPOCH"):
        await owner.add_offsets(REQUEST._replace(client=Producer(4000, 4)), "h")
    other = OneOwner()
    with pytest.raises(TxnError, match="group g was not added"):
        other._check_group_added("g", implicit=False)


async def test_a_partition_that_was_not_added_is_refused() -> None:
    owner = OneOwner()
    for _ in range(2):
        with pytest.raises(TxnError, match="INVALID_TXN_STATE: the partition was not added"):
            owner._check_joined([P0, P1], implicit=False)
        await owner.begun(P0)
    owner._check_joined([P0, P1], implicit=True)
    owner._check_joined([P0], implicit=False)


class TestAtOnce:
    async def test_batches_are_taken_that_need_not_wait(self) -> None:
        owner = OneOwner()
        assert not owner.takes_at_once([])
        transaction = await owner.begun(P0)
        assert owner.takes_at_once([batch(P0)])
        assert not owner.takes_at_once([batch(P0), batch(P1)]), "a partition is not announced"
        transaction.announced.add(P1)
        assert owner.takes_at_once([batch(P0), batch(P1)])
        assert not owner.takes_at_once([batch(P0), batch(P1), batch(P0)]), "there is no room"
        async with owner._lock:
            assert not owner.takes_at_once([batch(P0)]), "another request has its turn"

    async def test_their_results_are_passed_on_once_all_are_known(self) -> None:
        owner, told = OneOwner(), list[Sequence[Written]]()
        await owner.begun(P0, P1)
        owner.produce_at_once(REQUEST, [batch(P0, 0), batch(P1, 0)], told.append, implicit=False)
        first, second = owner.writer.sends
        owner.writer.settle(first)
        assert told == []
        owner.writer.settle(second)
        assert told == [[Written(0, 10, -1)] * 2]
        owner.produce_at_once(REQUEST, [batch(P0, 0), batch(P1, 5)], told.append, implicit=False)
        assert told[1:] == [[Written(0, 10, -1), Written(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1)]]

    async def test_what_is_not_admitted_is_not_accepted(self) -> None:
        owner, told = OneOwner(), list[Sequence[Written]]()
        await owner.begun(P0)
        with pytest.raises(TxnError, match="INVALID_TXN_STATE"):
            owner.produce_at_once(REQUEST, [batch(P1)], told.append, implicit=False)
        late = REQUEST._replace(client=Producer(4000, 2))
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            owner.produce_at_once(late, [batch(P0)], told.append, implicit=False)
        owner.id.doom("a test")
        with pytest.raises(TxnError, match="a test"):
            owner.produce_at_once(REQUEST, [batch(P0)], told.append, implicit=False)
        assert (owner.writer.sends, told) == ([], [])
        owner.id.doomed = None
        owner.produce_at_once(REQUEST, [batch(P1)], told.append, implicit=True)
        assert [send.place for send in owner.writer.sends] == [P1]


class TestOutcomes:
    async def test_results_are_waited_for(self) -> None:
        owner, told = OneOwner(), list[Sequence[Written]]()
        transaction = await owner.begun(P0)
        (send,) = owner.writer.accept([(*P0, memoryview(b""), 1)])

        async def work() -> None:
            told.append(await owner._results(transaction, [send, None]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await wait_all_tasks_blocked()
            assert told == []
            owner.writer.settle(send)
        assert told == [[Written(0, 10, -1), Written(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, -1)]]
        assert owner.id.doomed is None

    async def test_a_batch_that_was_not_written_dooms_its_own_transaction(self) -> None:
        owner = OneOwner()
        transaction = await owner.begun(P0)
        owner.writer.failed = 3
        writer: Any = owner.writer
        owner._written(Transaction(Producer(7, 1), writer, trio.current_time()), [])
        assert owner.id.doomed is None
        owner._written(transaction, [])
        assert owner.id.doomed is not None

    @pytest.mark.parametrize(
        ("is_open", "committing", "abandoned"), [(True, False, 1), (True, True, 0), (False, False, 0)]
    )
    async def test_a_wait_that_is_cut_short_leaves_nothing_to_be_written(
        self, is_open: bool, committing: bool, abandoned: int
    ) -> None:
        owner = OneOwner()
        await owner.begun()
        if committing:
            owner.id.ask_to_end(committed=True)
        if not is_open:
            owner.transaction = None

        async def wait() -> None:
            async with owner._lock:
                with pytest.raises(Interrupted, match="a test"):
                    await owner._wait(trio.sleep_forever)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            async with owner._turns.urgent("a test"):
                pass
        assert owner.writer.abandoned == abandoned
        assert await owner._wait(_seven) == 7

    @pytest.mark.parametrize("is_open", [True, False])
    async def test_what_is_dropped_is_aborted_once(self, is_open: bool) -> None:
        owner = OneOwner()
        await owner.begun()
        if not is_open:
            owner.id.apply(TransactionEvent.ABORTED)
        owner.id.doom("a test")
        owner._drop("fenced")
        assert (owner.transaction, owner.writer.abandoned, owner.id.state) == (None, 1, TransactionState.COMPLETE_ABORT)
        assert (owner._stats.open, owner._stats.aborts.get("fenced", 0)) == ((0, 1) if is_open else (1, 0))
        assert (owner.id.doomed is None) is is_open
        owner._drop("fenced")
        assert owner.writer.abandoned == 1

    async def test_what_is_committed_is_counted(self) -> None:
        owner = OneOwner()
        await owner.begun()
        owner.id.ask_to_end(committed=True)
        owner._committed()
        assert (owner.transaction, owner.id.state) == (None, TransactionState.COMPLETE_COMMIT)
        assert (owner._stats.open, owner._stats.commits) == (0, 1)


async def _seven() -> int:
    return 7
