"""KIP-98's requests: which versions are asked, what is repeated, and what each error becomes."""

from dataclasses import replace

import pytest
import trio
import trio.testing

from kproxy.codec._generated.api_versions import ApiVersionsResponse
from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
)
from kproxy.codec._generated.end_txn import EndTxnResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec._generated.txn_offset_commit import TxnOffsetCommitResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.testing.fake_broker import Answer, Call, Close, CloseAfter, Edit
from kproxy.testing.fake_broker.controls import Fault
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.broker_protocol import FIRST, SECOND, Protocol
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.native_stage import TOPIC, Stage, stage
from tests.net.txn.log_harness import configured

NOT_COORDINATOR, NOT_AVAILABLE = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE


async def requests(cast: Stage, patience_s: float = 5.0) -> BrokerRequests:
    return BrokerRequests((await cast.kproxy()).cluster, "id", patience_s)


@pytest.mark.parametrize(("level", "protocol"), [(0, FIRST), (1, FIRST), (2, SECOND)])
async def test_the_protocol_is_what_the_cluster_has_agreed_on(level: int, protocol: Protocol) -> None:
    async with stage(level) as cast:
        assert await (await requests(cast)).protocol() is protocol


def test_a_level_names_its_protocol() -> None:
    assert [Protocol.of(level) for level in range(4)] == [FIRST, FIRST, SECOND, SECOND]
    assert (FIRST.level, SECOND.level) == (1, 2)
    assert FIRST.produce < 12 <= SECOND.produce, "from v12 on partitions join by being written"


async def test_who_can_not_be_asked_is_not_available() -> None:
    async with stage() as cast:
        asks = await requests(cast)
        cast.server.cluster.control(ApiKey.API_VERSIONS, lambda call: Close())
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await asks.protocol()


async def test_the_first_protocol_and_a_doubted_one_are_asked_for_again() -> None:
    """Levels rise in a rolling upgrade, and may be lowered."""
    async with stage() as cast:
        asks = await requests(cast)
        assert await asks.protocol() is SECOND
        asked: list[int] = []
        cast.server.cluster.control(ApiKey.API_VERSIONS, lambda call: asked.append(call.version))
        cast.server.cluster.config = replace(cast.server.cluster.config, transaction_version=1)
        assert await asks.protocol() is SECOND
        assert not asked
        assert await asks.protocol(refresh=True) is FIRST
        assert asked
    async with stage(1) as cast:
        asks = await requests(cast)
        assert await asks.protocol() is FIRST
        cast.server.cluster.config = replace(cast.server.cluster.config, transaction_version=2)
        assert await asks.protocol() is SECOND


async def test_brokers_before_v4_of_api_versions_tell_their_level() -> None:
    def older(answer: object) -> None:
        for row in answer.api_keys:  # type: ignore[attr-defined]
            if row.api_key == ApiKey.API_VERSIONS:
                row.max_version = 3

    async with stage(1) as cast:
        cast.server.cluster.control(ApiKey.API_VERSIONS, lambda call: Edit(older))
        assert await (await requests(cast)).protocol() is FIRST


async def test_no_protocol_is_read_from_an_error() -> None:
    async with stage(1) as cast:
        asks = await requests(cast)
        assert await asks.protocol() is FIRST
        answer = ApiVersionsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        cast.server.cluster.control(ApiKey.API_VERSIONS, lambda call: Answer(answer))
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await asks.protocol()


async def test_each_id_may_have_connections_of_its_own(nursery: trio.Nursery) -> None:
    """Over a shared one it would wait for the requests of all others."""
    async with stage() as cast:
        kproxy = await cast.kproxy()
        used: list[int] = []
        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: used.append(call.connection))
        config = configured(cast.server.bootstrap)
        for name in ("a", "b"):
            own = WriterConnections(kproxy.cluster, config, kproxy.stats.produce, nursery, EndOfTurn(nursery))
            await BrokerRequests(kproxy.cluster, name, 5.0, own).init(60_000)
            own.close()
        assert len(set(used)) == 2


@pytest.mark.parametrize(
    ("resumed", "given", "error"),
    [
        (Producer(7, 3), Producer(7, 4), None),
        (Producer(7, 0), Producer(9, 0), ErrorCode.PRODUCER_FENCED),
        (Producer(9, 3), Producer(7, 0), ErrorCode.PRODUCER_FENCED),
        (Producer(7, 32_765), Producer(9, 0), ErrorCode.PRODUCER_FENCED),
        (Producer(7, 32_766), Producer(9, 0), None),
        (NOBODY, Producer(9, 0), None),
        (NOBODY, Producer(1 << 61, 0), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_an_identity_is_resumed_only_by_whom_the_broker_still_knows(
    resumed: Producer, given: Producer, error: ErrorCode | None
) -> None:
    """A fresh producer id says that the broker has forgotten the last producer, except after the last epoch."""
    async with stage() as cast:
        asks = await requests(cast)
        answer = InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.epoch)
        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: Answer(answer))
        if error is None:
            assert await asks.init(60_000, resumed) == given
        else:
            with pytest.raises(TxnError, match=error.name):
                await asks.init(60_000, resumed)


@pytest.mark.parametrize("newest", [2, 3])
async def test_only_a_broker_that_checks_identities_is_asked_to_resume_one(newest: int) -> None:
    def older(answer: object) -> None:
        for row in answer.api_keys:  # type: ignore[attr-defined]
            if row.api_key == ApiKey.INIT_PRODUCER_ID:
                row.max_version = newest

    async with stage() as cast:
        cast.server.cluster.control(ApiKey.API_VERSIONS, lambda call: Edit(older))
        asks = await requests(cast)
        producer = await asks.init(60_000)
        if newest == 3:
            assert (await asks.init(60_000, producer)).epoch == producer.epoch + 1
        else:
            with pytest.raises(TxnError, match="UNSUPPORTED_VERSION"):
                await asks.init(60_000, producer)


async def test_a_request_without_an_answer_is_repeated() -> None:
    async with stage() as cast:
        asks = await requests(cast)
        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: Close(), times=1)
        assert (await asks.init(60_000)).producer_id >= 0


async def test_partitions_that_are_added_ahead_are_not_waited_for_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with stage() as cast:
        asks = await requests(cast)
        producer = await asks.init(60_000)
        await asks.add_ahead(producer, [(TOPIC, 0)])
        told = await asks.describe()
        assert told is not None
        assert [(row.topic, row.partitions) for row in told.topics] == [(TOPIC, [0])]

        async def hang(call: Call) -> None:
            await trio.sleep_forever()

        cast.server.cluster.control(ApiKey.ADD_PARTITIONS_TO_TXN, hang)
        began = trio.current_time()
        await asks.add_ahead(producer, [(TOPIC, 1)])
        assert trio.current_time() == began + 2


async def test_an_id_is_described_if_the_broker_knows_it() -> None:
    async with stage() as cast:
        asks = await requests(cast)
        assert await asks.describe() is None
        producer = await asks.init(60_000)
        told = await asks.describe()
        assert told is not None
        assert (told.producer_id, told.producer_epoch) == producer
        refused = DescribeTransactionsResponseTransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id="id"
        )
        answer = DescribeTransactionsResponse(transaction_states=[refused])
        cast.server.cluster.control(ApiKey.DESCRIBE_TRANSACTIONS, lambda call: Answer(answer))
        with pytest.raises(TxnError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await asks.describe()


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
        asked: list[int] = []
        cast.server.cluster.control(ApiKey.END_TXN, lambda call: asked.append(call.version))
        for protocol, following in ((FIRST, None), (SECOND, Producer(producer.producer_id, producer.epoch + 1))):
            await asks.add_partitions(producer, [(TOPIC, 0)])
            assert await asks.end(producer, protocol, committed=True) == following
        assert asked == [4, 5]


@pytest.mark.parametrize("protocol", [FIRST, SECOND])
async def test_offsets_join_before_or_with_their_commit(protocol: Protocol) -> None:
    async with stage() as cast:
        asks = await requests(cast)
        producer = await asks.init(60_000)
        added, seen = list[int](), list[int]()
        cast.server.cluster.control(ApiKey.ADD_OFFSETS_TO_TXN, lambda call: added.append(call.version))
        cast.server.cluster.control(ApiKey.TXN_OFFSET_COMMIT, lambda call: seen.append(call.version))
        rows = [TransactionOffsetsTopic(TOPIC, [TransactionOffsetsPartition(0, 5)])]
        offsets = TransactionOffsets(group_id="g", generation_id=-1, member_id="", topics=rows)
        await asks.commit_offsets(producer, protocol, offsets)
        assert (added, seen) == (([3], [4]) if protocol is FIRST else ([], [5]))
        nobody = offsets.__class__(group_id="g", generation_id=3, member_id="nobody", topics=rows)
        with pytest.raises(TxnError, match="UNKNOWN_MEMBER_ID"):
            await asks.commit_offsets(producer, protocol, nobody)
        await asks.end(producer, protocol, committed=True)
        assert cast.server.cluster.groups["g"].offsets[TOPIC, 0].offset == 5


@pytest.mark.parametrize(
    ("newest", "epoch", "member"), [(1, -1, (-1, "", None)), (2, 4, (-1, "", None)), (3, 4, (3, "m", "i"))]
)
async def test_an_older_coordinator_is_not_sent_what_it_can_not_read(
    newest: int, epoch: int, member: tuple[int, str, str | None]
) -> None:
    """Leader epochs came with v2, members with v3."""

    def older(answer: object) -> None:
        for row in answer.api_keys:  # type: ignore[attr-defined]
            if row.api_key == ApiKey.TXN_OFFSET_COMMIT:
                row.max_version = newest

    seen: list[object] = []

    def answer(call: Call) -> Answer:
        (topic,) = call.request.topics
        request = call.request
        of = (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id)
        seen.append((call.version, topic.partitions[0].committed_leader_epoch, of))
        return Answer(TxnOffsetCommitResponse())

    async with stage() as cast:
        cast.server.cluster.control(ApiKey.API_VERSIONS, lambda call: Edit(older))
        cast.server.cluster.control(ApiKey.TXN_OFFSET_COMMIT, answer)
        asks = await requests(cast)
        producer = await asks.init(60_000)
        rows = [TransactionOffsetsTopic(TOPIC, [TransactionOffsetsPartition(0, 5, 4)])]
        offsets = TransactionOffsets(group_id="g", generation_id=3, member_id="m", group_instance_id="i", topics=rows)
        await asks.commit_offsets(producer, FIRST, offsets)
        assert seen == [(newest, epoch, member)]


async def test_an_end_without_an_answer_is_repeated() -> None:
    async with stage() as cast:
        asks = await requests(cast)
        producer = await asks.init(60_000)
        await asks.add_partitions(producer, [(TOPIC, 0)])
        cast.server.cluster.control(ApiKey.END_TXN, lambda call: CloseAfter(), times=1)
        assert await asks.end(producer, FIRST, committed=True) is None


def _told(error: ErrorCode) -> Answer:
    return Answer(EndTxnResponse(error_code=error))


#: What may have taken effect, as the coordinator moved while it wrote it.
_OPEN = [Close(), CloseAfter(), *map(_told, (NOT_COORDINATOR, NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))]
_NONE_BEFORE = [(), (_told(ErrorCode.CONCURRENT_TRANSACTIONS),)]
_REPLACED = [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("replaced", _REPLACED, ids=lambda error: error.name)
@pytest.mark.parametrize(
    "before",
    [*((one,) for one in _OPEN), *_NONE_BEFORE],
    ids=["not read", "lost", "elsewhere", "not available", "loading", "first", "busy"],
)
@pytest.mark.parametrize("committed", [True, False])
async def test_who_is_replaced_when_a_commit_is_repeated_receives_no_definite_error(
    before: tuple[Fault, ...], replaced: ErrorCode, committed: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """The first may have been decided before another took the id. An abort has one outcome in either case."""
    is_open = committed and before not in _NONE_BEFORE
    async with stage() as cast:
        asks, left = await requests(cast), [*before, _told(replaced)]
        cast.server.cluster.control(ApiKey.END_TXN, lambda call: left.pop(0))
        with pytest.raises(TxnError) as raised:
            await asks.end(Producer(7, 1), FIRST, committed=committed)
        assert raised.value.error_code is (NOT_AVAILABLE if is_open else replaced)
        left.append(_told(replaced))
        with pytest.raises(TxnError, match=replaced.name):
            await asks.end(Producer(7, 1), FIRST, committed=committed)


async def test_any_other_response_to_a_repeated_commit_is_definite() -> None:
    async with stage() as cast:
        asks, left = await requests(cast), [Close(), _told(ErrorCode.INVALID_TXN_STATE)]
        cast.server.cluster.control(ApiKey.END_TXN, lambda call: left.pop(0))
        with pytest.raises(TxnError, match="INVALID_TXN_STATE"):
            await asks.end(Producer(7, 1), FIRST, committed=True)


async def test_offsets_go_to_the_coordinator_of_their_group() -> None:
    async with stage(brokers=3) as cast:
        asks = await requests(cast)
        producer = await asks.init(60_000)
        found: list[tuple[str, int]] = []
        cast.server.cluster.control(
            ApiKey.FIND_COORDINATOR, lambda call: found.append((call.request.key, call.request.key_type))
        )
        rows = [TransactionOffsetsTopic(TOPIC, [TransactionOffsetsPartition(0, 5)])]
        await asks.commit_offsets(producer, SECOND, TransactionOffsets(group_id="g", topics=rows))
        assert found == [("g", 0)]


async def test_errors_of_partitions_and_unknown_ones_are_returned() -> None:
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


async def test_a_coordinator_that_has_moved_is_searched_for_and_asked_again_at_once(
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
