"""Ten bugs that Kafka had, or has, with transactions, and the rule that keeps each out of kproxy."""

import pytest
import trio

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec.batch import Record, build_batch, read_header
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Call, CloseAfter
from kproxy.txn.ids import BLOCK_EPOCHS, LAST_EPOCH, TXN_BITS, Producer
from kproxy.txn.log_records import Entry, RecordKind
from kproxy.txn.requests import ClientBatch
from kproxy.txn.txn_error import TxnError
from kproxy.txn.verdict import Verdict
from kproxy.txn.writes import _Track
from tests.net.harness import eventually, proxied
from tests.net.txn.instances import TIMEOUT_MS, Client, Instance, stage
from tests.net.txn.takeover_scene import Gate, Point, log_of
from tests.net.txn.test_reading_whole import OPTIONS, Consumer, end_of, topic_id_of
from tests.net.txn.wire_producer import WireProducer

P0, P1 = ("t", 0), ("t", 1)
LAST_SEQUENCE = (1 << 31) - 1
VERSIONS = pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])


async def claimed(at: Instance, client: Producer, producer_id: int, first_epoch: int, epochs: int) -> None:
    """An earlier kproxy has claimed the id."""
    body = TransactionClaim(
        nonce=b"n" * 16,
        generation=1,
        producer_id=producer_id,
        first_epoch=first_epoch,
        epochs=epochs,
        client_producer_id=client.producer_id,
        client_epoch=client.epoch,
        transaction_timeout_ms=TIMEOUT_MS,
        instance_id="gone",
    )
    await at.transactions.log.read_to_end("id")
    await at.transactions.log.append(Entry("id", body), producer_id, first_epoch, 0)


@VERSIONS
async def test_1_a_late_end_decides_no_other_transaction(bumps: bool) -> None:
    """KAFKA-17754: an EndTxn held up in the network came when the next transaction was open, and ended that.

    Each transaction has an epoch of its own, which its decision names; the client's later connection, or with KIP-890
    its later epoch, shuts out what was sent before.
    """
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        late = Client("id", bumps, connection=1, producer=client.producer)
        client.connection = 2
        await client.end(a)
        await client.write(a, "2", P0)
        for _ in range(2):
            with pytest.raises(TxnError, match=r"NETWORK_EXCEPTION|PRODUCER_FENCED|INVALID_TXN_STATE"):
                await late.end(a, committed=False)
        if bumps:  # the same end again is answered as it was, and ends nothing either
            assert await late.end(a) == client.producer
        await client.write(a, "3", P0)
        assert cast.visible(a.transactions.views) == ["1"]
        await client.end(a)
        assert cast.visible(a.transactions.views) == ["1", "2", "3"]


async def test_2_a_late_batch_holds_no_reader_up() -> None:
    """KAFKA-12671, KAFKA-14402: a batch that came after its transaction's end began one that nobody ends.

    It carries its transaction's epoch, of which the log says that it has ended: no one waits for it.
    """
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        await client.init(a)
        await client.write(a, "1", P0)
        await client.end(a)
        gate = Gate(None, Point.LATE)
        gate.close(cast)

        async def send() -> None:
            with pytest.raises(TxnError):
                await client.write(a, "late", P0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with trio.fail_after(120):
                await gate.reached.wait()
            await a.kill()
            b, new = await cast.instance("b"), Client("id")
            await new.init(b)
            gate.go.set()
            await eventually(lambda: len(cast.batches(*P0)) == 2)
        assert cast.visible(b.transactions.views) == ["1"]
        assert b.transactions.views.bound(*P0) is None
        await new.write(b, "2", P0)
        await new.end(b)
        assert cast.visible(b.transactions.views) == ["1", "2"]
        assert b.transactions.views.bound(*P0) is None


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
async def test_3_no_transaction_stays_in_prepare(committed: bool) -> None:
    """KAFKA-9777, KAFKA-16352, KAFKA-19999: markers that could not be written left an id in Prepare for ever.

    There are none: the decision is one append, the next instance completes it from the log, and again does no harm.
    """
    async with stage() as cast:
        a, client = await cast.instance("a"), Client("id")
        await client.init(a)
        await client.write(a, "1", P0, P1)
        gate = Gate(RecordKind.DECISION, Point.UNACKNOWLEDGED)
        gate.close(cast)
        asking = Client("id", producer=client.producer)

        async def end() -> None:
            with pytest.raises(TxnError):
                await asking.end(a, committed=committed)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            with trio.fail_after(120):
                await gate.reached.wait()
            with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                await client.end(a, committed=committed)
            await a.kill()
        gate.go.set()
        again = await cast.instance("a")
        for _ in range(3):
            await client.end(again, committed=committed)
        assert cast.visible(again.transactions.views) == (["1"] if committed else [])
        await client.write(again, "2", P0)
        await client.end(again)
        assert cast.visible(again.transactions.views) == [*(["1"] if committed else []), "2"]


class Test4EpochsEnd:
    """KAFKA-9666, KAFKA-18660, KAFKA-19367, KAFKA-20090: at 32,767 an id was stuck, fenced its own, or wrapped.

    The last epoch is used of neither producer id: the client gets a fresh one before, kproxy takes its next generation.
    """

    @VERSIONS
    @pytest.mark.parametrize("epoch", [32_765, 32_766, 32_767])
    async def test_4_of_the_client(self, epoch: int, bumps: bool) -> None:
        async with stage() as cast:
            a, client = await cast.instance(), Client("id", bumps)
            await claimed(a, Producer(7, epoch), TXN_BITS | 7, 0, BLOCK_EPOCHS)
            seen = [Producer(7, epoch)]
            for n in range(4):
                seen.append(await client.init(a))
                await client.write(a, f"{n}", P0)
                seen.append(await client.end(a))
            assert cast.visible(a.transactions.views) == ["0", "1", "2", "3"]
            assert all(producer.epoch <= LAST_EPOCH for producer in seen[1:])
            assert len({producer.producer_id for producer in seen}) == 2
            assert (seen[1] == Producer(7, 32_766)) is (epoch == 32_765)

    @pytest.mark.parametrize("last", [32_765, 32_766, 32_767])
    async def test_4_of_kproxy(self, last: int) -> None:
        """The next block would end with this epoch."""
        async with stage() as cast:
            a, client = await cast.instance(), Client("id")
            await claimed(a, Producer(7, 3), TXN_BITS | 7, last - BLOCK_EPOCHS - 1, 2)
            await client.init(a)
            for n in range(BLOCK_EPOCHS + 2):
                await client.write(a, f"{n}", P0)
                await client.end(a)
            assert cast.visible(a.transactions.views) == [f"{n}" for n in range(BLOCK_EPOCHS + 2)]
            epochs = [read_header(data).producer_epoch for data in cast.batches(*P0)]
            fits = last <= LAST_EPOCH
            block = range(last - BLOCK_EPOCHS + 1, last + 1) if fits else range(BLOCK_EPOCHS)
            assert epochs == [*block, *((0, 1) if fits else (BLOCK_EPOCHS, BLOCK_EPOCHS + 1))]
            view = a.transactions.views.of("id")
            assert view is not None
            assert len(view.generations) == 2
            assert view.verdict(Producer(TXN_BITS | 7, 32_767)) is Verdict.ABORTED


async def test_5_nobody_is_served_from_a_log_that_is_not_read_to_its_end() -> None:
    """KAFKA-9307, KAFKA-15468, KAFKA-9144: a coordinator that was still loading answered from old state.

    After its own claim an instance reads to the log's end before it gives out an epoch, or a word.
    """
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
        await client.init(a)
        await client.write(a, "1", P0)
        reading, go = trio.Event(), trio.Event()

        async def hold(call: Call) -> None:
            """The end of the log, which is requested after the second claim."""
            if [entry.kind for entry in log_of(cast)].count(RecordKind.CLAIM) == 2:
                reading.set()
                await go.wait()

        control = cast.fake.cluster.control(ApiKey.LIST_OFFSETS, hold)
        new, done = Client("id"), trio.Event()

        async def init() -> None:
            await new.init(b)
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(init)
            with trio.fail_after(120):
                await reading.wait()
            assert not done.is_set()
            cast.fake.cluster.controls.remove(control)
            go.set()
        assert new.producer == Producer(client.producer.producer_id, client.producer.epoch + 1)
        with pytest.raises(TxnError, match=r"PRODUCER_FENCED|TRANSACTION_ABORTABLE"):
            await client.end(a)
        await new.write(b, "2", P0)
        await new.end(b)
        assert cast.visible(b.transactions.views) == ["2"]


async def test_6_a_time_out_fences() -> None:
    """KAFKA-6119: a transaction was aborted for its time-out, and its producer, not fenced, wrote on into the next.

    The time-out is a claim: what was open lies below it, and the producer continues only when it has aborted.
    """
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        await client.init(a)
        await client.write(a, "1", P0)
        owner = a.transactions.coordinator.log.known("id")
        assert owner is not None
        assert owner.transaction is not None
        owner.transaction.began_at -= TIMEOUT_MS
        await owner.time_out()
        assert a.stats.transactions.claims == {"won": 2}
        unaware = Client("id", producer=client.producer)
        for ask in (unaware.send(a, [unaware.batch("2", P0)]), client.add(a, P1), client.end(a)):
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await ask
        await client.abort_and_commit(a, "3", P0)
        assert cast.visible(a.transactions.views) == ["3"]


async def test_7_a_broker_that_forgot_the_producer_costs_nothing_that_was_acknowledged() -> None:
    """KAFKA-7190, KAFKA-8710, KAFKA-5793: retention took a producer's state, and clients began again with batches open.

    A transaction begins at sequence 0 under an epoch of its own, so that nothing has to be known of it; of a batch that
    was written twice the decision names the copy that counts. It is never begun again.
    """
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        await client.init(a)
        await client.write(a, "1", P0)
        await client.end(a)
        log = cast.fake.cluster.topics["t"].partitions[0].log
        log.producers.keep_before(0)
        await client.write(a, "2", P0)

        def lost(call: Call) -> CloseAfter | None:
            return CloseAfter() if call.request.topic_data[0].name == "t" else None

        def forget(call: Call) -> None:
            if lost(call):
                log.producers.keep_before(0)

        cast.fake.cluster.control(ApiKey.PRODUCE, lost, times=1)
        cast.fake.cluster.control(ApiKey.PRODUCE, forget)
        await client.write(a, "3", P0)
        await client.end(a)
        assert len(cast.batches(*P0)) == 4
        assert cast.visible(a.transactions.views) == ["1", "2", "3"]


async def test_8_sequences_wrap_inside_a_batch() -> None:
    """KAFKA-7692, KAFKA-7693: 2^31-1 is followed by 0, also in the middle of a batch, where it counted as a gap.

    Both counts wrap: the client's, which continues over its transactions, and that of kproxy's own epoch.
    """
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        await client.init(a)
        await client.add(a, P0)
        first = batch_of(client, LAST_SEQUENCE - 1, "1", "2", "3", "4")
        second = batch_of(client, 2, "5")
        owner = a.transactions.coordinator.log.known("id")
        assert owner is not None
        assert owner.transaction is not None
        # as if two thousand million records had gone before: a broker takes the first of a producer at any sequence
        owner.transaction.writer._writes._tracks[P0] = _Track(next_sequence=LAST_SEQUENCE - 1)
        written = await client.send(a, [first])
        assert await client.send(a, [batch_of(client, LAST_SEQUENCE - 1, "1", "2", "3", "4")]) == written
        assert [row.error_code for row in await client.send(a, [second])] == [0]
        await client.end(a)
        assert [read_header(data).base_sequence for data in cast.batches(*P0)] == [LAST_SEQUENCE - 1, 2]
        assert cast.visible(a.transactions.views) == ["1", "2", "3", "4", "5"]


def batch_of(client: Client, sequence: int, *values: str) -> ClientBatch:
    """A batch with a sequence of the client's."""
    rows = [Record(n, 0, None, value.encode()) for n, value in enumerate(values)]
    data = build_batch(
        rows,
        producer_id=client.producer.producer_id,
        producer_epoch=client.producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    return ClientBatch(*P0, memoryview(data), len(values), sequence)


async def test_9_a_duplicate_is_a_success_and_faults_that_pass_stay_inside() -> None:
    """KAFKA-14034: an error that was not retriable, or the wrong one, made a client send as new what was written.

    The client's repeated batch is answered with the first one's offset; what brokers say in passing it never hears.
    """
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        await client.init(a)
        await client.add(a, P0)
        batch = client.batch("1", P0)

        def lost(call: Call) -> CloseAfter | None:
            return CloseAfter() if call.request.topic_data[0].name == "t" else None

        cast.fake.cluster.control(ApiKey.PRODUCE, lost, times=2)
        (row,) = await client.send(a, [batch])
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)
        again = ClientBatch(*P0, memoryview(bytearray(batch.batch)), 1, batch.base_sequence)
        assert await client.send(a, [again]) == [row]
        await client.end(a)
        assert len(cast.batches(*P0)) == 1
        assert cast.visible(a.transactions.views) == ["1"]


async def test_10_nothing_is_seen_before_its_decision_is_applied() -> None:
    """KAFKA-17507: the last stable offset moved when the end was asked for, before the state said so.

    It comes from decisions that were read in the log: one that is in flight moves nothing, one that is there does.
    """
    async with proxied(**OPTIONS) as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client() as writing, await proxy.client() as reading:
            producer = WireProducer(writing, "id")
            assert await producer.init() == 0
            assert await producer.add(P0) == [0]
            assert await producer.produce("1", P0) == [0]
            consumer = Consumer(reading, 12, "t", await topic_id_of(reading, "t"))
            gate = Gate(RecordKind.DECISION, Point.LATE)
            proxy.brokers.control(ApiKey.PRODUCE, gate.control, times=1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.end)
                with trio.fail_after(120):
                    await gate.reached.wait()
                assert await end_of(reading, "t", 7, 1) == 0
                assert not await consumer.poll(0)
                gate.go.set()
            assert await end_of(reading, "t", 7, 1) == 1
            assert await consumer.read() == ["1"]
            await eventually(lambda: proxy.stats.transactions.open == 0)
