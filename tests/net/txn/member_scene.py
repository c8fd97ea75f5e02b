"""What acts for members of one transactional id at one instance of kproxy, by the control API's service."""

from collections.abc import Awaitable
from typing import Any

import pytest
import trio

from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.txn.described import Described, OwnerId
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.requests import ClientBatch
from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import TIMEOUT_MS, Cast, Instance
from tests.net.txn.log_harness import PATIENCE


class MemberGroup:
    """At one instance; a member's client.id is its name, the owner's is "own"."""

    def __init__(self, at: Instance) -> None:
        self.at = at
        self.control = at.transactions.control

    async def initialize(self, timeout_ms: int = TIMEOUT_MS) -> Described:
        with trio.fail_after(PATIENCE):
            return await self.control.initialize("id", client_id="driver", timeout_ms=timeout_ms)

    async def begin_own(self) -> Described:
        with trio.fail_after(PATIENCE):
            return await self.control.begin(client_id="own", transactional_id="id", timeout_ms=TIMEOUT_MS)

    async def begin(self, member: str, owner: OwnerId | None = None, timeout_ms: int | None = None) -> Described:
        with trio.fail_after(PATIENCE):
            return await self.control.begin_member("id", member, client_id=member, owner=owner, timeout_ms=timeout_ms)

    async def write(self, client_id: str, value: str, *places: tuple[str, int]) -> None:
        """One record to each partition, acknowledged."""
        capture = self.at.transactions.implicit_transactions.of(client_id)
        assert isinstance(capture, ManagedTransaction)
        capture.took(1, answered=True)
        try:
            with trio.fail_after(PATIENCE):
                batches = [batch(value, place) for place in places or [("t", 0)]]
                rows = await capture.write(batches, refused=False, accepted=lambda: None)
        finally:
            capture.done()
        assert [row.error_code for row in rows] == [0] * len(rows)

    async def prepare(self, member: str, records: int | None = None) -> Described:
        with trio.fail_after(PATIENCE):
            return await self.control.prepare_member("id", member, records=records)

    async def abort_member(self, member: str) -> Described:
        with trio.fail_after(PATIENCE):
            return await self.control.abort_member("id", member)

    async def commit(self, *members: str, **how: Any) -> Described:
        with trio.fail_after(PATIENCE):
            return await self.control.commit("id", members=members, **how)

    async def abort(self, *members: str, owner: OwnerId | None = None, **how: Any) -> Described:
        """``owner``: by default the current owner of the id."""
        with trio.fail_after(PATIENCE):
            now = owner or (await self.control.describe("id")).owner
            return await self.control.abort("id", owner=now, members=members, **how)

    async def describe(self) -> Described:
        with trio.fail_after(PATIENCE):
            return await self.control.describe("id")


def batch(value: str, place: tuple[str, int]) -> ClientBatch:
    """As a client without sequences sends it."""
    return ClientBatch(*place, memoryview(build_batch([Record(0, 0, None, value.encode())])), 1, -1)


async def refused(work: Awaitable[Any]) -> ErrorCode:
    """The error that it ends with."""
    with pytest.raises(TxnError) as caught, trio.fail_after(PATIENCE):
        await work
    return ErrorCode(caught.value.error_code)


async def seen(cast: Cast, *member_groups: MemberGroup, partition: int = 0) -> list[str]:
    """What readers at all of these, and one that comes now, see."""
    fresh = await cast.instance("reader")
    found: list[list[str]] = []
    for instance in (*(member_group.at for member_group in member_groups), fresh):
        with trio.fail_after(PATIENCE):
            await instance.transactions.log.read_to_end("id")
        found.append(cast.visible(instance.transactions.views, partition=partition))
    assert all(values == found[0] for values in found), found
    await fresh.kill()
    return found[0]
