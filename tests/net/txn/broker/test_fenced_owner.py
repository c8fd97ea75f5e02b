"""One transactional id of a client of KIP-98, whose transactions the broker decides: outcomes, and its owner."""

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kproxy.codec.batch import BatchHeader, read_header
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.testing.fake_broker import Close
from kproxy.testing.fake_broker.transactional_ids import LAST_EPOCH
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.fenced_client import Client, client_of, states, told
from tests.net.txn.broker.native_stage import TIMEOUT_MS, TOPIC, Stage, stage
from tests.net.txn.broker.packing import _kept_or_packed
from tests.net.txn.log_harness import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["_kept_or_packed"]

pytestmark = pytest.mark.usefixtures("_kept_or_packed")

LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
#: What a cluster has agreed on, and whether the client speaks the second protocol.
PAIRS = pytest.mark.parametrize(
    ("level", "second"), [(0, False), (1, False), (2, False), (1, True), (2, True)], ids=str
)


def headers(cast: Stage, index: int = 0) -> list[BatchHeader]:
    """Of the batches with data in a partition."""
    log = cast.server.cluster.topics[TOPIC].partitions[index].log
    data, found = log.read(0, 1 << 30, whole_first_batch=True, end=log.end_offset), []
    while data:
        found.append(read_header(data))
        data = data[found[-1].size :]
    return [header for header in found if not header.is_control]


class TestOutcomes:
    @PAIRS
    async def test_each_transaction_has_an_epoch_of_its_own_and_sequences_from_0(
        self, level: int, second: bool
    ) -> None:
        async with stage(level) as cast:
            client = await client_of(cast, second=second)
            for value, committed in (("1", True), ("2", False), ("3", True), ("4", True)):
                had = cast.read()
                await client.write(value, 0, 1)
                assert cast.read() == had
                await client.end(committed=committed)
            assert cast.read() == cast.read(1) == ["1", "3", "4"]
            found = headers(cast)
            assert [header.base_sequence for header in found] == [0, 0, 0, 0]
            assert len({header.producer_epoch for header in found}) == 4
            stats = client.kproxy.stats.transactions
            assert (stats.commits, stats.open, client.coordinator.open) == (3, 0, 0)

    async def test_the_client_keeps_its_identity_unless_it_speaks_the_second_protocol(self) -> None:
        async with stage() as cast:
            for second in (False, True):
                client = await client_of(cast, second=second)
                before = client.producer
                await client.transaction("1")
                assert (client.producer > before) is second

    @LEVELS
    async def test_offsets_of_groups_go_with_the_commit(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            for offset, committed in ((5, True), (9, False)):
                await client.add_offsets("g")
                await client.offsets("g", offset)
                await client.end(committed=committed)
                assert cast.server.cluster.groups["g"].offsets[TOPIC, 0].offset == 5

    async def test_offsets_join_by_being_written_in_the_second_protocol(self) -> None:
        async with stage() as cast:
            client = await client_of(cast, second=True)
            await client.offsets("g", 5)
            await client.end()
            assert cast.server.cluster.groups["g"].offsets[TOPIC, 0].offset == 5

    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    async def test_an_end_without_anything_written_is_not_asked_of_the_broker(self, committed: bool) -> None:
        async with stage() as cast:
            client = await client_of(cast)
            asked = cast.server.cluster.control(ApiKey.END_TXN, lambda call: Close())
            await client.end(committed=committed)
            await client.add()
            await client.add_offsets("g")
            await client.end(committed=committed)
            assert asked.hits == 0
            assert client.kproxy.stats.transactions.open == 0

    @LEVELS
    async def test_partitions_that_were_added_and_not_written_are_ended(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.add(0, 1)
            assert await client.send("1") is ErrorCode.NONE
            await client.end()
            assert (cast.read(), states(cast)) == (["1"], ["COMPLETE_COMMIT"])


@LEVELS
class TestWhatIsRepeated:
    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    async def test_nobody_is_asked_about_an_end_again(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.transaction("1", committed=committed)
            asked = cast.server.cluster.control(ApiKey.END_TXN, lambda call: Close())
            await client.end(committed=committed)
            await told(ErrorCode.INVALID_TXN_STATE, client.end(committed=not committed))
            assert asked.hits == 0


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
async def test_who_has_raised_its_epoch_may_end_nothing_at_all(committed: bool) -> None:
    async with stage() as cast:
        client = await client_of(cast, second=True)
        await client.transaction("1", committed=not committed)
        await client.end(committed=committed)
        await client.transaction("2")
        assert cast.read() == (["2"] if committed else ["1", "2"])


@LEVELS
class TestWhoHasIt:
    @pytest.mark.parametrize("first", ["add", "send", "offsets", "commit", "abort"])
    async def test_a_newer_producer_elsewhere_fences_whichever_request_learns_of_it(
        self, level: int, first: str
    ) -> None:
        async with stage(level) as cast:
            old = await client_of(cast)
            await old.write("1")
            await old.add_offsets("g")
            new = await client_of(cast)
            asks: dict[str, Callable[[], Awaitable[object]]] = {
                "add": lambda: old.add(2),
                "send": lambda: old.send("2"),
                "offsets": lambda: old.offsets("g", 1),
                "commit": old.end,
                "abort": lambda: old.end(committed=False),
            }
            with suppress(TxnError):
                await asks[first]()
            with pytest.raises(TxnError):
                await old.end()
            await told(ErrorCode.PRODUCER_FENCED, old.end(committed=False), old.add(), old.end())
            await new.transaction("3")
            await told(ErrorCode.PRODUCER_FENCED, old.init(old.producer), old.end(), old.send("4"))
            assert cast.read() == ["3"]
            stats = old.kproxy.stats.transactions
            assert (stats.open, stats.aborts, stats.commits) == (0, {"fenced": 1}, 0)

    async def test_a_newer_producer_that_is_not_at_a_kproxy_fences_as_well(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.transaction("1")
            await BrokerRequests(client.kproxy.cluster, "id", PATIENCE).init(TIMEOUT_MS)
            with suppress(TxnError):
                await client.add()
                await client.send("2")
            with pytest.raises(TxnError):
                await client.end()
            await told(ErrorCode.PRODUCER_FENCED, client.end(committed=False), client.add())
            assert cast.read() == ["1"]


@LEVELS
@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
class TestAnIdThatTheBrokerHasForgotten:
    """``transactional.id.expiration.ms``: Kafka then grants the id to any client that names an identity (KIP-360)."""

    @staticmethod
    async def forgotten(cast: Stage, *, second: bool) -> tuple[Client, Client]:
        """A producer, and the newer one that has replaced it elsewhere."""
        old = await client_of(cast, second=second)
        await old.transaction("1")
        new = await client_of(cast, second=second)
        cast.server.cluster.expire_transactional_id("id")
        return old, new

    async def test_a_zombie_does_not_get_it(self, level: int, second: bool) -> None:
        async with stage(level) as cast:
            old, _ = await self.forgotten(cast, second=second)
            with suppress(TxnError):
                await old.send("2")
            with suppress(TxnError):
                if not second:
                    await old.add()
                await old.send("3")
            with suppress(TxnError):
                await old.end()
            assert cast.read() == ["1"]
            for _ in range(2):
                with pytest.raises(TxnError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_ID_MAPPING"):
                    await old.init(old.producer)

    async def test_a_zombie_that_asks_to_continue_does_not_get_it(self, level: int, second: bool) -> None:
        async with stage(level) as cast:
            old, new = await self.forgotten(cast, second=second)
            old.kproxy = await cast.kproxy()
            await told(ErrorCode.PRODUCER_FENCED, old.init(old.producer), old.init(old.producer))
            await told(ErrorCode.PRODUCER_FENCED, new.init(new.producer))

    async def test_a_new_producer_gets_it(self, level: int, second: bool) -> None:
        async with stage(level) as cast:
            old, _ = await self.forgotten(cast, second=second)
            client = await client_of(cast, second=second)
            await client.write("2")
            await told(ErrorCode.PRODUCER_FENCED, old.init(old.producer))
            await client.end()
            assert cast.read() == ["1", "2"]


@LEVELS
class TestGoingOn:
    """KIP-360: after an error a client asks for its next epoch, and names its identity."""

    async def test_a_late_request_of_a_fenced_producer_is_refused(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            before = client.producer
            await client.init(before)
            await client.write("1")
            new = await client_of(cast)
            await told(ErrorCode.PRODUCER_FENCED, client.end(), client.init(before))
            await new.transaction("2")
            assert cast.read() == ["2"]

    async def test_who_was_fenced_elsewhere_can_not(self, level: int) -> None:
        async with stage(level) as cast:
            old = await client_of(cast)
            await old.transaction("1")
            await old.write("2")
            new = await client_of(cast)
            await told(ErrorCode.PRODUCER_FENCED, old.init(old.producer), old.init(old.producer))
            await new.transaction("3")
            assert cast.read() == ["1", "3"]

    async def test_a_client_from_another_kproxy_continues_where_nothing_was_written(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            client.kproxy = await cast.kproxy()
            await told(ErrorCode.INVALID_PRODUCER_ID_MAPPING, client.add(), client.end())
            await client.init(client.producer)
            await client.transaction("1")
            assert cast.read() == ["1"]


@LEVELS
@pytest.mark.parametrize("resumed", [True, False], ids=["goes on", "anew"])
async def test_the_epochs_of_a_producer_id_run_out(level: int, resumed: bool) -> None:
    """The client keeps its own producer id; it hears of the new one when it asks for an epoch."""
    async with stage(level) as cast:
        client = await client_of(cast)
        await client.transaction("1")
        cast.server.cluster.transactional_ids["id"].epoch = LAST_EPOCH - 3
        client = Client(client.kproxy)
        await client.init()
        before = client.producer
        for value in "234567":
            await client.transaction(value)
        assert client.producer == before
        assert len({header.producer_id for header in headers(cast)}) == 2
        await client.init(client.producer if resumed else None)
        assert client.producer.producer_id != before.producer_id
        if resumed:
            await client.write("8")
            await Client(client.kproxy).init(before)  # late: asked in the older name the broker would abort that
            await client.end()
        else:
            await client.transaction("8")
        assert cast.read() == list("12345678")
        stale = Client(client.kproxy, producer=before)
        await told(ErrorCode.INVALID_PRODUCER_ID_MAPPING, stale.add())
