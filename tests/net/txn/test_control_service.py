"""Clients that know nothing of transactions, in frames through kproxy, while transactions are begun for them."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.control_service import ControlService
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.txn.described import Described
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.txn_error import TxnError
from tests.codec.message_sets import entry
from tests.net.harness import PATIENCE, FrameClient, Proxied, errors_of, eventually, produce, proxied
from tests.net.retrying import Gate
from tests.net.txn.test_rpcs_whole import committed_values
from tests.net.txn.wire_producer import produce_request, transactional_batch

pytestmark = pytest.mark.idle_clock

OPTIONS: dict[str, Any] = {"coordinator": Transactions, "transaction_state_log_num_partitions": 4, "instance_id": "box"}
TIMEOUT_MS = 60_000


@asynccontextmanager
async def stage(**options: Any) -> AsyncIterator[tuple[Proxied, ControlService]]:
    async with proxied(**OPTIONS, **options) as proxy:
        proxy.brokers.create_topic("t", 2)
        yield proxy, proxy.transactions.control


async def begin(control: ControlService, name: str | None = "id", timeout_ms: int = TIMEOUT_MS) -> Described:
    with trio.fail_after(PATIENCE):
        return await control.begin(client_id="test", transactional_id=name, timeout_ms=timeout_ms)


async def commit(control: ControlService, name: str = "id", **how: Any) -> Described:
    with trio.fail_after(PATIENCE):
        return await control.commit(name, **how)


async def abort(control: ControlService, name: str = "id") -> Described:
    with trio.fail_after(PATIENCE):
        return await control.abort(name, owner=(await control.describe(name)).owner)


async def write(client: FrameClient, *values: bytes, partition: int = 0, version: int = 7) -> list[int]:
    return errors_of(await client.call(produce("t", *values, partition=partition), version))


async def refused(work: Any) -> ErrorCode:
    """The error that it ends with."""
    with pytest.raises(TxnError) as caught, trio.fail_after(PATIENCE):
        await work
    return caught.value.error_code


async def test_what_a_client_writes_shows_when_it_is_committed() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        begun = await begin(control)
        assert (begun.state, begun.client_id, begun.instance_id) == ("Ongoing", "test", "box")
        assert await write(client, b"1") == [0]
        assert await write(client, b"2", partition=1) == [0]
        assert committed_values(proxy) == committed_values(proxy, 1) == []
        assert (await control.describe("id")).partitions == (("t", 0), ("t", 1))
        done = await commit(control)
        assert done.state == "CompleteCommit"
        assert done.last is not None
        assert done.last.committed
        assert (committed_values(proxy), committed_values(proxy, 1)) == (["1"], ["2"])
        assert [row.state for row in await control.list()] == ["CompleteCommit"]


async def test_what_is_aborted_never_shows_and_the_next_does() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        for value, decide in ((b"1", abort), (b"2", commit), (b"3", abort), (b"4", commit)):
            await begin(control)
            assert await write(client, value) == [0]
            await decide(control)
        assert committed_values(proxy) == ["2", "4"]


async def test_after_the_end_a_client_writes_plain_records_again() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        assert await write(client, b"before") == [0]
        await begin(control, None)
        assert await write(client, b"1") == [0]
        await commit(control, "kproxy-test")
        assert await write(client, b"behind") == [0]
        log = proxy.brokers.topics["t"].partitions[0].log
        assert log.end_offset == 3


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_old_message_sets_go_into_the_transaction(version: int) -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control)
        request = produce("t", b"-")
        rows = [entry(at, None, b"%d" % at, magic=int(version > 1), timestamp=1_000) for at in range(3)]
        request.topic_data[0].partition_data[0].records = b"".join(rows)
        answer = await client.call(request, version)
        (row,) = answer.responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (0, 0)
        await commit(control)
        assert committed_values(proxy) == ["0", "1", "2"]


async def test_a_set_that_is_split_is_whole_in_the_transaction() -> None:
    async with stage(max_message_bytes=2_000) as (proxy, control), await proxy.client() as client:
        await begin(control)
        request = produce("t", b"-")
        values = [b"%d" % at + bytes(500) for at in range(12)]
        rows = [entry(at, None, value, magic=1, timestamp=1_000) for at, value in enumerate(values)]
        request.topic_data[0].partition_data[0].records = b"".join(rows)
        (row,) = (await client.call(request, 2)).responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (0, 0)
        await commit(control)
        assert committed_values(proxy) == [value.decode() for value in values]


async def test_requests_that_want_no_answer_are_in_it_though_the_client_has_gone() -> None:
    async with stage() as (proxy, control):
        await begin(control)
        async with await proxy.client() as client:
            for at in range(20):
                await client.stream.send_all(client.encode(produce("t", b"%d" % at, acks=0), 7, silent=True))
            await client.call(produce("t", b"last", acks=1), 7)
        await eventually(lambda: not proxy.stats.clients.connections_open)
        await commit(control)
        assert committed_values(proxy) == [*(str(at) for at in range(20)), "last"]


async def test_a_transaction_without_records_commits() -> None:
    async with stage() as (_, control):
        await begin(control)
        assert (await commit(control)).last is None


async def test_what_is_not_open_is_not_decided() -> None:
    async with stage() as (_, control):
        assert await refused(control.commit("id")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await refused(control.describe("id")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await control.list() == []
        owner = (await begin(control)).owner
        await commit(control)
        assert await refused(control.commit("id")) is ErrorCode.INVALID_TXN_STATE
        assert await refused(control.abort("id", owner=owner)) is ErrorCode.INVALID_TXN_STATE
        assert await refused(control.prepare("id", owner=owner)) is ErrorCode.INVALID_TXN_STATE
        assert await refused(control.commit("other")) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_one_transaction_at_a_time_for_an_id_and_for_a_client() -> None:
    async with stage() as (_, control):
        await begin(control)
        for name in ("id", "other"):
            work = control.begin(client_id="test", transactional_id=name, timeout_ms=TIMEOUT_MS)
            assert await refused(work) is ErrorCode.CONCURRENT_TRANSACTIONS
        await abort(control)
        assert (await begin(control, "other")).state == "Ongoing"


async def test_a_new_id_needs_a_client() -> None:
    async with stage() as (_, control):
        work = control.begin(client_id=None, transactional_id="id", timeout_ms=TIMEOUT_MS)
        assert await refused(work) is ErrorCode.INVALID_REQUEST
        await begin(control)
        await abort(control)
        with trio.fail_after(PATIENCE):
            again = await control.begin(client_id=None, transactional_id="id", timeout_ms=TIMEOUT_MS)
        assert again.client_id == "test"


# -- what dooms


async def test_a_refused_batch_dooms_the_transaction() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control)
        assert await write(client, b"1") == [0]
        broken = produce("t", b"2")
        broken.topic_data[0].partition_data[0].records = b"nonsense"
        assert errors_of(await client.call(broken, 7)) == [ErrorCode.INVALID_RECORD]
        assert await write(client, b"3") == [ErrorCode.INVALID_TXN_STATE]
        assert await refused(control.commit("id")) is ErrorCode.TRANSACTION_ABORTABLE
        assert committed_values(proxy) == []
        await begin(control)
        assert await write(client, b"4") == [0]
        await commit(control)
        assert committed_values(proxy) == ["4"]


async def test_a_connection_that_ends_before_its_answer_dooms_the_transaction() -> None:
    async with stage() as (proxy, control):
        await begin(control)
        gate = Gate(proxy)
        async with await proxy.client() as client:
            await client.send(produce("t", b"1"), 7)
            await gate.wait_reached()
        await eventually(lambda: not proxy.stats.clients.connections_open)
        gate.release()
        async with await proxy.client() as client:
            assert await write(client, b"1") == [ErrorCode.INVALID_TXN_STATE]
        assert await refused(control.commit("id")) is ErrorCode.TRANSACTION_ABORTABLE
        assert committed_values(proxy) == []


async def test_a_connection_that_ends_after_its_answers_does_not() -> None:
    async with stage() as (proxy, control):
        await begin(control)
        for value in (b"1", b"2"):
            async with await proxy.client() as client:
                assert await write(client, value) == [0]
            await eventually(lambda: not proxy.stats.clients.connections_open)
        await commit(control)
        assert committed_values(proxy) == ["1", "2"]


async def test_the_time_out_aborts_and_the_client_gets_the_error_until_the_script_does() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control, timeout_ms=900)
        assert await write(client, b"1") == [0]
        capture = proxy.transactions.implicit_transactions.of("test")
        await eventually(lambda: capture.doomed is not None)
        assert await write(client, b"2") == [ErrorCode.INVALID_TXN_STATE]
        await abort(control)
        assert committed_values(proxy) == []
        assert await write(client, b"3") == [0]


async def test_a_forged_producer_id_is_refused() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control)
        request = produce_request("", {("t", 0): transactional_batch("1", Producer(TXN_BITS | 5, 0), 0)})
        request.transactional_id = None
        assert errors_of(await client.call(request, 7)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


# -- what comes late


@pytest.mark.parametrize("home", ["kproxy", "broker"])
async def test_a_late_decision_does_not_touch_the_next_transaction(home: str) -> None:
    rules = (HomeRule("*", Home(home)),)
    async with stage(transactions_home=rules) as (proxy, control), await proxy.client() as client:
        late = (await begin(control)).owner
        await commit(control)
        owner = (await begin(control)).owner
        assert await write(client, b"1") == [0]
        assert await refused(control.abort("id", owner=late)) is ErrorCode.PRODUCER_FENCED
        assert await refused(control.commit("id", owner=late)) is ErrorCode.PRODUCER_FENCED
        no_prepare = ErrorCode.PRODUCER_FENCED if home == "kproxy" else ErrorCode.INVALID_REQUEST
        assert await refused(control.prepare("id", owner=late)) is no_prepare
        assert (await commit(control, owner=owner)).state == "CompleteCommit"


# -- batch ids and prepare


async def test_a_commit_is_repeated_by_its_batch_id() -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        await begin(control)
        assert await write(client, b"1") == [0]
        first = await commit(control, batch_id="b1")
        assert await commit(control, batch_id="b1") == first
        await begin(control)
        assert await write(client, b"2") == [0]
        assert (await commit(control, batch_id="b1")).state == "Ongoing"
        await commit(control, batch_id="b2")
        assert committed_values(proxy) == ["1", "2"]


@pytest.mark.parametrize("prepares", [False, True], ids=["open", "prepared"])
async def test_what_another_try_of_a_committed_batch_wrote_is_aborted(prepares: bool) -> None:
    """Its driver was killed before it knew of the commit: the next commit must not decide what the other try wrote."""
    async with stage() as (proxy, control), await proxy.client() as client:
        for value in (b"1", b"1 again"):
            owner = (await begin(control)).owner
            assert await write(client, value) == [0]
            if prepares:
                await control.prepare("id", owner=owner)
            await commit(control, batch_id="b1", owner=owner)
        with contextlib.suppress(TxnError):
            await commit(control, batch_id="b2", owner=owner)
        assert committed_values(proxy) == ["1"]


async def test_nor_does_it_where_the_broker_decides() -> None:
    async with (
        stage(transactions_home=(HomeRule("*", Home.BROKER),)) as (proxy, control),
        await proxy.client() as client,
    ):
        ends: list[bool] = []
        proxy.brokers.control(ApiKey.END_TXN, lambda call: ends.append(call.request.committed))
        for value in (b"1", b"1 again"):
            owner = (await begin(control)).owner
            assert await write(client, value) == [0]
            await commit(control, batch_id="b1", owner=owner)
        assert await refused(control.commit("id", batch_id="b2", owner=owner)) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert ends == [True, False]


async def test_a_batch_that_was_committed_is_listed_and_one_that_was_aborted_is_not() -> None:
    async with stage() as (_, control):
        await begin(control)
        assert (await commit(control, batch_id="b1")).batch_ids == ("b1",)
        await begin(control)
        await abort(control)
        assert (await control.describe("id")).batch_ids == ("b1",)
        await begin(control)
        await commit(control, batch_id="b2")
        assert (await control.describe("id")).batch_ids == ("b1", "b2")
        await begin(control, "another")
        assert (await control.describe("another")).batch_ids == ()


async def test_an_empty_commit_is_repeated_too() -> None:
    async with stage() as (_, control):
        await begin(control)
        await commit(control, batch_id="b1")
        assert (await commit(control, batch_id="b1")).state == "CompleteCommit"


@pytest.mark.parametrize("committed", [True, False])
async def test_what_was_prepared_waits_for_its_decision_though_another_begins_meanwhile(committed: bool) -> None:
    async with stage() as (proxy, control), await proxy.client() as client:
        owner = (await begin(control)).owner
        assert await write(client, b"1") == [0]
        with trio.fail_after(PATIENCE):
            prepared = await control.prepare("id", owner=owner)
        assert [(part.name, part.prepared) for part in prepared.parts] == [("", True)]
        assert prepared.state == "Empty"
        assert await write(client, b"plain") == [0]
        done = await (commit if committed else abort)(control)
        assert done.parts == ()
        verdicts = proxy.transactions.views
        producer = prepared.parts[0][1:3]
        assert verdicts.verdict(*producer).name == ("COMMITTED" if committed else "ABORTED")


async def test_members_that_prepared_nothing_are_unknown() -> None:
    async with stage() as (_, control):
        await begin(control)
        work = control.commit("id", members=["nobody"])
        assert await refused(work) is ErrorCode.INVALID_REQUEST
