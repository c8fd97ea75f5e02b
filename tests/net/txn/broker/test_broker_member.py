"""Members that write in transactions of the broker's: the ids that they take there, and what each asks for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult,
)
from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.txn.broker.broker_side import BrokerSide
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.testing.fake_broker import Answer, Call, Close, CloseAfter
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.broker_member import BrokerMember
from kproxy.txn.procedures.broker_members import BrokerMembers
from kproxy.txn.procedures.member import Member
from kproxy.txn.procedures.member_ids import PREFIX, MemberIds
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view_values import BrokerTransaction
from tests.net.txn.broker.fenced_client import states, told
from tests.net.txn.broker.native_stage import TIMEOUT_MS, TOPIC, Stage, stage
from tests.net.txn.log_harness import PATIENCE, configured
from tests.net.txn.member_scene import batch
from tests.txn import bodies
from tests.txn.bodies import producer
from tests.txn.procedures.memory_log import TRIO_TIME

pytestmark = pytest.mark.idle_clock

LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
M = producer(200, 0)
FIRST_ID = f"{PREFIX}a-0"
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def ids() -> MemberIds:
    numbers = count()

    async def new_id() -> int:
        return next(numbers)

    return MemberIds("a", new_id, TRIO_TIME)


@dataclass
class Scene:
    """One instance; its members do not write to kproxy's log here."""

    stage: Stage
    slots: MemberIds
    members: BrokerMembers
    tools: Any

    async def make(self, timeout_ms: int = TIMEOUT_MS) -> BrokerMember:
        with trio.fail_after(PATIENCE):
            return await self.members.make("id", "m", M, self.tools, timeout_ms)

    async def resting(self) -> str:
        """An id whose last member has ended, and may have requests in flight."""
        name = await self.slots.take()
        self.slots.joined(M, BrokerTransaction(name, producer(7, 0), 1, TIMEOUT_MS))
        self.slots.view_changed(Entry("id", bodies.ended(M)))
        return name

    async def fenced_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.members.run()

    def inits(self, fault: Any = None) -> list[tuple[str, float]]:
        """The ids for which the broker is asked for an epoch from now on, and when."""
        asked: list[tuple[str, float]] = []

        def note(call: Call) -> Any:
            if not (call.request.transactional_id or "").startswith(PREFIX):
                return None
            asked.append((call.request.transactional_id, trio.current_time()))
            return fault(len(asked)) if fault is not None else None

        self.stage.server.cluster.control(ApiKey.INIT_PRODUCER_ID, note)
        return asked


@asynccontextmanager
async def scene(level: int = 2, **options: Any) -> AsyncIterator[Scene]:
    async with stage(level) as cast:
        kproxy, config = await cast.kproxy(**options), configured(cast.server.bootstrap, **options)
        turn, slots = EndOfTurn(cast.nursery), ids()

        def connections() -> WriterConnections:
            return WriterConnections(kproxy.cluster, config, kproxy.stats.produce, cast.nursery, turn)

        tools = SimpleNamespace(
            connections=connections,
            nonce=lambda: bytes(16),
            stats=kproxy.stats.transactions,
            instance_id="a",
            ends=None,
            topics=SimpleNamespace(topic_id=None),
            time=TRIO_TIME,
        )
        yield Scene(cast, slots, kproxy.side.members(slots), tools)


def refused(_: int) -> Answer:
    return Answer(InitProducerIdResponse(error_code=DENIED))


class TestIdsOfTheBroker:
    async def test_one_is_used_again_after_a_time_out_that_the_broker_refuses(self) -> None:
        async with scene() as at:
            await told(ErrorCode.INVALID_TRANSACTION_TIMEOUT, at.make(1 << 30))
            assert (await at.make()).broker_transaction.transactional_id == FIRST_ID

    async def test_one_is_used_again_after_a_definite_error(self) -> None:
        async with scene() as at:
            asked = at.inits(lambda number: refused(number) if number == 1 else None)
            await told(DENIED, at.make())
            assert (await at.make()).broker_transaction.transactional_id == FIRST_ID
            assert len(asked) == 2

    async def test_one_for_which_the_broker_does_not_answer_is_never_used_again(self) -> None:
        async with scene(delivery_timeout_ms=300) as at:
            asked = at.inits(lambda number: Close())
            await told(ErrorCode.COORDINATOR_NOT_AVAILABLE, at.make())
            assert len(asked) > 1
            for each in zip(*asked, strict=True):
                assert len(set(each)) == len(asked), "each id is asked for once, and not without a pause"

    async def test_one_whose_member_has_begun_needs_no_other_epoch(self) -> None:
        async with scene(1) as at:
            name = await at.resting()
            assert (await at.make()).broker_transaction.transactional_id == name
            at.slots.give_back(name)
            assert at.slots.take_unfenced() is None


class TestIdsThatRest:
    """Below transaction.version 2: a late request may still open the transaction of the last member again."""

    async def test_one_gets_one_epoch_and_is_used_again(self) -> None:
        async with scene(1) as at:
            name, asked = await at.resting(), at.inits()
            await at.fenced_for(60)
            assert [asked_for for asked_for, _ in asked] == [name]
            assert await at.slots.take() == name

    async def test_one_that_the_broker_refuses_is_given_up(self) -> None:
        async with scene(1) as at:
            name, asked = await at.resting(), at.inits(refused)
            await at.fenced_for(60)
            assert len(asked) == 1
            assert await at.slots.take() != name

    async def test_one_is_asked_for_until_the_broker_answers_and_then_given_up(self) -> None:
        async with scene(1) as at:
            name, asked = await at.resting(), at.inits(lambda number: Close() if number < 4 else None)
            await at.fenced_for(60)
            assert [asked_for for asked_for, _ in asked] == [name] * 4
            assert len({when for _, when in asked}) == 4, "it is asked for without a pause"
            assert await at.slots.take() != name

    async def test_where_none_rests_nothing_wakes_up(self) -> None:
        nobody: Any = SimpleNamespace(network=SimpleNamespace(wall=float))
        members = BrokerSide(nobody, configured("localhost:1"), TransactionStats()).members(ids())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(members.run)
            await trio.testing.wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")
            nursery.cancel_scope.cancel()


class TestJoining:
    @pytest.mark.parametrize("joined", [True, False, None], ids=["joined", "not joined", "failed"])
    async def test_the_id_is_free_unless_the_log_may_name_it(
        self, joined: bool | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def join(*_: object) -> bool:
            if joined is None:
                raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the log")
            return joined

        monkeypatch.setattr(Member, "join", join)
        async with scene() as at:
            member, view = await at.make(), SimpleNamespace()
            with suppress(TxnError):
                assert await member.join(view, M) is joined  # type: ignore[arg-type]
            assert (await at.slots.take() == FIRST_ID) is (joined is not True)


async def write(member: BrokerMember, value: str) -> list[int]:
    with trio.fail_after(PATIENCE):
        return [row.error_code for row in await member.produce([batch(value, (TOPIC, 0))], lambda: None)]


class TestWriting:
    @LEVELS
    async def test_a_partition_is_added_once_and_only_in_the_first_protocol(self, level: int) -> None:
        async with scene(level) as at:
            added: list[Call] = []
            at.stage.server.cluster.control(ApiKey.ADD_PARTITIONS_TO_TXN, lambda call: added.append(call))
            member = await at.make()
            assert [await write(member, value) for value in "12"] == [[0], [0]]
            assert len(added) == (1 if level == 1 else 0)

    async def test_a_partition_that_can_not_be_added_can_only_be_aborted(self) -> None:
        async with scene(1) as at:
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            row = AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult(0, denied)
            topic = AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult(TOPIC, [row])
            answer = Answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic]))
            at.stage.server.cluster.control(ApiKey.ADD_PARTITIONS_TO_TXN, lambda call: answer)
            await told(ErrorCode.TRANSACTION_ABORTABLE, write(await at.make(), "1"))

    async def test_one_that_has_written_nothing_is_given_up_without_the_broker(self) -> None:
        async with scene() as at:
            asked = at.stage.server.cluster.control(ApiKey.END_TXN, lambda call: Close())
            await (await at.make()).give_up()
            assert asked.hits == 0

    async def test_one_that_waits_for_the_broker_can_be_given_up(self) -> None:
        """The broker may have added its partition, and receives the abort at once: no reader waits for it."""
        async with scene(1) as at:
            member, added = await at.make(), trio.Event()

            def lose(_: Call) -> CloseAfter:
                added.set()
                return CloseAfter()

            at.stage.server.cluster.control(ApiKey.ADD_PARTITIONS_TO_TXN, lose)
            rows: list[int] = []

            async def wait() -> None:
                rows.extend(await write(member, "1"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await added.wait()
                await trio.sleep(0.01)
                with trio.fail_after(PATIENCE):
                    await member.give_up()
                assert states(at.stage, [FIRST_ID]) == ["COMPLETE_ABORT"]
            assert rows not in ([], [0])
