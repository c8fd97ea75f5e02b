"""Which requests are admitted, late or repeated, and what dooms: each rule holds wherever transactions are decided."""

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.net.txn.log_topic import TOPIC as LOG
from kproxy.txn.ids import Producer
from tests.net.txn.both_homes import HOMES, at_home
from tests.net.txn.broker.fenced_client import Client, told

LATE = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
SECOND = pytest.mark.parametrize("second", [False, True], ids=["KIP-98", "KIP-890"])
ENDS = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])

pytestmark = HOMES


@pytest.fixture(autouse=True)
def no_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets that kproxy's log has committed stay in the log alone."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


class TestWhatIsRefused:
    async def test_an_empty_id_an_empty_group_and_kproxys_own_topics(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await told(ErrorCode.INVALID_REQUEST, Client(client.kproxy, "").init())
            await told(ErrorCode.INVALID_GROUP_ID, client.add_offsets(""), client.offsets("", 1))
            refused = await client.coordinator.add_partitions(client.request, [("t", 0), (LOG, 3)])
            assert refused == {(LOG, 3): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            assert client.coordinator.open == 0

    async def test_a_client_that_has_not_asked_for_a_producer_id(self, home: str) -> None:
        async with at_home(home) as scene:
            client = scene.client()
            client.producer = Producer(7, 0)
            asks = (client.add(), client.add_offsets("g"), client.offsets("g", 1), client.send("1"), client.end())
            await told(ErrorCode.INVALID_PRODUCER_ID_MAPPING, *asks)

    async def test_identities_that_were_never_given(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            producer_id, epoch = client.producer
            client.producer = Producer(producer_id + 1, epoch)
            await told(ErrorCode.INVALID_PRODUCER_ID_MAPPING, client.add(), client.end())
            client.producer = Producer(producer_id, epoch + 1)
            await told(ErrorCode.INVALID_PRODUCER_EPOCH, client.add(), client.end())
            await told(FENCED, client.init(Producer(producer_id, epoch + 9)))
            assert client.kproxy.stats.transactions.fenced == 0

    async def test_new_producers_while_kproxy_is_being_stopped(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await client.write("1")
            client.coordinator.leave()
            await told(ErrorCode.COORDINATOR_NOT_AVAILABLE, Client(client.kproxy, "other").init())
            await client.end()
            assert scene.read(0) == ["1"]


class TestWhatIsLate:
    async def test_data_and_offsets_that_were_not_added_to_this_transaction(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await told(LATE, client.send("early"), client.offsets("g", 1))
            assert client.kproxy.stats.transactions.open == 0
            await client.add_offsets("g")
            await client.offsets("g", 20)
            await client.transaction("1")
            await told(LATE, client.send("late"), client.offsets("g", 1))
            await client.add(0)
            await told(LATE, client.send("late", 1), client.offsets("g", 1))
            assert await client.send("2") is ErrorCode.NONE
            await client.end()
            assert (scene.read(0), scene.read(1), scene.offsets("g")) == (["1", "2"], [], {0: 20})

    async def test_what_comes_over_an_older_connection_is_not_answered(self, home: str) -> None:
        async with at_home(home) as scene:
            older = await scene.begun()
            client = older.over(2)
            await client.transaction("1")
            await client.write("2")
            gone = ErrorCode.NETWORK_EXCEPTION
            await told(gone, older.end(), older.end(committed=False), older.add(1), older.add_offsets("g"))
            await client.add_offsets("g")
            await client.offsets("g", 5)
            await told(gone, older.offsets("g", 4))
            assert client.coordinator.parties() == {2}
            other = client.over(1)  # another group's coordinator may have the older connection
            await client.add_offsets("h")
            await other.offsets("h", 1)
            assert await other.send("3") is ErrorCode.NONE, "leaders have connections of their own"
            assert client.coordinator.parties() == {1, 2}
            await client.end()
            assert (scene.read(0), scene.offsets("g"), scene.offsets("h")) == (["1", "2", "3"], {0: 5}, {0: 1})
            assert not client.coordinator.parties()

    async def test_offsets_that_arrive_before_the_clients_own_are_replaced(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await client.add_offsets("g")
            await client.end(committed=False)
            await client.add_offsets("g")
            await client.offsets("g", 10)
            await client.over(2).offsets("g", 20)
            await client.end()
            assert scene.offsets("g") == {0: 20}

    async def test_offsets_that_may_be_late_and_are_not_replaced_abort_the_transaction(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await client.add_offsets("g")
            await client.end(committed=False)
            await client.add_offsets("g")
            await client.offsets("g", 10, partition=1)
            await told(ErrorCode.TRANSACTION_ABORTABLE, client.over(2).offsets("g", 20), client.end())
            await client.end(committed=False)
            assert scene.offsets("g") == {}
            await client.add_offsets("g")
            await client.over(2).offsets("g", 20)
            await client.end()
            assert scene.offsets("g") == {0: 20}

    async def test_in_the_second_protocol_the_epoch_tells_and_nothing_has_to_be_added(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun(second=True)
            late = client.over(1)
            await client.offsets("g", 10)
            await client.end()
            await told(FENCED, late.offsets("g", 5), late.send("late"))
            await client.offsets("g", 20)
            await told(FENCED, late.offsets("g", 5), late.send("late"))
            await client.over(2).offsets("g", 21, partition=1)
            await client.end()
            assert (scene.offsets("g"), scene.read(0)) == ({0: 20, 1: 21}, [])

    async def test_a_sequence_that_is_not_the_next_is_refused(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await client.write("1")
            written = await client.produce("later", 7)
            assert written.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert await client.send("2") is ErrorCode.NONE
            await client.end()
            assert scene.read(0) == ["1", "2"]


class TestSequencesOfAFormerTransaction:
    """librdkafka gives them to new records if it aborts a transaction while the response to a batch is lost."""

    @ENDS
    async def test_they_are_refused_until_the_client_has_passed_them_over(self, home: str, committed: bool) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await client.write("1")
            lost = [await client.produce("lost", 1), await client.produce("lost", 2)]
            assert [written.error_code for written in lost] == [0, 0]
            await client.end(committed=committed)
            client.next[0] = 1
            for _ in lost:
                await client.add()
                assert await client.send("2") is ErrorCode.TRANSACTION_ABORTABLE
                await client.end(committed=False)
            await client.write("2")
            assert await client.produce("2", 3) == await client.produce("2", 3)
            await client.end()
            assert scene.read(0) == (["1", "lost", "lost", "2"] if committed else ["2"])

    async def test_a_late_copy_neither_joins_nor_dooms_the_open_transaction(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await client.write("0")
            older = client.over(1)
            await client.end(committed=False)
            client = client.over(2)
            await client.add()
            late = await older.produce("0", 0)
            await client.write("1")
            again = await older.produce("0", 0)
            await client.write("2")
            await client.end()
            assert {late.error_code, again.error_code} == {ErrorCode.TRANSACTION_ABORTABLE}
            assert scene.read(0) == ["1", "2"]


class TestWhatIsRepeated:
    async def test_data_are_answered_with_what_became_of_them(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await client.write("0")
            first = [await client.produce("1", 1), await client.produce("2", 2)]
            assert [await client.produce("1", 1), await client.produce("2", 2)] == first
            await client.end()
            assert scene.read(0) == ["0", "1", "2"]

    async def test_partitions_and_groups_may_be_added_again(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            for _ in range(2):
                await client.add(0)
                await client.add_offsets("g")
                await client.offsets("g", 5)
            assert await client.send("1") is ErrorCode.NONE
            await client.add(0)
            await client.end()
            assert scene.read(0) == ["1"]

    @ENDS
    async def test_an_end_is_answered_with_how_it_ended(self, home: str, committed: bool) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            await client.transaction("1", committed=committed)
            await client.end(committed=committed)
            await told(LATE, client.end(committed=not committed))
            assert client.kproxy.stats.transactions.commits == committed
            assert scene.read(0) == ["1"] * committed

    @ENDS
    async def test_an_end_that_has_raised_the_epoch_is_answered_again(self, home: str, committed: bool) -> None:
        async with at_home(home) as scene:
            client = await scene.begun(second=True)
            before = client.over(1)
            await client.transaction("1", committed=committed)
            again = before.over(1)
            await again.end(committed=committed)
            assert again.producer == client.producer
            await told(LATE, before.end(committed=not committed))
            await told(FENCED, before.send("late"))
            await client.transaction("2")
            await told(FENCED, before.end(committed=committed))
            assert scene.read(0) == (["1", "2"] if committed else ["2"])


class TestEndsOfNothing:
    @SECOND
    async def test_they_are_successes(self, home: str, second: bool) -> None:
        async with at_home(home) as scene:
            for committed in (True, False):
                client = await scene.begun(second=second)
                await client.end(committed=committed)
                await client.transaction("1", committed=committed)
                assert client.kproxy.stats.transactions.open == 0
            assert scene.read(0) == ["1"]

    @ENDS
    async def test_in_the_second_protocol_they_raise_the_epoch(self, home: str, committed: bool) -> None:
        """The client begins its sequences at 0 after each end: a late batch would be taken into the next one."""
        async with at_home(home) as scene:
            client = await scene.begun(second=True)
            for _ in range(2):
                late = client.over(1)
                await client.end(committed=committed)
                assert client.producer.epoch > late.producer.epoch
                await late.end(committed=committed)
                assert late.producer == client.producer, "its answer was lost"
            late = client.over(1)
            await client.end(committed=not committed)
            await client.write("1")
            await told(FENCED, late.send("late", 1))
            await client.end()
            assert (scene.read(0), scene.read(1)) == (["1"], [])


class TestWhoHasTheId:
    async def test_a_newer_producer_fences_the_old_one_and_aborts_what_it_left(self, home: str) -> None:
        async with at_home(home) as scene:
            old = await scene.begun()
            await old.write("1")
            new = await scene.begun()
            asks = (old.send("2"), old.end(), old.end(committed=False), old.add(), old.add_offsets("g"))
            await told(FENCED, *asks, old.offsets("g", 1), old.init(old.producer))
            await new.transaction("3")
            assert scene.read(0) == ["3"]
            assert old.kproxy.stats.transactions.aborts == {"initialized": 1}

    async def test_a_zombie_that_asks_to_continue_does_not_abort_what_the_newer_has_open(self, home: str) -> None:
        async with at_home(home) as scene:
            old = await scene.begun()
            await old.transaction("1")
            new = await scene.begun()
            await new.write("2")
            await told(FENCED, old.init(old.producer))
            await new.end()
            assert scene.read(0) == ["1", "2"]

    @SECOND
    async def test_a_client_that_continues_aborts_what_it_has_open(self, home: str, second: bool) -> None:
        """KIP-360: after an error a client asks for its next epoch, and names the one that it has."""
        async with at_home(home) as scene:
            client = await scene.begun(second=second)
            await client.transaction("1")
            await client.write("2")
            before = client.producer
            await client.init(before)
            assert client.producer > before
            await client.transaction("3")
            await client.init(client.producer)
            await client.transaction("4")
            assert scene.read(0) == ["1", "3", "4"]
            assert client.kproxy.stats.transactions.fenced == 0

    async def test_an_init_that_was_answered_changes_nothing(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun()
            before = client.producer
            await client.init(before)
            late = scene.client()
            await client.write("1")
            await late.init(before)
            assert late.producer == client.producer
            await client.write("2")
            await client.end()
            await late.init(before)
            await client.transaction("3")
            assert scene.read(0) == ["1", "2", "3"]
            await client.init(client.producer)
            await told(FENCED, late.init(before))
            await client.transaction("4")
            assert scene.read(0) == ["1", "2", "3", "4"]

    async def test_a_client_continues_as_the_one_before_an_end_whose_answer_was_lost(self, home: str) -> None:
        async with at_home(home) as scene:
            client = await scene.begun(second=True)
            before = client.producer
            await client.transaction("1")
            ended = client.producer
            await client.init(before)
            assert client.producer > ended
            await client.transaction("2")
            before, now = ended, client.producer
            await told(FENCED, client.init(before))
            client.producer = now
            await client.write("3")
            await told(FENCED, client.over(1).init(before))
            await client.end()
            assert scene.read(0) == ["1", "2", "3"]


@SECOND
async def test_an_end_continues_without_the_client_that_asked_for_it(home: str, second: bool) -> None:
    async with at_home(home) as scene:
        client = await scene.begun(second=second)
        await client.write("1")
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.end()
        with trio.fail_after(120):
            while client.coordinator.open:  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.005)
        assert scene.read(0) == ["1"]
