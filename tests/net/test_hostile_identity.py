"""Clients that pretend to be kproxy: its producer ids, markers, and its own topics."""

from itertools import count

import pytest

from kproxy.codec._generated.create_topics import CreateTopicsRequest, CreateTopicsRequestCreatableTopic
from kproxy.codec._generated.delete_topics import DeleteTopicsRequest
from kproxy.codec.batch import read_header
from kproxy.codec.batch_header import assemble
from kproxy.codec.messages import ErrorCode
from kproxy.dedup.producer_ids import KPROXY_BIT
from tests.net.harness import errors_of, fetch, produce, values_in
from tests.net.witness import GOOD, request, witnessed

HEADER, PAYLOAD = read_header(GOOD), GOOD[61:]
OWN = "__kproxy_producer_state"
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

forged = count(KPROXY_BIT | 1)


def stamped(producer_id: int, **more: int) -> bytes:
    return bytes(assemble(HEADER._replace(producer_id=producer_id, producer_epoch=0, base_sequence=0, **more), PAYLOAD))


@pytest.mark.parametrize("idempotence", [True, False])
@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("transactional_id", [None, "tx"])
@pytest.mark.parametrize("place", [0, 1])
async def test_an_id_that_only_kproxy_assigns_is_refused_wherever_it_stands(
    version: int, transactional_id: str | None, place: int, idempotence: bool
) -> None:
    sets = [stamped(5), stamped(6)]
    sets[place] = stamped(next(forged))
    async with witnessed(idempotence_enable=idempotence) as proxy, await proxy.client(1) as client:
        answer = await client.call(request(*sets, transactional_id=transactional_id), version)
        assert errors_of(answer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert values_in(proxy.brokers, "t", 0) == values_in(proxy.brokers, "t", 1) == []
        assert proxy.stats.refused.refusals == {"forged_producer_id": 1}


async def test_a_forged_id_beside_a_batch_without_one_or_after_another_batch_is_not_written() -> None:
    mine = stamped(next(forged))
    async with witnessed() as proxy, await proxy.client(1) as client:
        assert errors_of(await client.call(request(GOOD, mine), 8)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert errors_of(await client.call(request(mine, GOOD), 8)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert errors_of(await client.call(request(GOOD + mine), 8)) == [ErrorCode.INVALID_RECORD]
        assert errors_of(await client.call(request(stamped(7) + mine), 8)) == [ErrorCode.INVALID_RECORD]
        assert values_in(proxy.brokers, "t", 0) == values_in(proxy.brokers, "t", 1) == []


@pytest.mark.parametrize("attributes", [0x20, 0x30])
async def test_control_batches_of_clients_are_refused(attributes: int) -> None:
    async with witnessed() as proxy, await proxy.client(1) as client:
        for data in (assemble(HEADER._replace(attributes=attributes), PAYLOAD), stamped(5, attributes=attributes)):
            (error,) = errors_of(await client.call(request(bytes(data)), 8))
            assert error in (ErrorCode.INVALID_RECORD, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        assert values_in(proxy.brokers, "t") == []


async def test_kproxys_own_topics_may_be_read_and_nothing_else() -> None:
    async with witnessed() as proxy:
        proxy.brokers.create_topic(OWN)
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(produce(OWN, b"forged"), 8)) == [REFUSED]
            answer = await client.call(DeleteTopicsRequest(topic_names=[OWN, "t2"]), 3)
            assert {row.name: row.error_code for row in answer.responses}[OWN] == REFUSED
            topic = CreateTopicsRequestCreatableTopic(name="__kproxy_x", num_partitions=1, replication_factor=1)
            answer = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 4)
            assert answer.topics[0].error_code == REFUSED
            assert (await client.call(fetch(OWN), 11)).responses[0].partitions[0].error_code == 0
        assert values_in(proxy.brokers, OWN) == []
        assert "__kproxy_x" not in proxy.brokers.topics
