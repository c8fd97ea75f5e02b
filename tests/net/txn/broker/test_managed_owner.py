"""One transactional id whose transactions the broker decides: outcomes, faults, and its owner."""

import pytest
import trio

from kproxy.codec._generated.end_txn import EndTxnResponse
from kproxy.codec._generated.produce import ProduceResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Answer, Call, Close, CloseAfter, Edit
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.native_stage import TOPIC, Client, stage
from tests.net.txn.log_harness import PATIENCE

LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])


@LEVELS
class TestOutcomes:
    async def test_commits_show_at_once_and_aborts_never(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            epochs = set()
            for value, committed in (("1", True), ("2", False), ("3", True), ("4", True)):
                had = cast.read()
                await client.write(value, 0, 1)
                assert cast.read() == had
                await client.end(committed=committed)
                epochs.add(cast.server.cluster.transactional_ids["id"].epoch)
            assert cast.read() == cast.read(1) == ["1", "3", "4"]
            stats = client.kproxy.stats.transactions
            assert (stats.commits, stats.open, client.kproxy.coordinator.open) == (3, 0, 0)
            assert len(epochs) == 4, "each transaction has an epoch of its own"

    async def test_ends_of_nothing_are_successes_and_nobody_is_asked(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            asked = cast.server.cluster.control(ApiKey.END_TXN, lambda call: Close())
            await client.end()
            await client.end(committed=False)
            assert asked.hits == 0

    async def test_offsets_of_groups_go_with_the_commit(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.offsets("g", 5)
            await client.end()
            await client.offsets("g", 9)
            await client.end(committed=False)
            assert cast.server.cluster.groups["g"].offsets[TOPIC, 0].offset == 5

    async def test_a_batch_that_is_refused_dooms_it(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.write("1", 1)
            refused = Edit(refuse)
            cast.server.cluster.control(ApiKey.PRODUCE, lambda call: refused, times=1)
            assert await client.send("2") is ErrorCode.RECORD_LIST_TOO_LARGE
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.send("3")
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.offsets("g", 1)
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end()
            await client.end(committed=False)
            await client.write("4", 1)
            await client.end()
            assert (cast.read(), cast.read(1)) == ([], ["4"])


@LEVELS
class TestFaults:
    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    async def test_an_end_whose_answer_is_lost_is_one_outcome(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.write("1", 0, 1)
            lost = cast.server.cluster.control(ApiKey.END_TXN, lambda call: CloseAfter(), times=2)
            await client.end(committed=committed)
            assert lost.hits == 2
            await client.write("2")
            await client.end()
            assert cast.read() == (["1", "2"] if committed else ["2"])
            assert cast.read(1) == (["1"] if committed else [])

    async def test_while_the_last_end_is_being_completed_the_next_transaction_waits(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.write("1")
            cast.server.cluster.hold_markers()
            await client.end()
            async with trio.open_nursery() as nursery:
                busy = trio.Event()
                key = ApiKey.ADD_PARTITIONS_TO_TXN if level == 2 else ApiKey.INIT_PRODUCER_ID
                cast.server.cluster.control(key, lambda call: busy.set())
                nursery.start_soon(client.write, "2")
                with trio.fail_after(PATIENCE):
                    await busy.wait()
                assert cast.read() == []
                cast.server.cluster.release_markers()
            await client.end()
            assert cast.read() == ["1", "2"]

    async def test_the_coordinator_moves(self, level: int) -> None:
        async with stage(level, brokers=2) as cast:
            client = await cast.client()
            await client.write("1")
            coordinator = cast.server.cluster.coordinator_of("id")
            assert coordinator is not None
            await cast.server.stop_broker(coordinator.node_id)
            await client.end()
            await client.write("2")
            await client.end()
            assert cast.read() == ["1", "2"]

    @pytest.mark.idle_clock
    async def test_nobody_answers_in_time_then_the_outcome_is_open_and_the_next_is_after_it(self, level: int) -> None:
        async with stage(level, delivery_timeout_ms=1_000) as cast:
            client = await cast.client()
            await client.write("1")
            gone = cast.server.cluster.control(ApiKey.END_TXN, lambda call: Close())
            with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
                await client.end()
            cast.server.cluster.controls.remove(gone)
            await client.write("2")
            await client.end()
            assert cast.read() == ["2"]
            assert client.kproxy.stats.transactions.open == 0

    async def test_a_commit_that_was_decided_before_another_took_the_id_is_not_said_to_be_aborted(
        self, level: int
    ) -> None:
        async with stage(level) as cast:
            client, other = await cast.client(), Client(await cast.kproxy())
            await client.write("1")
            left = [CloseAfter()]

            async def control(_: Call) -> CloseAfter | None:
                if left:
                    return left.pop()
                await other.init()
                return None

            cast.server.cluster.control(ApiKey.END_TXN, control)
            with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
                await client.end()
            assert cast.read() == ["1"]
            assert client.kproxy.stats.transactions.open == client.kproxy.stats.transactions.fenced == 0


@LEVELS
class TestWhoHasIt:
    async def test_a_new_owner_aborts_and_the_former_gets_an_error(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.write("1")
            former = Client(client.kproxy, producer=client.producer)
            await client.init()
            for ask in (former.send("2"), former.end(), former.offsets("g", 1)):
                with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                    await ask
            await client.write("3")
            await client.end()
            assert cast.read() == ["3"]

    async def test_who_asks_for_it_and_does_not_get_it_costs_nothing(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.write("1")
            with pytest.raises(TxnError, match="INVALID_TRANSACTION_TIMEOUT"):
                await Client(client.kproxy).init(timeout_ms=1 << 30)
            await client.end()
            assert cast.read() == ["1"]

    async def test_another_kproxy_takes_it(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.write("1")
            other = await cast.client()
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end()
            await other.write("2")
            await other.end()
            assert cast.read() == ["2"]
            assert client.kproxy.stats.transactions.fenced == 1

    async def test_a_kproxy_that_dies_leaves_it_open_until_the_next_begins(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.write("1")
            client.kproxy.scope.cancel()
            assert cast.read() == []
            assert cast.read(committed=False) == ["1"]
            other = await cast.client()
            await other.write("2")
            await other.end()
            assert cast.read() == ["2"]

    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    async def test_the_broker_ends_what_takes_too_long(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.write("1")
            cast.now += 60_000
            if committed:
                with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                    await client.end()
            else:
                await client.end(committed=False)
            await client.write("2")
            await client.end()
            assert cast.read() == ["2"]

    async def test_what_is_written_too_late_dooms_it(self, level: int) -> None:
        async with stage(level) as cast:
            client = await cast.client()
            await client.write("1")
            cast.now += 60_000
            assert await client.send("2") is ErrorCode.INVALID_PRODUCER_EPOCH
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end()


async def test_an_error_of_the_end_is_returned_and_nothing_stays_open() -> None:
    async with stage() as cast:
        client = await cast.client()
        await client.write("1")
        refused = EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        cast.server.cluster.control(ApiKey.END_TXN, lambda call: Answer(refused), times=1)
        with pytest.raises(TxnError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await client.end()
        assert client.kproxy.coordinator.open == 0


async def test_versions_are_those_of_the_protocol_that_the_cluster_has_agreed_on() -> None:
    for level, newest in ((1, {ApiKey.PRODUCE: 11, ApiKey.END_TXN: 4}), (2, {ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5})):
        seen: dict[ApiKey, int] = {}
        async with stage(level) as cast:
            for key in newest:
                cast.server.cluster.control(key, lambda call, seen=seen: _note(call, seen))  # type: ignore[misc]
            client = await cast.client()
            await client.write("1")
            await client.end()
        assert seen == newest


def _note(call: Call, seen: dict[ApiKey, int]) -> None:
    seen[ApiKey(call.request.API_KEY)] = call.version


def refuse(answer: object, error: ErrorCode = ErrorCode.RECORD_LIST_TOO_LARGE) -> None:
    assert isinstance(answer, ProduceResponse)
    answer.responses[0].partition_responses[0].error_code = error
