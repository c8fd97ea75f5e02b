"""TxnOffsetCommit requests that arrive after their transaction has ended (KAFKA-17754)."""

from collections.abc import Awaitable

import pytest

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.txn.logged_group_offsets import unmirrored
from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import Cast, Client, Instance, stage


@pytest.fixture(autouse=True)
def no_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stays in the log alone."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


def committed(at: Instance, group: str = "g") -> dict[int, int]:
    """The group's offsets by partition, as the log says."""
    found = unmirrored(at.transactions.views, group).offsets
    return {partition: row.offset for (_, partition), row in found.items()}


async def refused(ask: Awaitable[None]) -> ErrorCode:
    with pytest.raises(TxnError) as caught:
        await ask
    return ErrorCode(caught.value.error_code)


async def started(cast: Cast, *, bumps: bool = False) -> tuple[Instance, Client]:
    at, client = await cast.instance(), Client("id", bumps)
    await client.init(at)
    return at, client


def over(client: Client, connection: int) -> Client:
    """The same producer, by another connection to the group's coordinator."""
    return Client(client.transactional_id, client.bumps, connection, client.producer)


async def test_late_offsets_over_an_older_connection_do_not_replace_the_next_transactions() -> None:
    """The client repeated the request over connection 2; the first arrives in the next transaction."""
    async with stage() as cast:
        a, client = await started(cast)
        await client.add_offsets(a, "g")
        again = over(client, 2)
        await again.commit_offsets(a, "g", 10)
        await client.end(a)
        await client.add_offsets(a, "g")
        await again.commit_offsets(a, "g", 20)
        assert await refused(client.commit_offsets(a, "g", 10)) is ErrorCode.NETWORK_EXCEPTION
        await client.end(a)
        assert committed(a) == {0: 20}


async def test_offsets_after_a_restart_of_kproxy_abort_as_partitions_do() -> None:
    async with stage() as cast:
        a, client = await started(cast)
        await client.add_offsets(a, "g")
        await a.kill()
        again = await cast.instance()
        assert await refused(client.commit_offsets(again, "g", 10)) is ErrorCode.TRANSACTION_ABORTABLE
        await client.end(again, committed=False)
        await client.offsets(again, "g", 20)
        await client.end(again)
        assert committed(again) == {0: 20}
