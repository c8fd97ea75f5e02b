"""Transactional clients in frames through kproxy, with its coordinator, in front of a fake cluster."""

from collections.abc import Mapping
from typing import Any

import pytest

from kproxy.codec.batch import iter_records, read_header
from kproxy.net.txn.service import Transactions
from kproxy.proxy.homes import Home, HomeRule
from kproxy.txn.ids import Producer, is_transactional_producer_id
from kproxy.txn.verdict import Verdict
from tests.net.harness import Proxied, proxied
from tests.net.txn.wire_producer import TV1, TV2, WireProducer

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
