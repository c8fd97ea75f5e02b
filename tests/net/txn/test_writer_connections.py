"""The connections of a transactional id's writers; ``test_writer.py`` has what becomes of them under faults."""

import trio.testing

from kproxy.testing.fake_broker import open_fake_cluster
from tests.net.txn.writer_harness import connections


async def test_a_broker_has_one_connection_until_it_is_dropped() -> None:
    async with open_fake_cluster() as fake, connections(fake.bootstrap) as (_, pool):
        await pool.cluster.refresh()
        (broker,) = pool.cluster.map.brokers.values()
        assert pool.client(broker) is None
        found = [await pool.connect(broker) for _ in range(2)]
        assert found[0] is found[1] is pool.client(broker)
        with trio.testing.assert_no_checkpoints():
            assert await pool.connect(broker) is found[0]
        pool.drop(found[0])
        assert found[0].closed
        assert pool.client(broker) is None
