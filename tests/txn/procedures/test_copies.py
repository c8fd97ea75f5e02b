"""Batches that were sent more than once, whose copies a commit has to name: how many are kept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Call, CloseAfter
from kproxy.txn.procedures import transaction
from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import Cast, Client, Instance, stage
from tests.net.txn.member_scene import MemberGroup, refused

P0 = ("t", 0)


@asynccontextmanager
async def started() -> AsyncIterator[tuple[Cast, Instance]]:
    async with stage() as cast:
        yield cast, await cast.instance()


def lose_an_answer(cast: Cast) -> None:
    """The next batch is written, and sent again."""

    def once(call: Call) -> CloseAfter | None:
        return CloseAfter() if any(topic.name == "t" for topic in call.request.topic_data) else None

    cast.fake.cluster.control(ApiKey.PRODUCE, once, times=1)


async def test_a_transaction_that_repeated_a_batch_is_aborted_where_too_many_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with started() as (cast, at):
        client = Client("id")
        await client.init(at)
        lose_an_answer(cast)
        await client.write(at, "1", P0)
        await client.end(at)
        views = at.transactions.views
        assert views.copies_bytes() > 0
        monkeypatch.setattr(transaction, "_MOST_COPIES_BYTES", views.copies_bytes())
        lose_an_answer(cast)
        await client.write(at, "2", P0)
        with pytest.raises(TxnError, match=r"TRANSACTION_ABORTABLE.*sent again"):
            await client.end(at)
        await client.abort_and_commit(at, "2", P0)
        assert cast.visible(views) == ["1", "2"]


async def test_so_is_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    async with started() as (cast, at):
        monkeypatch.setattr(transaction, "_MOST_COPIES_BYTES", 0)
        member_group = MemberGroup(at)
        await member_group.initialize()
        await member_group.begin("first")
        lose_an_answer(cast)
        await member_group.write("first", "1")
        assert await refused(member_group.prepare("first")) is ErrorCode.TRANSACTION_ABORTABLE
        await member_group.begin("second")
        await member_group.write("second", "1")
        await member_group.prepare("second")
        await member_group.commit("second")
        assert cast.visible(at.transactions.views) == ["1"]
