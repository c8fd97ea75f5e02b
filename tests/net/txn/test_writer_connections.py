"""The connections of a transactional id's writers; ``test_writer.py`` has what becomes of them under faults."""

import trio.testing

from kproxy.budget import standalone
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.net.brokers.pipelined_client import reader_of, writer_of
from kproxy.testing.fake_broker import open_fake_cluster
from tests.net.harness import eventually
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


async def test_what_is_idle_is_closed_and_opened_again_when_it_is_needed() -> None:
    async with open_fake_cluster() as fake, connections(fake.bootstrap) as (_, pool):
        await pool.cluster.refresh()
        (broker,) = pool.cluster.map.brokers.values()
        assert not pool.is_open
        answers: list[MetadataResponse | None] = []
        busy = await pool.connect(broker)
        busy.send(writer_of(MetadataRequest(topics=[])), 1, reader_of(MetadataResponse, standalone), answers.append)
        pool.rest()
        assert pool.client(broker) is busy, "a request is in flight"
        await eventually(lambda: bool(answers))
        assert answers != [None]
        pool.rest()
        assert busy.closed
        assert not pool.is_open
        again = await pool.connect(broker)
        assert again is pool.client(broker) is not busy
        assert isinstance(await again.call(MetadataRequest(topics=[]), MetadataResponse), MetadataResponse)
