"""Requests about transactions over sockets, to a coordinator that does what the test says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.end_txn import EndTxnRequest
from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
)
from kproxy.codec.messages import APIS, ApiKey, ErrorCode
from kproxy.proxy.coordinator_requests import (
    AbortRequest,
    TransactionRequest,
)
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.testing.fake_broker import Close
from kproxy.txn.ids import Producer
from kproxy.txn.requests import TxnRequest
from tests.net.harness import Proxied, eventually, metadata, proxied
from tests.net.txn.fake_coordinator import FakeCoordinator, FakeTransactions
from tests.net.txn.wire_producer import TV1, TV2, WireProducer, produce_request, transactional_batch

pytestmark = pytest.mark.idle_clock

HOMES = (HomeRule("theirs-*", Home.BROKER), HomeRule("*", Home.KPROXY))
ME = Producer(4000, 7)
P0, P1 = ("t", 0), ("t", 1)
WHO = TxnRequest("id", ME, 3, "c")


@asynccontextmanager
async def decided(brokers: int = 1, **options: Any) -> AsyncIterator[tuple[Proxied, FakeCoordinator]]:
    """A proxy with a fake coordinator and a topic t of two partitions."""
    given: dict[str, Any] = {"coordinator": FakeTransactions, "transactions_home": HOMES, **options}
    async with proxied(brokers, **given) as proxy:
        proxy.brokers.create_topic("t", 2)
        yield proxy, proxy.transactions.coordinator


def frames(client: Any, *sequences: int, version: int = 9) -> bytes:
    """Produce requests, one batch each, sent at a time."""
    requests = [produce_request("id", {P0: transactional_batch("v", ME, sequence)}) for sequence in sequences]
    return b"".join(client.encode(request, version) for request in requests)


@pytest.mark.parametrize("version", range(APIS[ApiKey.INIT_PRODUCER_ID][2] + 1))
async def test_init_producer_id(version: int) -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        producer = WireProducer(client, "id", {**TV1, ApiKey.INIT_PRODUCER_ID: version})
        assert await producer.init(1234) == 0
        assert producer.producer == ME
        coordinator.errors["init"] = ErrorCode.PRODUCER_FENCED
        fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.init() == fenced
        assert coordinator.asked[0] == ("init", ("id", 1234, None, "test"))


@pytest.mark.parametrize("version", range(4))
async def test_add_partitions(version: int) -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        producer = WireProducer(client, "id", {**TV1, ApiKey.ADD_PARTITIONS_TO_TXN: version}, ME)
        assert await producer.add(P0, P1) == [0, 0]
        assert coordinator.asked == [("add", [P0, P1])]
        assert coordinator.who is not None
        assert coordinator.who[:2] == ("id", ME)
        coordinator.refused = {P1: ErrorCode.POLICY_VIOLATION}
        assert await producer.add(P0, P1) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.POLICY_VIOLATION]
        coordinator.errors["add"] = ErrorCode.TRANSACTION_ABORTABLE
        assert await producer.add(P0, P1) == [ErrorCode.UNKNOWN_PRODUCER_ID] * 2


@pytest.mark.parametrize("version", range(APIS[ApiKey.ADD_OFFSETS_TO_TXN][2] + 1))
async def test_add_offsets(version: int) -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        producer = WireProducer(client, "id", {**TV1, ApiKey.ADD_OFFSETS_TO_TXN: version}, ME)
        assert await producer.add_offsets("g") == 0
        assert coordinator.asked == [("add_offsets", "g")]
        coordinator.errors["add_offsets"] = ErrorCode.CONCURRENT_TRANSACTIONS
        assert await producer.add_offsets("g") == ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("version", range(APIS[ApiKey.TXN_OFFSET_COMMIT][2] + 1))
async def test_commit_offsets(version: int) -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        ids = {"t": proxy.brokers.topics["t"].topic_id}
        producer = WireProducer(client, "id", {**TV1, ApiKey.TXN_OFFSET_COMMIT: version}, ME)
        assert await producer.commit_offsets("g", [("t", 0, 42), ("t", 1, 43)], **ids) == [0, 0]
        [(name, offsets)] = coordinator.asked
        expected = "offsets_implicit" if version >= 5 else "offsets"
        assert (name, offsets.group_id, len(offsets.topics)) == (expected, "g", 2)
        assert [topic.name for topic in offsets.topics] == ["t", "t"]
        assert offsets.topics[1].partitions[0].offset == 43
        coordinator.errors[expected] = ErrorCode.NOT_COORDINATOR
        assert await producer.commit_offsets("g", [("t", 0, 42)], **ids) == [ErrorCode.NOT_COORDINATOR]


async def test_offsets_of_topics_whose_ids_nobody_knows_are_refused_and_the_others_committed() -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        ids = {"t": proxy.brokers.topics["t"].topic_id, "gone": b"\1" * 16, "zero": bytes(16)}
        producer = WireProducer(client, "id", {**TV2, ApiKey.TXN_OFFSET_COMMIT: 6}, ME)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        offsets = [("gone", 0, 1), ("t", 0, 42), ("zero", 0, 2)]
        assert await producer.commit_offsets("g", offsets, **ids) == [unknown, 0, unknown]
        [(_, committed)] = coordinator.asked
        assert [topic.name for topic in committed.topics] == ["t"]
        assert await producer.commit_offsets("g", [("gone", 0, 1)], **ids) == [unknown]
        assert len(coordinator.asked) == 1, "nothing of it is committed, and no group joins the transaction"


async def test_offsets_of_a_topic_that_was_created_again_are_refused_under_its_former_id() -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        former = proxy.brokers.topics["t"].topic_id
        producer = WireProducer(client, "id", {**TV2, ApiKey.TXN_OFFSET_COMMIT: 6}, ME)
        assert await producer.commit_offsets("g", [("t", 0, 42)], t=former) == [0]
        proxy.brokers.delete_topic("t")
        proxy.brokers.create_topic("t")
        await client.call(metadata("t"), 12)  # some client learns of it
        unknown = [ErrorCode.UNKNOWN_TOPIC_ID]
        assert await producer.commit_offsets("g", [("t", 0, 43)], t=former) == unknown
        assert await producer.commit_offsets("g", [("t", 0, 0)], t=proxy.brokers.topics["t"].topic_id) == [0]
        assert len(coordinator.asked) == 2


async def test_names_of_topics_that_no_broker_tells_make_the_client_commit_again() -> None:
    async with decided(metadata_max_age_ms=60_000) as (proxy, coordinator), await proxy.client() as client:
        producer = WireProducer(client, "id", {**TV2, ApiKey.TXN_OFFSET_COMMIT: 6}, ME)
        await client.call(HeartbeatRequest(group_id="g"), 0)
        proxy.brokers.control(ApiKey.METADATA, lambda _: Close(), times=4)
        topic_id = proxy.brokers.topics["t"].topic_id
        assert await producer.commit_offsets("g", [("t", 0, 42)], t=topic_id) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert not coordinator.asked


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(APIS[ApiKey.END_TXN][2] + 1))
async def test_end(version: int, committed: bool) -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        producer = WireProducer(client, "id", {**TV1, ApiKey.END_TXN: version}, ME)
        assert await producer.end(committed=committed) == 0
        assert coordinator.asked == [("end", (committed, version >= 5))]
        assert producer.producer == (4000, 8 if version >= 5 else 7)
        coordinator.errors["end"] = ErrorCode.TRANSACTION_ABORTABLE
        aborted = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.UNKNOWN_PRODUCER_ID
        assert await producer.end(committed=committed) == aborted


@pytest.mark.parametrize("version", range(3, 14))
async def test_produce(version: int) -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        ids = {"t": proxy.brokers.topics["t"].topic_id, "u": b"\1" * 16}
        producer = WireProducer(client, "id", {**TV1, ApiKey.PRODUCE: version}, ME)
        assert await producer.produce("v", P0, P1, **ids) == [0, 0]
        assert coordinator.asked == [("produce", (0, [P0, P1], version >= 12))]
        coordinator.errors["produce"] = ErrorCode.TRANSACTION_ABORTABLE
        aborted = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
        assert await producer.produce("v", P0, P1, **ids) == [aborted, aborted]
        if version >= 13:
            assert await producer.produce("v", P0, ("u", 0), **ids) == [0, ErrorCode.UNKNOWN_TOPIC_ID]
            assert coordinator.asked[-1] == ("produce", (2, [P0], True))


async def test_kproxys_own_topics_are_refused_by_their_ids_too() -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        proxy.brokers.create_topic("__kproxy_x")
        ids = {"own": proxy.brokers.topics["__kproxy_x"].topic_id}
        producer = WireProducer(client, "id", {**TV1, ApiKey.PRODUCE: 13}, ME)
        assert await producer.produce("v", ("own", 0), **ids) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert not coordinator.asked


async def test_batches_for_a_topic_that_was_created_again_are_refused_under_its_former_id() -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        former = proxy.brokers.topics["t"].topic_id
        producer = WireProducer(client, "id", {**TV1, ApiKey.PRODUCE: 13}, ME)
        assert await producer.produce("v", P0, t=former) == [0]
        proxy.brokers.delete_topic("t")
        proxy.brokers.create_topic("t")
        await client.call(metadata("t"), 12)  # some client learns of it
        assert await producer.produce("v", P0, t=former) == [ErrorCode.UNKNOWN_TOPIC_ID]
        assert await producer.produce("v", P0, t=proxy.brokers.topics["t"].topic_id) == [0]
        assert len(coordinator.asked) == 2


async def test_ids_of_topics_that_no_broker_tells_make_the_client_try_again() -> None:
    async with decided(metadata_max_age_ms=60_000) as (proxy, coordinator), await proxy.client() as client:
        ids = {"t": proxy.brokers.topics["t"].topic_id}
        producer = WireProducer(client, "id", {**TV1, ApiKey.PRODUCE: 13}, ME)
        await client.call(HeartbeatRequest(group_id="g"), 0)
        proxy.brokers.control(ApiKey.METADATA, lambda _: Close(), times=4)
        (error,) = await producer.produce("v", P0, **ids)
        assert ErrorCode(error).retriable
        assert not coordinator.asked


# -- order


async def test_pipelined_batches_enter_in_their_order_and_are_in_flight_together() -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        coordinator.writes = {sequence: trio.Event() for sequence in range(8)}
        coordinator.accepts = {2: trio.Event()}
        await client.stream.send_all(frames(client, *range(8)))
        await eventually(lambda: len(coordinator.asked) == 3)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert len(coordinator.asked) == 3, "what is behind waits until the one before has its place"
        coordinator.accepts[2].set()
        await eventually(lambda: len(coordinator.asked) == 8)
        assert [what[0] for _, what in coordinator.asked] == list(range(8))
        for sequence in reversed(range(8)):
            coordinator.writes[sequence].set()
        offsets = [(await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(8)]
        assert offsets == list(range(100, 108))


async def test_a_batch_that_fails_lets_the_next_one_in() -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        coordinator.errors["produce"] = ErrorCode.INVALID_TXN_STATE
        await client.stream.send_all(frames(client, 0, 1))
        answers = [await client.receive() for _ in range(2)]
        codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
        assert codes == [ErrorCode.INVALID_TXN_STATE, 0]


async def test_what_comes_after_an_end_begins_when_it_is_done() -> None:
    """As at a broker, which takes the requests of a connection one by one."""
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        coordinator.writes = {0: trio.Event()}
        first, end = frames(client, 0), client.encode(EndTxnRequest("id", *ME, committed=True), 3)
        await client.stream.send_all(first + end + frames(client, 1))
        await eventually(lambda: len(coordinator.asked) == 3)
        assert [name for name, _ in coordinator.asked] == ["produce", "end", "produce"]
        coordinator.writes[0].set()
        assert [(await client.receive()).API_KEY for _ in range(3)] == [ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.PRODUCE]


async def test_others_are_served_while_a_coordinator_takes_its_time() -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client, await proxy.client() as other:
        coordinator.writes = {0: trio.Event()}
        await client.stream.send_all(frames(client, 0))
        await eventually(lambda: len(coordinator.asked) == 1)
        await other.stream.send_all(frames(other, 1))
        assert (await other.receive()).responses[0].partition_responses[0].base_offset == 101
        await client.send(metadata("t"), 4)
        coordinator.writes[0].set()
        assert [(await client.receive()).API_KEY for _ in range(2)] == [ApiKey.PRODUCE, ApiKey.METADATA]


async def test_connections_are_numbered_as_they_come() -> None:
    async with decided() as (proxy, coordinator):
        seen = []
        for _ in range(3):
            async with await proxy.client() as client:
                assert await WireProducer(client, "id", TV1, ME).end() == 0
                assert coordinator.who is not None
                seen.append(coordinator.who.connection)
        assert seen == sorted(set(seen))


async def test_a_connection_older_than_its_clients_newest_is_ended_so_that_the_client_reconnects() -> None:
    """A response would make the client ask for its coordinator, and hear of this connection again and again."""
    async with decided() as (proxy, coordinator):
        async with await proxy.client() as client:
            coordinator.errors["end"] = ErrorCode.NETWORK_EXCEPTION
            with pytest.raises(EOFError):
                await WireProducer(client, "id", TV1, ME).end()
        async with await proxy.client() as client:
            assert await WireProducer(client, "id", TV1, ME).end() == 0


async def test_a_client_that_goes_in_the_middle_leaves_nothing_and_what_was_begun_continues() -> None:
    async with decided() as (proxy, coordinator):
        coordinator.writes = {0: trio.Event()}
        async with await proxy.client() as client:
            await client.stream.send_all(frames(client, 0, 1, 2))
            await eventually(lambda: len(coordinator.asked) == 3)
        await proxy.at_rest()
        async with await proxy.client() as client:
            assert await WireProducer(client, "id", TV1, ME).end() == 0


async def test_a_client_is_held_back_by_what_is_not_answered() -> None:
    async with decided(connection_buffer_bytes=65_536) as (proxy, coordinator), await proxy.client() as client:
        gate = trio.Event()
        coordinator.writes = dict.fromkeys(range(1000), gate)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.stream.send_all, frames(client, *range(300)))
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert 10 < len(coordinator.asked) < 100
            gate.set()
            for sequence in range(300):
                answer = await client.receive()
                assert answer.responses[0].partition_responses[0].base_offset == 100 + sequence


# -- homes


@pytest.mark.parametrize("versions", [TV1, TV2], ids=["TV1", "TV2"])
async def test_every_port_tells_the_same_coordinator_of_kproxys_ids_as_metadata_tells_it(versions: Any) -> None:
    async with decided(3) as (proxy, _):
        told = set()
        for node_id in (1, 2, 3, None):
            async with await proxy.client(node_id) as client:
                answer = await WireProducer(client, "id", versions).find()
                (row,) = answer.coordinators or [answer]
                brokers = (await client.call(metadata(), 4)).brokers
            assert row.error_code == 0
            assert (row.node_id, row.host, row.port) in [(b.node_id, b.host, b.port) for b in brokers]
            told.add(row.node_id)
        assert len(told) == 1


async def test_ids_of_the_brokers_are_the_brokers() -> None:
    async with decided() as (proxy, coordinator), await proxy.client() as client:
        producer = WireProducer(client, "theirs-1", TV1)
        assert (await producer.find()).error_code == 0
        assert await producer.init() == 0
        assert await producer.add(P0) == [0]
        assert not coordinator.asked


async def test_without_a_coordinator_all_is_relayed_whatever_the_rules_say() -> None:
    async with proxied(transactions_home=HOMES) as proxy, await proxy.client() as client:
        assert await WireProducer(client, "id", TV1).init() == 0


async def test_all_ports_tell_the_same_features_and_ranges() -> None:
    async with decided(2) as (proxy, _):
        told = []
        for node_id in (1, 2, None):
            async with await proxy.client(node_id) as client:
                answer = await client.call(ApiVersionsRequest("x", "1"), 3)
            told.append((answer.api_keys, answer.finalized_features, answer.supported_features))
        assert told[0] == told[1] == told[2]


async def test_all_that_have_to_know_hear_of_the_end_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    async with decided() as (proxy, coordinator):
        transactions = proxy.transactions
        for one in (coordinator, transactions.implicit_transactions, transactions.memberships):
            monkeypatch.setattr(one, "closed", lambda *what, **how: heard.append((*what, how)))
        transactions.closed(3, received_all=True)
    assert heard[:2] == [(3, {}), (3, {"received_all": True})]
    assert heard[2][0] == 3


async def test_an_operators_marker_aborts() -> None:
    topics = [WriteTxnMarkersRequestWritableTxnMarkerTopic("t", [0])]
    request = WriteTxnMarkersRequest([WriteTxnMarkersRequestWritableTxnMarker(1, 0, False, topics)])
    async with decided() as (_, coordinator):
        for error in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE):
            if error:
                coordinator.errors["abort"] = error
            answer: Any = await coordinator.answer_abort(AbortRequest("id", ME, request))
            assert answer.markers[0].topics[0].partitions[0].error_code == error
        assert coordinator.asked == [("abort", ("id", ME))] * 2


@pytest.mark.parametrize(("client", "known"), [(ME, ME), (Producer(-1, -1), None)])
async def test_a_client_that_has_an_identity_names_it(client: Producer, known: Producer | None) -> None:
    async with decided() as (_, coordinator):
        await coordinator.answer(TransactionRequest(WHO._replace(client=client), InitProducerIdRequest("id", 1234)), 4)
        assert coordinator.asked == [("init", ("id", 1234, known, "c"))]


async def test_other_requests_are_a_mistake_of_the_caller() -> None:
    async with decided() as (_, coordinator):
        with pytest.raises(TypeError, match="HeartbeatRequest is not about a transaction"):
            await coordinator.answer(TransactionRequest(WHO, HeartbeatRequest()), 4)
