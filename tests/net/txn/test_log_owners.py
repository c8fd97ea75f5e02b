"""The ids of an instance: when it takes over one that another instance coordinated."""

import pytest
import trio

from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import TIMEOUT_MS, Client, stage

P0 = ("t", 0)


@pytest.mark.idle_clock
async def test_an_id_is_taken_over_after_a_transactions_time_and_ten_seconds_without_a_record() -> None:
    """The other kproxy may be alive for that long, and still decide."""
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
        await client.init(a, TIMEOUT_MS)
        await client.write(a, "1", P0)
        await client.end(a)
        await a.kill()
        for wait_s in (0, TIMEOUT_MS / 1000 + 9):
            await trio.sleep(wait_s)
            with pytest.raises(TxnError, match="NOT_COORDINATOR"):
                await client.add(b, P0)
        await trio.sleep(2)
        await client.write(b, "2", P0)
        await client.end(b)
        assert cast.visible(b.transactions.views) == ["1", "2"]
