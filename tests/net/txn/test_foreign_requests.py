"""Requests with the identity of a transactional id that was given to another client, in both of kproxy's homes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog

from kproxy.codec.messages import ErrorCode
from kproxy.proxy.coordinator_rules import Home, HomeRule
from tests.net.harness import Proxied, proxied
from tests.net.txn.test_rpcs_whole import OPTIONS
from tests.net.txn.wire_producer import TV1, WireProducer

FOREIGN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
PLACE = ("t", 0)


@asynccontextmanager
async def stolen(home: Home) -> AsyncIterator[tuple[Proxied, WireProducer, WireProducer]]:
    """A producer with an open transaction, and another client that has learnt its identity."""
    options = {**OPTIONS, "transactions_home": (HomeRule("*", home),)}
    async with (
        proxied(**options) as proxy,
        await proxy.client(1, client_id="mine") as one,
        await proxy.client(1, client_id="other") as two,
    ):
        proxy.brokers.create_topic("t", 2)
        mine, thief = WireProducer(one, "id", TV1), WireProducer(two, "id", TV1)
        assert await mine.init() == 0
        assert await mine.add(PLACE) == [0]
        assert await mine.produce("a", PLACE) == [0]
        thief.producer, thief.sequences = mine.producer, dict(mine.sequences)
        yield proxy, mine, thief


HOMES = pytest.mark.parametrize("home", [Home.KPROXY, Home.BROKER_FENCED], ids=["kproxy", "broker-fenced"])


@HOMES
async def test_nothing_of_another_client_joins_the_transaction(home: Home) -> None:
    async with stolen(home) as (proxy, mine, thief):
        with structlog.testing.capture_logs() as lines:
            assert await thief.produce("stolen", PLACE) == [FOREIGN]
            assert await thief.add(("t", 1)) == [FOREIGN]
            assert await thief.add_offsets("g") == FOREIGN
        told = [line for line in lines if "given to another client" in str(line["event"])]
        assert [(line["client_id"], line["transactional_id"]) for line in told] == [("other", "id")] * 3
        assert proxy.stats.transactions.foreign == 3
        assert await mine.produce("b", PLACE) == [0]
        assert await mine.end() == 0
        assert thief.producer.producer_id == mine.producer.producer_id
        log = proxy.brokers.topics["t"].partitions[0].log
        assert b"stolen" not in log.read(0, 1 << 20, whole_first_batch=True)


@HOMES
async def test_without_a_login_it_may_be_ended_from_anywhere_as_flink_does(home: Home) -> None:
    async with stolen(home) as (proxy, _, other):
        assert await other.end() == 0
        assert proxy.stats.transactions.foreign == 0


@HOMES
async def test_who_takes_the_id_holds_it(home: Home) -> None:
    async with stolen(home) as (proxy, mine, other):
        assert await other.init() == 0
        assert await other.add(PLACE) == [0]
        assert await other.produce("c", PLACE) == [0]
        assert (await mine.produce("b", PLACE))[0] in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        assert await other.end() == 0
        assert proxy.stats.transactions.foreign == 0, "a producer that was replaced receives the error for that"
