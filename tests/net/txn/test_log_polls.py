"""A log topic that is deleted and not restored: what was read stays, and later kproxy continues with a new one."""

import pytest
import trio

from kproxy.net.txn.log_topic import TOPIC
from tests.net.txn.instances import TIMEOUT_MS, Client, stage

pytestmark = pytest.mark.idle_clock

LONGEST = TIMEOUT_MS / 1000


@pytest.mark.parametrize("unknown", ["reject", "wait"])
async def test_a_log_that_was_deleted_is_created_again_unless_readers_are_to_wait(unknown: str) -> None:
    slow = {"retry_backoff_ms": 5_000, "retry_backoff_max_ms": 5_000}
    async with stage(transaction_max_timeout_ms=TIMEOUT_MS, unknown_producer_ids=unknown, **slow) as cast:
        cast.fake.cluster.create_topic(TOPIC, 5, 1, config={"message.timestamp.type": "LogAppendTime"})
        a, client = await cast.instance(), Client("id")
        await client.init(a)
        await client.write(a, "1", ("t", 0))
        await client.end(a)
        cast.fake.cluster.delete_topic(TOPIC)
        await trio.sleep(LONGEST)
        assert TOPIC not in cast.fake.cluster.topics
        assert cast.visible(a.transactions.views) == ["1"], "it may be restored, or what was committed be saved"
        await trio.sleep(LONGEST)
        assert (TOPIC in cast.fake.cluster.topics) is (unknown == "reject")
        if unknown == "wait":
            assert cast.visible(a.transactions.views) == ["1"]
            return
        assert len(cast.fake.cluster.topics[TOPIC].partitions) == 5, "as before, not as planned"
        assert a.transactions.log.losses["recreated"] >= 1
        await client.init(a)
        await client.write(a, "2", ("t", 1))
        await client.end(a)
        assert cast.visible(a.transactions.views, partition=1) == ["2"]
