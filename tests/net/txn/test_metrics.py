"""What a coordinator tells the metrics of its transactions."""

from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.net.txn.log_topic import TOPIC
from kproxy.txn.ids import BLOCK_EPOCHS
from kproxy.txn.log_records import Entry
from tests.net.harness import eventually
from tests.net.txn.instances import Client, stage

P0 = ("t", 0)
TRANSACTIONS = 2 * BLOCK_EPOCHS


async def test_what_is_open_and_since_when_and_how_far_the_log_is_read() -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        stats = a.stats.transactions
        await client.init(a)
        await client.write(a, "1", P0)
        await eventually(lambda: stats.oldest_open is not None)
        assert (stats.open, stats.log_lag) == (1, 0)
        assert stats.log_load_seconds > 0
        await client.end(a)
        await eventually(lambda: stats.oldest_open is None)
        assert (stats.open, stats.commits, stats.claims) == (0, 1, {"won": 1})
        assert stats.appends.count == 1


async def test_prepared_parts_of_all_instances_are_counted() -> None:
    async with stage() as cast:
        a, client = await cast.instance("a"), Client("id")
        await client.init(a)
        b = await cast.instance("b")
        await client.write(a, "1", P0)
        owner = a.transactions.coordinator.log.known("id")
        assert owner is not None
        assert owner.transaction is not None
        assert owner.keeper.claim is not None
        await a.transactions.log.append_unfenced(
            Entry("id", TransactionPrepare(owner.keeper.claim.nonce, *owner.transaction.producer))
        )
        await eventually(lambda: b.stats.transactions.prepared == 1)


async def test_a_transaction_takes_two_appends_at_most_however_many_partitions_it_has() -> None:
    async with stage() as cast:
        cast.fake.cluster.create_topic("wide", 200)
        a, client = await cast.instance(), Client("id")

        def appends() -> int:
            return sum(len(cast.batches(TOPIC, at)) for at in range(len(cast.fake.cluster.topics[TOPIC].partitions)))

        await client.init(a)
        begun = appends()
        await client.write(a, "1", *(("wide", partition) for partition in range(200)))
        await client.end(a)
        assert appends() - begun <= 2
        behind = appends()
        for _ in range(TRANSACTIONS):
            await client.write(a, "1", P0)
            await client.end(a)
        assert appends() - behind <= 2 * TRANSACTIONS + TRANSACTIONS // BLOCK_EPOCHS + 1
        assert a.stats.transactions.appends.count == 1 + TRANSACTIONS
