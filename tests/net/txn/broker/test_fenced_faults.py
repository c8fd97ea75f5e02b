"""One transactional id of a client of KIP-98, whose transactions the broker decides: what goes wrong, and when."""

from dataclasses import replace

import pytest
import trio

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnResponse
from kproxy.codec._generated.end_txn import EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.testing.fake_broker import Answer, Call, Close, CloseAfter, Edit
from tests.net.txn.broker.fenced_client import Client, client_of, states, told
from tests.net.txn.broker.native_stage import TOPIC, stage
from tests.net.txn.broker.test_managed_owner import refuse
from tests.net.txn.log_harness import PATIENCE

pytestmark = pytest.mark.idle_clock

LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
ENDS = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
UNKNOWN = ErrorCode.COORDINATOR_NOT_AVAILABLE


def moved(answer: Message) -> None:
    """The coordinator is another one now."""
    assert isinstance(answer, EndTxnResponse)
    answer.error_code = ErrorCode.NOT_COORDINATOR


@LEVELS
class TestTheBroker:
    @ENDS
    async def test_an_end_whose_answer_is_lost_is_one_outcome(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1", 0, 1)
            lost = cast.server.cluster.control(ApiKey.END_TXN, lambda call: CloseAfter(), times=2)
            await client.end(committed=committed)
            assert lost.hits == 2
            await client.transaction("2")
            assert cast.read() == (["1", "2"] if committed else ["2"])
            assert cast.read(1) == (["1"] if committed else [])

    async def test_while_the_last_end_is_being_completed_the_next_transaction_waits(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            cast.server.cluster.hold_markers()
            await client.transaction("1")
            key = ApiKey.ADD_PARTITIONS_TO_TXN if level == 2 else ApiKey.INIT_PRODUCER_ID
            busy = trio.Event()
            cast.server.cluster.control(key, lambda call: busy.set())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.write, "2")
                with trio.fail_after(PATIENCE):
                    await busy.wait()
                assert cast.read() == []
                cast.server.cluster.release_markers()
            await client.end()
            assert cast.read() == ["1", "2"]

    async def test_the_coordinator_moves(self, level: int) -> None:
        async with stage(level, brokers=2) as cast:
            client = await client_of(cast)
            await client.write("1")
            coordinator = cast.server.cluster.coordinator_of("id")
            assert coordinator is not None
            await cast.server.stop_broker(coordinator.node_id)
            await client.end()
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_a_batch_that_is_refused_dooms_the_transaction_until_it_is_aborted(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1", 0, 1)
            refused = Edit(refuse)
            cast.server.cluster.control(ApiKey.PRODUCE, lambda call: refused, times=1)
            assert await client.send("2") is ErrorCode.RECORD_LIST_TOO_LARGE
            await told(ABORTABLE, client.send("3"), client.add(2), client.add_offsets("g"), client.end(), client.end())
            await client.end(committed=False)
            await client.transaction("4")
            assert (cast.read(), cast.read(1)) == (["4"], [])

    @pytest.mark.parametrize("refused", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
    async def test_offsets_of_who_has_left_the_group_are_refused(self, level: int, refused: ErrorCode) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1")
            await client.add_offsets("g")
            rows = [TxnOffsetCommitResponseTopic(TOPIC, partitions=[TxnOffsetCommitResponsePartition(0, refused)])]
            answer = Answer(TxnOffsetCommitResponse(topics=rows))
            cast.server.cluster.control(ApiKey.TXN_OFFSET_COMMIT, lambda call: answer, times=1)
            await told(refused, client.offsets("g", 1, 4, "member"))
            await client.end(committed=False)
            await client.transaction("2")
            assert cast.read() == ["2"]

    @ENDS
    async def test_offsets_that_the_broker_does_not_take_leave_nothing_open(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.transaction("1")
            await client.add_offsets("g")
            denied, cluster = ErrorCode.GROUP_AUTHORIZATION_FAILED, cast.server.cluster
            added = Answer(AddOffsetsToTxnResponse(error_code=denied))
            rows = [TxnOffsetCommitResponseTopic(TOPIC, partitions=[TxnOffsetCommitResponsePartition(0, denied)])]
            answer = Answer(TxnOffsetCommitResponse(topics=rows))
            cluster.control(ApiKey.ADD_OFFSETS_TO_TXN, lambda call: added, times=1)
            cluster.control(ApiKey.TXN_OFFSET_COMMIT, lambda call: answer, times=1)
            await told(denied, client.offsets("g", 1))
            if committed:
                await told(ABORTABLE, client.end())
            await client.end(committed=False)
            assert client.kproxy.stats.transactions.open == 0
            cluster.controls = type(cluster.controls)()
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    @ENDS
    async def test_an_end_that_is_refused_decides_nothing(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1")
            denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            answer = Answer(EndTxnResponse(error_code=denied))
            cast.server.cluster.control(ApiKey.END_TXN, lambda call: answer, times=1)
            await told(denied, client.end(committed=committed))
            assert states(cast) == ["ONGOING"]
            await client.end(committed=committed)
            assert cast.read() == (["1"] if committed else [])


@LEVELS
class TestUnknownOutcomes:
    """Nobody answers within ``delivery.timeout.ms``."""

    @ENDS
    async def test_an_end_may_be_repeated_until_it_is_known(self, level: int, committed: bool) -> None:
        async with stage(level, delivery_timeout_ms=300) as cast:
            client = await client_of(cast)
            await client.write("1")
            lost = cast.server.cluster.control(ApiKey.END_TXN, lambda call: CloseAfter())
            await told(UNKNOWN, client.end(committed=committed))
            busy = ErrorCode.CONCURRENT_TRANSACTIONS
            await told(busy, client.end(committed=not committed), client.add(), client.send("2"))
            await told(busy, client.add_offsets("g"))
            cast.server.cluster.controls.remove(lost)
            await client.end(committed=committed)
            await client.transaction("2")
            assert cast.read() == (["1", "2"] if committed else ["2"])

    @pytest.mark.parametrize("arrives", [True, False], ids=["arrives", "does not"])
    @ENDS
    async def test_a_client_that_continues_after_one_finds_it_decided(
        self, level: int, committed: bool, arrives: bool
    ) -> None:
        async with stage(level, delivery_timeout_ms=300) as cast:
            client = await client_of(cast)
            await client.write("1")
            lost = cast.server.cluster.control(ApiKey.END_TXN, lambda call: CloseAfter() if arrives else Close())
            await told(UNKNOWN, client.end(committed=committed))
            cast.server.cluster.controls.remove(lost)
            await client.init(client.producer)
            await client.transaction("2")
            assert cast.read() == (["1", "2"] if committed else ["2"])

    @ENDS
    async def test_an_end_that_was_decided_before_another_took_the_id(self, level: int, committed: bool) -> None:
        """The coordinator moved while it wrote the end; kproxy repeats it, and meanwhile another has the id."""
        async with stage(level) as cast:
            client, rival, ends = await client_of(cast), Client(await cast.kproxy()), 0
            await client.write("1")

            async def control(_: Call) -> Edit | None:
                nonlocal ends
                ends += 1
                if ends == 2:
                    await rival.init()
                return Edit(moved) if ends == 1 else None

            cast.server.cluster.control(ApiKey.END_TXN, control)
            fenced = ErrorCode.PRODUCER_FENCED
            await told(UNKNOWN if committed else fenced, client.end(committed=committed))
            assert cast.read() == (["1"] if committed else [])
            await told(fenced, client.end(committed=committed), client.add(), client.init(client.producer))
            assert client.kproxy.stats.transactions.open == 0
            await rival.transaction("2")
            assert cast.read() == (["1", "2"] if committed else ["2"])

    async def test_a_new_epoch_that_nobody_gives_in_time_is_asked_for_again(self, level: int) -> None:
        async with stage(level, delivery_timeout_ms=300) as cast:
            client = await client_of(cast)
            await client.transaction("1")
            if level < 2:
                lost = cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: CloseAfter())
                await told(UNKNOWN, client.add())
                cast.server.cluster.controls.remove(lost)
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_a_client_whose_next_identity_was_not_had_repeats_the_end(self, level: int) -> None:
        async with stage(level, delivery_timeout_ms=300) as cast:
            client = await client_of(cast, second=True)
            await client.transaction("0", committed=False)
            await client.write("1")
            before = client.producer
            if level < 2:
                lost = cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: Close())
                await told(UNKNOWN, client.end())
                cast.server.cluster.controls.remove(lost)
            await client.end()
            assert client.producer > before
            await client.transaction("2")
            assert cast.read() == ["1", "2"]


@ENDS
async def test_an_end_after_which_another_takes_the_id_before_the_client_has_its_next_epoch(committed: bool) -> None:
    """At level 1 kproxy asks for that epoch: the end itself gives none."""
    async with stage(1) as cast:
        client, rival, asked = await client_of(cast, second=True), Client(await cast.kproxy()), list[Call]()
        await client.transaction("1")
        await client.write("2")

        async def control(call: Call) -> None:
            asked.append(call)
            if len(asked) == 1:
                await rival.init()

        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, control)
        fenced = ErrorCode.PRODUCER_FENCED
        await told(UNKNOWN if committed else fenced, client.end(committed=committed))
        await told(fenced, client.end(committed=committed))
        assert cast.read() == (["1", "2"] if committed else ["1"])


async def test_a_next_epoch_that_is_refused_for_another_reason_is_answered_so() -> None:
    async with stage(1) as cast:
        client, denied = await client_of(cast, second=True), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        await client.write("1")
        answer = Answer(InitProducerIdResponse(error_code=denied))
        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: answer, times=1)
        await told(denied, client.end())
        await client.end()
        assert cast.read() == ["1"]


@LEVELS
class TestWhoFailsToTakeIt:
    """Somebody asks for the id, and does not get it: the client that owns it loses nothing that it was granted."""

    async def test_a_time_out_that_the_broker_refuses(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1")
            await told(ErrorCode.INVALID_TRANSACTION_TIMEOUT, Client(client.kproxy).init(timeout_ms=1 << 30))
            await client.end()
            assert cast.read() == ["1"]

    async def test_a_broker_that_does_not_report_what_it_serves(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1")
            cast.server.cluster.control(ApiKey.API_VERSIONS, lambda call: Close(), times=50)
            # a kproxy that has heard of the second protocol need not ask again
            await told(UNKNOWN, Client(client.kproxy if level == 1 else await cast.kproxy()).init())
            cast.server.cluster.controls = type(cast.server.cluster.controls)()
            await client.end()
            assert cast.read() == ["1"]

    @pytest.mark.parametrize("arrives", [True, False], ids=["arrives", "does not"])
    async def test_nobody_answers_who_asks_for_it(self, level: int, arrives: bool) -> None:
        async with stage(level, delivery_timeout_ms=300) as cast:
            client = await client_of(cast)
            await client.write("1")
            lost = cast.server.cluster.control(
                ApiKey.INIT_PRODUCER_ID, lambda call: CloseAfter() if arrives else Close()
            )
            await told(UNKNOWN, Client(client.kproxy).init())
            cast.server.cluster.controls.remove(lost)
            if arrives:
                await told(ErrorCode.PRODUCER_FENCED, client.end(), client.end(), client.end(committed=False))
            else:
                await client.end()
            assert cast.read() == ([] if arrives else ["1"])

    async def test_a_broker_that_can_not_check_the_identity(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1")
            refused = InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

            def old(call: Call) -> Answer:
                return Answer(refused)

            cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, old, times=1)
            await told(ErrorCode.UNSUPPORTED_VERSION, client.init(client.producer))
            await client.end(committed=False)
            assert cast.read() == []


@LEVELS
class TestTakesTooLong:
    """The broker aborts what is open for longer than ``transaction.timeout.ms``, and raises the epoch by that."""

    @pytest.mark.parametrize("writes", [True, False], ids=["writes again", "ends"])
    async def test_nothing_of_it_is_committed(self, level: int, writes: bool) -> None:
        """A cluster with transaction.version 2 lets the client abort and continue; below, that is fenced."""
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.transaction("0")
            await client.write("1")
            assert client.coordinator.open == 1
            cast.now += 60_000
            if writes:
                assert await client.send("2") is ErrorCode.INVALID_PRODUCER_EPOCH
            fenced = ErrorCode.PRODUCER_FENCED
            await told(ABORTABLE if level == 2 or writes else fenced, client.end())
            if level == 2:
                await client.end(committed=False)
            else:
                await told(fenced, client.end(committed=False), client.add(), client.init(client.producer))
                await client.init()
            await client.transaction("3")
            assert cast.read() == ["0", "3"]

    async def test_the_client_aborts_it_too_late(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1")
            cast.now += 60_000
            if level == 2:
                await client.end(committed=False)
                await client.transaction("2")
            else:
                await told(ErrorCode.PRODUCER_FENCED, client.end(committed=False), client.end(committed=False))
            assert cast.read() == (["2"] if level == 2 else [])


@pytest.mark.parametrize("second", [True, False], ids=str)
async def test_a_cluster_that_agrees_on_less_costs_one_transaction(second: bool) -> None:
    """Below level 1 Kafka refuses Produce v12, and is stuck with who ends by EndTxn v5."""
    async with stage() as cast:
        client = await client_of(cast, second=second)
        await client.transaction("1")
        cluster, asked = cast.server.cluster, []
        cluster.config = replace(cluster.config, transaction_version=0)
        refused = Edit(lambda answer: refuse(answer, ErrorCode.UNSUPPORTED_VERSION))
        cluster.control(ApiKey.PRODUCE, lambda call: refused if call.version > 11 else None)
        cluster.control(ApiKey.END_TXN, lambda call: asked.append(call.version))
        if not second:
            await client.add()
        assert await client.send("2") is ErrorCode.UNSUPPORTED_VERSION
        await told(ABORTABLE, client.end())
        await client.end(committed=False)
        await client.transaction("3")
        assert cast.read() == ["1", "3"]
        assert set(asked) == {4}
