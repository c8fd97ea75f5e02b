"""kproxy's own transactions where topics and brokers fail: partitions without writes, deleted topics, a lost log."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import pytest
import trio

from kproxy.codec.batch import iter_records
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.log_topic import TOPIC
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.faults.levers import Levers
from tests.contract.questions import create_on, in_sync
from tests.net.harness import Proxied, running
from tests.net.harness import eventually as soon
from tests.support.patience import PATIENCE_S, eventually
from verification.chaos.link import LinkLost
from verification.chaos.raw_transactions import FIRST, SECOND, Protocol, RawTransactions, Refused

_T = TypeVar("_T")
TIMEOUT_MS = 2_000
OPTIONS: dict[str, Any] = {
    "coordinator": Transactions,
    "transactions_home": (HomeRule("*", Home.KPROXY),),
    "transaction_state_log_num_partitions": 4,
    "upstream_request_timeout_ms": 20_000,
    "delivery_timeout_ms": 300_000,  # far longer than the test has patience: nothing else ends what waits
}
PROTOCOLS = {"first": FIRST, "second": SECOND}


@asynccontextmanager
async def kproxy(bootstrap: str, name: str) -> AsyncIterator[Proxied]:
    with trio.fail_after(4 * PATIENCE_S):
        async with running(bootstrap, instance_id=name, **OPTIONS) as proxy:
            await soon(lambda: proxy.stats.upstream.ready, PATIENCE_S)
            yield proxy


async def done(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Repeat a request until it succeeds; Refused if the error is not retriable, or after two minutes."""
    deadline = trio.current_time() + PATIENCE_S
    while True:
        try:
            return await ask()
        except Refused as refusal:
            if not refusal.error.retriable or trio.current_time() > deadline:
                raise
        except LinkLost:
            if trio.current_time() > deadline:
                raise
        await trio.sleep(0.1)


class Client(RawTransactions):
    """A producer of one of the protocols, which repeats what may be repeated."""

    def __init__(self, proxy: Proxied, name: str, protocol: Protocol) -> None:
        super().__init__(("127.0.0.1", proxy.port), name, name, protocol)

    async def put(self, value: str, *places: TopicPartition) -> None:
        """Write one record to each partition."""
        if not self.protocol.second:
            await done(lambda: self.add_partitions(places))
        for place in places:
            await done(partial(self.write, place, self.batch(place, [value])))

    async def finish(self, *, commit: bool = True) -> None:
        """End the transaction."""
        self.become(await done(lambda: self.end(self.identity, commit=commit)))

    async def continue_after_abort(self) -> None:
        """Abort the transaction; a producer whose identity is lost asks for another one."""
        try:
            await self.finish(commit=False)
        except Refused:
            await done(self.init)


async def decided(proxy: Proxied, topic: str, *values: str) -> None:
    """Wait until all of partition 0 is decided; a read_committed consumer of kproxy receives exactly these values."""

    def is_decided() -> bool:
        with ClusterClient(f"127.0.0.1:{proxy.port}") as client:
            return client.offset(topic, 0, isolation_level=1) == client.offset(topic, 0)

    def shown() -> bool:
        with ClusterClient(f"127.0.0.1:{proxy.port}") as client:
            try:
                data = client.read_all(topic, isolation_level=1)
            except RuntimeError:  # a response without records: the next one may have some
                return False
        found = [(record.value or b"").decode() for record in iter_records(data, max_decompressed_bytes=1 << 20)]
        assert set(found) <= set(values)
        return sorted(found) == sorted(values)

    await trio.to_thread.run_sync(eventually, is_decided)
    await trio.to_thread.run_sync(eventually, shown)


async def test_a_timeout_holds_while_partitions_take_no_writes(
    replicas: Levers, cluster: ClusterClient, unique: str
) -> None:
    """One has too few replicas in sync, the other one no leader."""
    healthy, few, alone = (f"{unique}-{name}" for name in ("healthy", "few", "alone"))

    def prepare() -> None:
        create_on(cluster, healthy, 1)
        create_on(cluster, few, 1, 2, config={"min.insync.replicas": "2"})
        create_on(cluster, alone, 2)

    def stall() -> None:
        replicas.kill(2)
        eventually(lambda: in_sync(cluster, few) == [1])
        eventually(lambda: cluster.metadata(alone).topics[0].partitions[0].leader_id == -1)

    await trio.to_thread.run_sync(prepare)
    async with kproxy(replicas.bootstrap, unique) as proxy:
        clients = {
            (stalled, name): Client(proxy, f"{unique}-{stalled}-{name}", protocol)
            for stalled in (few, alone)
            for name, protocol in PROTOCOLS.items()
        }
        for (stalled, _), client in clients.items():
            await done(partial(client.init, TIMEOUT_MS))
            await client.put("first", (healthy, 0), (stalled, 0))
            await client.finish()
        await trio.to_thread.run_sync(stall)
        try:
            async with trio.open_nursery() as nursery:
                for (stalled, _), client in clients.items():
                    nursery.start_soon(_write_and_wait, client, (healthy, 0), (stalled, 0))
                await decided(proxy, healthy, *["first"] * 4)
            for client in clients.values():
                with pytest.raises(Refused):
                    await client.finish()
                await client.continue_after_abort()
                await client.put("next", (healthy, 0))
                await client.finish()
            await decided(proxy, healthy, *["first"] * 4, *["next"] * 4)
        finally:
            for client in clients.values():
                client.close()
            await trio.to_thread.run_sync(replicas.start, 2)
            await trio.to_thread.run_sync(eventually, lambda: in_sync(cluster, few) == [1, 2])


async def _write_and_wait(client: Client, healthy: TopicPartition, stalled: TopicPartition) -> None:
    await client.put("lost", healthy)
    with suppress(Refused, LinkLost):
        if not client.protocol.second:
            await client.add_partitions([stalled])
        await client.write(stalled, client.batch(stalled, ["lost"]))


@pytest.fixture
def names(eager: Levers) -> Iterator[tuple[str, str]]:
    """Two topics of one partition."""
    name = f"kproxy-{uuid.uuid4().hex[:12]}"
    topics = f"{name}-one", f"{name}-two"
    with ClusterClient(eager.bootstrap) as client:
        for topic in topics:
            client.create_topic(topic)
    yield topics


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_an_id_is_not_stuck_after_a_topic_was_deleted(
    eager: Levers, tidy_client: ClusterClient, names: tuple[str, str], protocol: Protocol
) -> None:
    gone, stays = names
    async with kproxy(eager.bootstrap, gone) as proxy:
        same, new = Client(proxy, f"{gone}-same", protocol), Client(proxy, f"{gone}-new", protocol)
        for client in (same, new):
            await done(client.init)
            await client.put("first", (gone, 0))
            await client.finish()
        await trio.to_thread.run_sync(tidy_client.delete_topic, gone)
        await done(new.init)
        for client in (same, new):
            await client.put("next", (stays, 0))
            await client.finish()
            client.close()
        await decided(proxy, stays, "next", "next")


def recreate(levers: Levers, topic: str) -> None:
    with ClusterClient(levers.bootstrap) as client:
        client.delete_topic(topic)
        client.create_topic(topic, 4, config={"message.timestamp.type": "LogAppendTime"})


def truncate(levers: Levers, topic: str) -> None:
    levers.lose(topic)


@pytest.mark.parametrize("lose", [truncate, recreate])
async def test_a_log_that_loses_its_records_is_reported_and_blocks_no_id(
    eager: Levers, names: tuple[str, str], lose: Callable[[Levers, str], None]
) -> None:
    """What was undecided stays hidden; its partition waits for ``kproxy txn reject``, or 15 minutes."""
    one, two = names
    async with kproxy(eager.bootstrap, one) as proxy:
        clients = [Client(proxy, f"{one}-{name}", protocol) for name, protocol in PROTOCOLS.items()]
        for client in clients:
            await done(client.init)
            await client.put("lost", (one, 0))
        await trio.to_thread.run_sync(lose, eager, TOPIC)
        for client in clients:
            with pytest.raises(Refused):
                await client.finish()
            await client.continue_after_abort()
            await client.put("next", (two, 0))
            await client.finish()
            client.close()
        await decided(proxy, two, "next", "next")
        await soon(lambda: sum(proxy.stats.transactions.log_losses.values()) > 0, PATIENCE_S)
        with ClusterClient(f"127.0.0.1:{proxy.port}") as reader:
            answer = await trio.to_thread.run_sync(partial(reader.fetch, one, 0, 0, isolation_level=1))
        shown = answer.responses[0].partitions[0].records or b""
        assert list(iter_records(shown, max_decompressed_bytes=1 << 20)) == []
