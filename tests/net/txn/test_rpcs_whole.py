"""Transactional clients in frames through kproxy, with its coordinator, in front of a fake cluster."""

from collections.abc import Mapping
from typing import Any

import pytest

from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.txn.ids import Producer, is_transactional_producer_id
from kproxy.txn.verdict import Verdict
from tests.net.harness import Proxied, fetch, metadata, proxied
from tests.net.txn.test_waits import values
from tests.net.txn.wire_producer import TV1, TV2, WireProducer, produce_request

OPTIONS: dict[str, Any] = {
    "coordinator": Transactions,
    "transactions_home": (HomeRule("theirs-*", Home.BROKER), HomeRule("*", Home.KPROXY)),
    "transaction_state_log_num_partitions": 4,
}
P0, P1 = ("t", 0), ("t", 1)


def committed_values(proxy: Proxied, partition: int = 0) -> list[str]:
    """The values in a partition whose transactions are committed, by the log as this instance has read it."""
    log = proxy.brokers.topics["t"].partitions[partition].log
    data, values = log.read(log.start_offset, 1 << 30, whole_first_batch=True), []
    at = 0
    while at < len(data):
        header = read_header(data, at)
        batch = data[at : at + header.size]
        at += header.size
        assert is_transactional_producer_id(header.producer_id)
        assert not header.is_transactional
        producer = Producer(header.producer_id, header.producer_epoch)
        if proxy.transactions.views.verdict(*producer) is Verdict.COMMITTED:
            values += [(record.value or b"").decode() for record in iter_records(batch, max_decompressed_bytes=1 << 20)]
    return values


@pytest.mark.parametrize("versions", [TV1, TV2], ids=["TV1", "TV2"])
async def test_a_client_commits_and_aborts(versions: Mapping[int, int]) -> None:
    async with proxied(3, **OPTIONS) as proxy:
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client(2) as client:
            producer = WireProducer(client, "id", versions)
            assert await producer.init() == 0
            for value, committed in (("1", True), ("2", False), ("3", True)):
                if versions is TV1:
                    assert await producer.add(P0, P1) == [0, 0]
                assert await producer.produce(value, P0, P1) == [0, 0]
                assert await producer.end(committed=committed) == 0
            assert committed_values(proxy) == committed_values(proxy, 1) == ["1", "3"]


@pytest.mark.parametrize("home", [Home.KPROXY, Home.BROKER_FENCED])
async def test_a_late_batch_of_an_aborted_transaction_takes_the_place_of_no_other(home: Home) -> None:
    """It arrives for the first time in the next transaction, whose client has given its sequence to another record."""
    options = {**OPTIONS, "transactions_home": (HomeRule("*", home),)}
    async with proxied(**options) as proxy:
        proxy.brokers.create_topic("t", 1)
        async with await proxy.client() as client:
            producer = WireProducer(client, "id", TV1)
            assert await producer.init() == 0
            assert await producer.add(P0) == [0]
            assert await producer.produce("1", P0) == [0]
            late = producer.batches("late", P0)  # its client gives it up unsent, as far as it knows
            assert await producer.end(committed=False) == 0
            producer.sequences[P0] -= 1
            assert await producer.add(P0) == [0]
            answer = await producer.call(produce_request("id", late))
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert await producer.produce("2", P0) == [ErrorCode.INVALID_TXN_STATE]
            assert await producer.end() != 0
            assert await producer.end(committed=False) == 0
            assert await producer.add(P0) == [0]
            assert await producer.produce("3", P0) == [0]
            assert await producer.end() == 0
            assert values(await client.call(fetch("t", isolation_level=1), 12)) == [b"3"]


@pytest.mark.parametrize("versions", [TV1, TV2], ids=["TV1", "TV2"])
async def test_an_empty_transaction_ends_well(versions: Mapping[int, int]) -> None:
    async with proxied(**OPTIONS) as proxy, await proxy.client() as client:
        producer = WireProducer(client, "id", versions)
        assert await producer.init() == 0
        for committed in (True, False, True):
            assert await producer.end(committed=committed) == 0 or (versions is TV1 and not committed)


@pytest.mark.parametrize("versions", [TV1, TV2], ids=["TV1", "TV2"])
async def test_the_first_of_two_producers_is_fenced_and_hears_so_in_its_version(versions: Mapping[int, int]) -> None:
    async with proxied(**OPTIONS) as proxy:
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client() as one, await proxy.client() as two:
            first, second = WireProducer(one, "id", versions), WireProducer(two, "id", versions)
            assert await first.init() == 0
            if versions is TV1:
                assert await first.add(P0) == [0]
            assert await first.produce("lost", P0) == [0]
            assert await second.init() == 0
            assert await first.produce("lost", P0) == [ErrorCode.INVALID_PRODUCER_EPOCH]
            assert await first.end() == ErrorCode.PRODUCER_FENCED
            if versions is TV1:
                assert await second.add(P0) == [0]
            assert await second.produce("kept", P0) == [0]
            assert await second.end() == 0
            assert committed_values(proxy) == ["kept"]


async def test_a_batch_that_is_sent_again_is_written_once() -> None:
    async with proxied(**OPTIONS) as proxy:
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client() as client:
            producer = WireProducer(client, "id", TV1)
            assert await producer.init() == 0
            assert await producer.add(P0) == [0]
            batches = producer.batches("1", P0)
            for _ in range(2):
                answer = await producer.call(produce_request("id", batches))
                (row,) = answer.responses[0].partition_responses
                assert (row.error_code, row.base_offset) == (0, 0)
            assert await producer.end() == 0
            assert committed_values(proxy) == ["1"]


async def test_a_partition_that_was_not_added_takes_no_batch() -> None:
    async with proxied(**OPTIONS) as proxy:
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client() as client:
            producer = WireProducer(client, "id", TV1)
            assert await producer.init() == 0
            assert await producer.add(P0) == [0]
            assert await producer.produce("1", P1) == [ErrorCode.INVALID_TXN_STATE]


async def test_offsets_go_with_the_transaction() -> None:
    async with proxied(**OPTIONS) as proxy:
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client() as client:
            for versions in (TV1, TV2):
                producer = WireProducer(client, "id", versions)
                assert await producer.init() == 0
                if versions is TV1:
                    assert await producer.add_offsets("g") == 0
                assert await producer.commit_offsets("g", [("t", 0, 42), ("t", 1, 43)]) == [0, 0]
                assert await producer.end() == 0


async def test_compacted_topics_are_refused() -> None:
    async with proxied(**OPTIONS) as proxy:
        proxy.brokers.create_topic("c", 1, config={"cleanup.policy": "compact"})
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client() as client:
            producer = WireProducer(client, "id", TV1)
            assert await producer.init() == 0
            skipped = ErrorCode.OPERATION_NOT_ATTEMPTED
            assert await producer.add(P0, ("c", 0)) == [skipped, ErrorCode.POLICY_VIOLATION]


async def test_a_client_that_reconnects_continues() -> None:
    """TV1 clients keep their producer id and epoch over connections."""
    async with proxied(**OPTIONS) as proxy:
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client() as client:
            producer = WireProducer(client, "id", TV1)
            assert await producer.init() == 0
            assert await producer.add(P0) == [0]
            request = produce_request("id", producer.batches("1", P0))
            await client.send(request, 9)  # it does not wait for the response: whether it is written nobody knows
        async with await proxy.client() as client:
            producer.client = client
            (row,) = (await producer.call(request)).responses[0].partition_responses
            assert row.error_code == 0
            assert await producer.produce("2", P0) == [0]
            assert await producer.end() == 0
            assert committed_values(proxy) == ["1", "2"]


async def test_two_connections_may_take_turns() -> None:
    """A client that has lost its coordinator may continue over a connection that is older than the lost one."""
    async with proxied(2, **OPTIONS) as proxy:
        proxy.brokers.create_topic("t", 2)
        async with await proxy.client(1) as old, await proxy.client(2) as new:
            await old.call(metadata(), 4)
            producer = WireProducer(new, "id", TV1)
            assert await producer.init() == 0
            assert await producer.add(P0) == [0]
            producer.client = old
            with pytest.raises(EOFError):
                await producer.end()
        async with await proxy.client(1) as again:
            producer.client = again
            assert await producer.produce("1", P0) == [0]
            assert await producer.end() == 0
            assert committed_values(proxy) == ["1"]
