"""The log names a partition before a transaction writes there, and instances that lag are fenced there."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.txn.client_sequences import ClientSequences
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.announcements import Announcements
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.txn_error import TxnError
from kproxy.txn.writes import PartitionWrites, TxnSend
from tests.txn.procedures.memory_log import P0, P1, Desk, at_once

P2 = ("t", 2)


def batch(place: tuple[str, int], sequence: int = 0) -> ClientBatch:
    return ClientBatch(*place, memoryview(b"data"), 1, sequence)


class Scene:
    """The open transaction of one client."""

    def __init__(self, desk: Desk, transaction: Transaction) -> None:
        self.desk, self.transaction = desk, transaction
        self.sequences: ClientSequences[TxnSend] = ClientSequences()
        self.announcements = Announcements(desk.keeper, desk.tools, desk.ends, self.sequences)

    async def announce(self, *batches: ClientBatch, connection: int = 1) -> str | None:
        request = TxnRequest("id", self.desk.keeper.client, connection, "test")
        return await self.announcements.announce(self.transaction, request, batches, at_once)

    @property
    def announced(self) -> list[dict[tuple[str, int], tuple[int, int]]]:
        """Of each record in the log: by partition the offset, and the client's first sequence."""
        return [
            {
                (topic.name, row.index): (row.end_offset, row.first_sequence)
                for topic in body.topics
                for row in topic.partitions
            }
            for body in self.desk.log.records
            if isinstance(body, TransactionPartitions) and body.topics
        ]


async def begun() -> Scene:
    desk = await Desk().initialized()
    return Scene(desk, await desk.transaction())


class TestAnnounce:
    async def test_each_partition_once_with_the_first_sequence_that_the_client_has_there(self) -> None:
        scene = await begun()
        assert await scene.announce(batch(P0, 3), batch(P0, 4), batch(P1)) is None
        records = len(scene.desk.log.records)
        assert await scene.announce(batch(P0, 3)) is None
        assert len(scene.desk.log.records) == records
        assert await scene.announce(batch(P1), batch(P2)) is None
        assert scene.announced == [{P0: (5, 3), P1: (5, 0)}, {P2: (5, 0)}]
        assert scene.transaction.announced == {P0, P1, P2}
        assert scene.transaction.first_sequences == {P0: 3, P1: 0, P2: 0}

    async def test_what_was_added_and_what_the_last_transaction_wrote_comes_with_the_first(self) -> None:
        scene = await begun()
        scene.transaction.joined = {P0, P1}
        scene.desk.ends.note({P2: PartitionWrites(9, ())})
        await scene.announce(batch(P0, 7))
        assert scene.announced == [{P0: (5, 7), P1: (5, 0), P2: (9, 0)}]
        await scene.announce(batch(P1))
        assert len(scene.announced) == 1
        await scene.announce(batch(P1, 4))
        assert scene.announced[1:] == [{P1: (5, 4)}], "the log named another first sequence"

    async def test_the_sequence_that_follows_what_the_client_sent_before(self) -> None:
        scene = await begun()
        scene.sequences.restore(scene.desk.keeper.client, P0, 40, [])
        await scene.announce(batch(P0, 39))
        assert scene.announced == [{P0: (5, 40)}]

    @pytest.mark.parametrize(("connection", "sequence"), [(0, 0), (1, -1)], ids=["of kproxy", "without sequence"])
    async def test_no_sequence_where_the_client_counts_none(self, connection: int, sequence: int) -> None:
        scene = await begun()
        await scene.announce(batch(P0, sequence), batch(P1), connection=connection)
        assert scene.announced == [{P0: (5, -1), P1: (5, -1)}]
        assert scene.transaction.first_sequences == {}

    async def test_nothing_without_a_claim(self) -> None:
        scene = await begun()
        scene.desk.keeper.claim = None
        assert await scene.announce(batch(P0)) == "the claim was lost"
        assert (scene.announced, scene.transaction.announced) == ([], set())

    async def test_nothing_counts_as_announced_unless_the_log_took_it(self) -> None:
        scene = await begun()
        scene.desk.log.unheard = [TransactionPartitions]
        assert "did not take" in str(await scene.announce(batch(P0)))
        assert (scene.transaction.announced, scene.desk.keeper.claim) == (set(), None)


class Fences:
    """Notes who is fenced where."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[list[int], Producer, list[tuple[str, int]]]] = []
        self._error = error

    async def fence(self, ids: Sequence[int], following: Producer, places: Sequence[tuple[str, int]]) -> None:
        await trio.lowlevel.checkpoint()
        if self._error is not None:
            raise self._error
        self.asked.append((list(ids), following, list(places)))


async def after_another(fences: Fences) -> Any:
    """The client's transaction after it came from another instance."""
    former = await Desk("b").initialized()
    desk = Desk("a", former.log.records)
    desk.former.fence = fences.fence
    desk.keeper.take_over(await desk.read())
    return Scene(desk, await desk.transaction())


class TestOthersAreFenced:
    async def test_where_the_transaction_has_not_been(self) -> None:
        fences = Fences()
        scene = await after_another(fences)
        scene.transaction.joined = {P2}
        for places in ([P0, P2], [P0], [P0, P1]):
            await scene.announcements.fence_others(scene.transaction, places, at_once)
        view, part = await scene.desk.read(), scene.transaction.producer
        assert fences.asked == [(view.generations, part, [P0]), (view.generations, part, [P1])]

    async def test_not_where_no_other_instance_had_the_id(self) -> None:
        fences, scene = Fences(), await begun()
        scene.desk.former.fence = fences.fence
        await scene.announcements.fence_others(scene.transaction, [P0], at_once)
        scene.desk.keeper.had_others, scene.desk.log.view = True, None
        await scene.announcements.fence_others(scene.transaction, [P0], at_once)
        assert fences.asked == []

    async def test_or_the_partitions_are_not_added(self) -> None:
        scene = await after_another(Fences(OSError("gone")))
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await scene.announcements.fence_others(scene.transaction, [P0], at_once)
        assert scene.desk.keeper.fenced_at == set()
