"""KIP-98's requests: which versions are asked, what is repeated, and what each error becomes."""

import pytest
import trio
import trio.testing

from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.broker.broker_requests import FIRST, SECOND, BrokerRequests, Protocol
from kproxy.testing.fake_broker import Answer, Call, Close
from kproxy.txn.ids import Producer
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.native_stage import TOPIC, Stage, stage


async def requests(cast: Stage, patience_s: float = 5.0) -> BrokerRequests:
    return BrokerRequests((await cast.kproxy()).cluster, "id", patience_s)


@pytest.mark.parametrize(("level", "protocol"), [(0, FIRST), (1, FIRST), (2, SECOND)])
async def test_the_protocol_is_what_the_cluster_has_agreed_on(level: int, protocol: Protocol) -> None:
    async with stage(level) as cast:
        assert await (await requests(cast)).protocol() is protocol


async def test_who_can_not_be_asked_is_not_available() -> None:
    async with stage() as cast:
        asks = await requests(cast)
        cast.server.cluster.control(ApiKey.API_VERSIONS, lambda call: Close())
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await asks.protocol()


async def test_a_new_epoch_waits_until_what_was_open_is_aborted() -> None:
    async with stage() as cast:
        asks = await requests(cast)
        first = await asks.init(60_000)
        await asks.add_partitions(first, [(TOPIC, 0), (TOPIC, 1)])
        second = await asks.init(60_000)
        assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 2)
        with pytest.raises(TxnError, match=r"PRODUCER_FENCED.*id"):
            await asks.add_partitions(first, [(TOPIC, 0)])


async def test_a_request_that_may_still_come_is_not_sent_again_where_it_must_not_be() -> None:
    async with stage() as cast:
        asks, calls = await requests(cast), list[Call]()

        def hold(call: Call) -> Close:
            calls.append(call)
            return Close()

        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, hold)
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await asks.init(60_000, repeats=False)
        assert len(calls) == 1


async def test_an_end_tells_who_is_next_only_where_it_raises_the_epoch() -> None:
    async with stage() as cast:
        asks = await requests(cast)
        producer = await asks.init(60_000)
        for protocol, following in ((FIRST, None), (SECOND, Producer(producer.producer_id, producer.epoch + 1))):
            await asks.add_partitions(producer, [(TOPIC, 0)])
            assert await asks.end(producer, protocol, committed=True) == following


@pytest.mark.parametrize("protocol", [FIRST, SECOND])
async def test_offsets_join_before_or_with_their_commit(protocol: Protocol) -> None:
    async with stage() as cast:
        asks = await requests(cast)
        producer = await asks.init(60_000)
        added = cast.server.cluster.control(ApiKey.ADD_OFFSETS_TO_TXN, lambda call: None)
        seen: list[int] = []
        cast.server.cluster.control(ApiKey.TXN_OFFSET_COMMIT, lambda call: seen.append(call.version))
        rows = [TransactionOffsetsTopic(TOPIC, [TransactionOffsetsPartition(0, 5)])]
        offsets = TransactionOffsets(group_id="g", generation_id=-1, member_id="", topics=rows)
        await asks.commit_offsets(producer, protocol, offsets)
        assert seen == [protocol.commit_offsets]
        assert added.hits == 0
        nobody = offsets.__class__(group_id="g", generation_id=3, member_id="nobody", topics=rows)
        with pytest.raises(TxnError, match="UNKNOWN_MEMBER_ID"):
            await asks.commit_offsets(producer, protocol, nobody)
        await asks.end(producer, protocol, committed=True)
        assert cast.server.cluster.groups["g"].offsets[TOPIC, 0].offset == 5


async def test_errors_of_partitions_and_unknown_ones_are_told() -> None:
    async with stage() as cast:
        asks = await requests(cast)
        producer = await asks.init(60_000)
        with pytest.raises(TxnError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await asks.add_partitions(producer, [("no-such-topic", 0)])
        answer = InitProducerIdResponse(error_code=9_999)
        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: Answer(answer), times=1)
        with pytest.raises(TxnError, match="UNKNOWN_SERVER_ERROR"):
            await asks.init(60_000)


async def test_who_stays_busy_for_too_long_leaves_it_open() -> None:
    async with stage() as cast:
        asks = await requests(cast, patience_s=0.2)
        busy = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)

        def answer(call: Call) -> Answer:
            return Answer(busy)

        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, answer)
        with pytest.raises(TxnError, match=r"COORDINATOR_NOT_AVAILABLE.*id"):
            await asks.init(60_000)


async def test_a_coordinator_that_has_moved_is_looked_for_and_asked_again_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with stage() as cast:
        asks = await requests(cast)
        producer = await asks.init(60_000)
        found: list[str] = []
        cast.server.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: found.append(call.request.key))
        moved = InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR)
        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: Answer(moved), times=1)
        began = trio.current_time()
        assert (await asks.init(60_000)).epoch == producer.epoch + 1
        assert (found, trio.current_time()) == (["id"], began)


async def test_who_is_busy_is_soon_asked_again_and_then_less_often(autojump_clock: trio.testing.MockClock) -> None:
    async with stage() as cast:
        asks = await requests(cast)
        busy = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        asked: list[float] = []

        def answer(call: Call) -> Answer | None:
            asked.append(trio.current_time() - began)
            return Answer(busy) if len(asked) < 10 else None

        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, answer)
        began = trio.current_time()
        await asks.init(60_000)
        assert asked == pytest.approx([0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2])
