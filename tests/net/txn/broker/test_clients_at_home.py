"""Clients that know nothing of transactions, in frames through kproxy, whose transactions the broker decides."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.testing.fake_broker import CloseAfter, Edit
from tests.net.harness import Proxied, proxied
from tests.net.txn.broker.native_stage import values
from tests.net.txn.broker.test_managed_owner import refuse
from tests.net.txn.test_applications_whole import OPTIONS, REWIND, RULES, commit, fetched, write

AT_HOME: dict[str, Any] = {**OPTIONS, "transactions_home": (HomeRule("*", Home.BROKER),)}


@asynccontextmanager
async def stage(**options: Any) -> AsyncIterator[Proxied]:
    async with proxied(**AT_HOME, **options) as proxy:
        proxy.brokers.create_topic("t", 2)
        proxy.brokers.create_topic("in", 1)
        yield proxy


async def test_what_is_written_between_two_offset_commits_shows_with_the_second() -> None:
    async with (
        stage(on_offset_commit=RULES) as proxy,
        await proxy.client(client_id="out-1") as out,
        await proxy.client() as reader,
    ):
        assert await commit(reader, 0) == REWIND
        for at in (1, 2):
            assert await write(out, b"%d" % at) == [0]
            assert await write(out, b"%d" % at, partition=1) == [0]
            assert len(values(proxy.brokers)) == at - 1
            assert await commit(reader, at) == 0
            assert values(proxy.brokers) == values(proxy.brokers, 1) == [str(one) for one in range(1, at + 1)]
            assert await fetched(reader) == at


async def test_offsets_are_returned_when_none_of_them_is_being_decided() -> None:
    async with (
        stage(on_offset_commit=RULES) as proxy,
        await proxy.client(client_id="out-1") as out,
        await proxy.client() as reader,
    ):
        assert await commit(reader, 0) == REWIND
        assert await write(out, b"1") == [0]
        proxy.brokers.hold_markers()
        assert await commit(reader, 1) == 0
        asked: list[int] = []

        def release(call: object) -> None:
            asked.append(1)
            if len(asked) == 2:
                proxy.brokers.release_markers()

        proxy.brokers.control(ApiKey.OFFSET_FETCH, release)
        assert await fetched(reader) == 1
        assert len(asked) > 2


async def test_a_lost_answer_to_the_end_is_one_commit() -> None:
    async with (
        stage(on_offset_commit=RULES) as proxy,
        await proxy.client(client_id="out-1") as out,
        await proxy.client() as reader,
    ):
        assert await commit(reader, 0) == REWIND
        assert await write(out, b"1") == [0]
        lost = proxy.brokers.control(ApiKey.END_TXN, lambda call: CloseAfter(), times=1)
        assert await commit(reader, 1) == 0
        assert (lost.hits, values(proxy.brokers), await fetched(reader)) == (1, ["1"], 1)


async def test_a_refused_batch_makes_the_application_begin_again() -> None:
    async with (
        stage(on_offset_commit=RULES) as proxy,
        await proxy.client(client_id="out-1") as out,
        await proxy.client() as reader,
    ):
        assert await commit(reader, 0) == REWIND
        assert await write(out, b"1") == [0]
        refused = Edit(refuse)
        proxy.brokers.control(ApiKey.PRODUCE, lambda call: refused, times=1)
        assert await write(out, b"2") != [0]
        assert await commit(reader, 2) == REWIND
        assert await fetched(reader) == -1
        assert await write(out, b"3") == [0]
        assert await commit(reader, 3) == 0
        assert values(proxy.brokers) == ["3"]


@pytest.mark.parametrize("lost", [False, True], ids=["answered", "answer lost"])
async def test_each_request_is_a_transaction(lost: bool) -> None:
    async with stage(per_request=("one-*",)) as proxy, await proxy.client(client_id="one-1") as client:
        if lost:
            proxy.brokers.control(ApiKey.END_TXN, lambda call: CloseAfter(), times=1)
        for value in (b"1", b"2"):
            assert await write(client, value) == [ErrorCode.NONE]
        assert values(proxy.brokers) == ["1", "2"]
        ids = list(proxy.brokers.transactional_ids)
        assert ids == ["per-request-box-one-1"]
