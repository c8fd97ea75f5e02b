"""Clients that write in transactions or not at all, by their client.id."""

from kproxy.codec.messages import ErrorCode
from kproxy.proxy.applications import CommitRule
from tests.net.harness import errors_of, eventually, produce
from tests.net.retrying import Gate
from tests.net.txn.test_control_service import TIMEOUT_MS, commit, refused, stage, write
from tests.net.txn.test_rpcs_whole import committed_values

_CLIENT = "kproxy-txn-loader"


async def test_without_an_open_transaction_nothing_is_written() -> None:
    async with stage() as (proxy, control), await proxy.client(client_id=_CLIENT) as client:
        assert await write(client, b"before") == [ErrorCode.INVALID_TXN_STATE]
        await control.begin(client_id=_CLIENT, transactional_id="id", timeout_ms=TIMEOUT_MS)
        assert await write(client, b"1") == [0]
        assert await write(client, b"2") == [0]
        await commit(control)
        # As after a restart: the client continues, and kproxy knows of no transaction.
        assert await write(client, b"behind") == [ErrorCode.INVALID_TXN_STATE]
        assert committed_values(proxy) == ["1", "2"]
        assert proxy.brokers.topics["t"].partitions[0].log.end_offset == 2


async def test_the_rules_of_the_configuration_hold_for_them_too() -> None:
    async with stage(per_request=("kproxy-txn-*",)) as (proxy, _), await proxy.client(client_id=_CLIENT) as client:
        assert await write(client, b"1") == [0]
        assert committed_values(proxy) == ["1"]


async def test_what_was_begun_by_hand_comes_before_the_rules_of_the_configuration() -> None:
    rules = (CommitRule(_CLIENT),)
    async with stage(on_offset_commit=rules) as (proxy, control), await proxy.client(client_id=_CLIENT) as client:
        await control.begin(client_id=_CLIENT, transactional_id="id", timeout_ms=TIMEOUT_MS)
        assert await write(client, b"1") == [0]
        await commit(control)
        assert committed_values(proxy) == ["1"]


async def test_a_producer_of_a_rule_writes_into_its_applications_transaction() -> None:
    rules = (CommitRule(_CLIENT),)
    async with (
        stage(on_offset_commit=rules) as (proxy, _),
        await proxy.client(client_id=_CLIENT) as client,
        await proxy.client(client_id="kproxy-txn-other") as other,
    ):
        assert proxy.transactions.implicit_transactions.of("plain") is None
        application = proxy.transactions.implicit_transactions.of_consumer(_CLIENT, "g")
        assert application is not None
        application.joins(9, rewinds=True)
        application.fetches()
        assert await write(client, b"1") == [0]
        assert await write(other, b"2") == [ErrorCode.INVALID_TXN_STATE]
        assert committed_values(proxy) == []
        assert 9 in proxy.transactions.implicit_transactions.parties().connections
        proxy.transactions.implicit_transactions.closed(9, received_all=True)
        assert 9 not in proxy.transactions.implicit_transactions.parties().connections


async def test_a_connection_that_ends_before_its_answer_dooms_the_transaction() -> None:
    async with stage() as (proxy, control):
        gate = Gate(proxy)
        await control.begin(client_id=_CLIENT, transactional_id="id", timeout_ms=TIMEOUT_MS)
        async with await proxy.client(client_id=_CLIENT) as client:
            await client.send(produce("t", b"1"), 7)
            await gate.wait_reached()
        await eventually(lambda: proxy.stats.clients.connections_open == 0)
        gate.release()
        assert await refused(control.commit("id")) is ErrorCode.TRANSACTION_ABORTABLE
        assert committed_values(proxy) == []


async def test_what_is_retried_over_another_connection_dooms_the_transaction() -> None:
    """A balancer that ends connections in good order may have kept the last response to itself."""
    request = produce("t", b"1")
    async with stage() as (proxy, control):
        async with await proxy.client(client_id=_CLIENT) as client:
            await control.begin(client_id=_CLIENT, transactional_id="id", timeout_ms=TIMEOUT_MS)
            assert errors_of(await client.call(request, 7)) == [0]
        async with await proxy.client(client_id=_CLIENT) as client:
            assert errors_of(await client.call(request, 7)) == [ErrorCode.INVALID_TXN_STATE]  # as that version has it
        assert await refused(control.commit("id")) is ErrorCode.TRANSACTION_ABORTABLE
        assert committed_values(proxy) == []


async def test_other_records_over_another_connection_are_new_ones() -> None:
    async with stage() as (proxy, control):
        await control.begin(client_id=_CLIENT, transactional_id="id", timeout_ms=TIMEOUT_MS)
        for value, partition in ((b"1", 0), (b"2", 0), (b"2", 1)):
            async with await proxy.client(client_id=_CLIENT) as client:
                assert await write(client, value, partition=partition) == [0]
                assert await write(client, value, partition=partition) == [0]  # over the same one it is new, too
        await commit(control)
        assert committed_values(proxy) == ["1", "1", "2", "2"]
