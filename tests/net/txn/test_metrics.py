"""What a coordinator tells the metrics of its transactions."""

from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.txn.records import Entry
from tests.net.harness import eventually
from tests.net.txn.instances import Client, stage

P0 = ("t", 0)


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
        owner = a.transactions.coordinator.of("id")
        assert owner is not None
        assert owner.transaction is not None
        assert owner.keeper.claim is not None
        await a.transactions.log.append_unfenced(
            Entry("id", TransactionPrepare(owner.keeper.claim.nonce, *owner.transaction.producer))
        )
        await eventually(lambda: b.stats.transactions.prepared == 1)
