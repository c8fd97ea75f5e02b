"""Appender and follower together while brokers do all they may do: each append once, at the returned offset."""

from random import Random

import pytest
import trio

from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey
from kproxy.net.txn.log_appender import LogAppender
from kproxy.net.txn.log_topic import TOPIC
from kproxy.testing.fake_broker import Close, CloseAfter
from tests.net.txn.log_harness import PATIENCE, PID, Following, followed

_PARTITIONS = 4
_APPENDS = 15
_BROKERS = (1, 2, 3)


async def _append(log: Following, appender: LogAppender, number: int, told: dict[tuple[int, int], bytes]) -> None:
    partition = number % _PARTITIONS
    for sequence in range(_APPENDS):
        value = b"%d/%d" % (number, sequence)
        offset = await appender.append(partition, PID + number, 0, sequence, [(b"k", value)])
        assert (partition, offset) not in told
        told[partition, offset] = value
        await log.follower.reached(partition, offset + 1)


async def _harm(log: Following, random: Random) -> None:
    """Moves leaders, cuts connections, deletes records, stops and starts brokers."""
    while True:
        await trio.sleep(random.uniform(0, 0.02))
        partition = random.randrange(_PARTITIONS)
        part = log.brokers.topics[TOPIC].partitions[partition]
        match random.randrange(5):
            case 0:
                log.brokers.move_leader(TOPIC, partition, random.choice(part.isr))
            case 1 | 2:
                key = random.choice([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS])
                log.brokers.control(key, lambda _: random.choice([Close(), CloseAfter()]), times=random.randint(1, 3))
            case 3:
                part.log.delete_before(random.randint(part.log.start_offset, part.high_watermark))
            case 4:
                broker = random.choice(_BROKERS)
                await log.fake.stop_broker(broker)
                await trio.sleep(random.uniform(0, 0.05))
                await log.fake.start_broker(broker)


def _check(log: Following, partition: int, told: dict[tuple[int, int], bytes]) -> None:
    stored = log.brokers.topics[TOPIC].partitions[partition].log
    data = stored.read(0, 1 << 30, whole_first_batch=True)
    rows = {row.offset: row.value for row in iter_records(data, max_decompressed_bytes=1 << 20)}
    read = {row.offset: row.value for row in log.sink.records[partition]}
    assert {offset: value for offset, value in read.items() if offset in rows} == rows
    acknowledged = {offset: value for (index, offset), value in told.items() if index == partition}
    assert {offset: acknowledged[offset] for offset in read} == read, "nothing twice, nothing that was not told"
    assert {offset for offset in acknowledged if offset >= stored.start_offset} <= set(read)


@pytest.mark.parametrize("seed", range(6))
async def test_each_append_is_there_once_and_read_in_order(seed: int) -> None:
    told: dict[tuple[int, int], bytes] = {}
    async with followed(3) as log:
        appender = LogAppender(log.cluster, log.config, TOPIC, deadline_s=4 * PATIENCE)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_harm, log, Random(seed))
                with trio.fail_after(6 * PATIENCE):
                    async with trio.open_nursery() as writers:
                        for number in range(2 * _PARTITIONS):
                            writers.start_soon(_append, log, appender, number, told)
                nursery.cancel_scope.cancel()
            for broker in _BROKERS:
                if not log.brokers.brokers[broker].alive:
                    await log.fake.start_broker(broker)
            assert len(told) == 2 * _PARTITIONS * _APPENDS
            for partition in range(_PARTITIONS):
                await log.at_end(partition)
                _check(log, partition, told)
        finally:
            appender.close()
