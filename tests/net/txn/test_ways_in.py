"""Clients that write in transactions or not at all, by their client.id."""

from kproxy.codec.messages import ErrorCode
from tests.net.txn.test_control_service import TIMEOUT_MS, commit, stage, write
from tests.net.txn.test_rpcs_whole import committed_values

_CLIENT = "kproxy-txn-loader"


async def test_without_an_open_transaction_nothing_is_written() -> None:
    async with stage() as (proxy, control), await proxy.client(client_id=_CLIENT) as client:
        assert await write(client, b"before") == [ErrorCode.INVALID_TXN_STATE]
        await control.begin(client_id=_CLIENT, transactional_id="id", timeout_ms=TIMEOUT_MS)
        assert await write(client, b"1") == [0]
        assert await write(client, b"2") == [0]
        await commit(control)
        # As after a restart: the client goes on, and kproxy knows of no transaction.
        assert await write(client, b"behind") == [ErrorCode.INVALID_TXN_STATE]
        assert committed_values(proxy) == ["1", "2"]
        assert proxy.brokers.topics["t"].partitions[0].log.end_offset == 2


async def test_the_rules_of_the_configuration_hold_for_them_too() -> None:
    async with stage(per_request=("kproxy-txn-*",)) as (proxy, _), await proxy.client(client_id=_CLIENT) as client:
        assert await write(client, b"1") == [0]
        assert committed_values(proxy) == ["1"]
