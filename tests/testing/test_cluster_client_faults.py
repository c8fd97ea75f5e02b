"""The blocking test client at a broker that ends its connections: it repeats questions, and sends a batch once."""

import pytest
import trio

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker import Close, open_fake_cluster


@pytest.mark.parametrize(("api", "times"), [(ApiKey.FETCH, 2), (ApiKey.LIST_OFFSETS, 2), (ApiKey.API_VERSIONS, 1)])
async def test_a_question_whose_connection_ends_is_asked_again(api: ApiKey, times: int) -> None:
    batch = build_batch([Record(0, 1000, None, b"a", ())])

    def write_and_read() -> bytes:
        with ClusterClient(fake.bootstrap) as client:
            client.produce("t", 0, batch)
            return client.read_all("t")

    async with open_fake_cluster() as fake:
        fake.cluster.create_topic("t")
        control = fake.cluster.control(api, lambda _: Close(), times=times)
        assert len(await trio.to_thread.run_sync(write_and_read)) == len(batch)
        assert control.hits == times


async def test_what_is_deleted_while_it_is_read_is_left_out() -> None:
    first, second = (build_batch([Record(0, 1000, None, value, ())]) for value in (b"a", b"bb"))

    def write_and_read() -> bytes:
        with ClusterClient(fake.bootstrap) as client:
            for batch in first, second:
                client.produce("t", 0, batch)
            return client.read_all("t")

    async with open_fake_cluster() as fake:
        fake.cluster.create_topic("t")
        log = fake.cluster.topics["t"].partitions[0].log
        fake.cluster.control(ApiKey.FETCH, lambda _: log.delete_before(1), times=1)
        assert len(await trio.to_thread.run_sync(write_and_read)) == len(second)


async def test_a_batch_whose_connection_ends_is_not_sent_again() -> None:
    def write() -> None:
        with ClusterClient(fake.bootstrap) as client:
            client.produce("t", 0, build_batch([Record(0, 1000, None, b"a", ())]))

    async with open_fake_cluster() as fake:
        fake.cluster.create_topic("t")
        control = fake.cluster.control(ApiKey.PRODUCE, lambda _: Close())
        with pytest.raises(ConnectionError):
            await trio.to_thread.run_sync(write)
        assert control.hits == 1
