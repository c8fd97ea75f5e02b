"""A client of ``broker-fenced`` after a restart of its kproxy: it continues, and the broker has what it was answered.

What would break it: a commit is answered that was an abort, or the reverse; half of a transaction is committed; a
client that was replaced writes, or has the transaction of the newer one aborted; a restart costs the client its
producer though the log has its epoch; a log that is slow, missing or unreadable stops transactions; a batch from
before the restart is taken into a later transaction; entries stay for ever.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.dedup.instance_holder import is_holder_entry
from kproxy.net.lane_topic import TOPIC as STATE
from kproxy.testing.fake_broker import Close, CloseAfter, Delay, Edit
from kproxy.txn.ids import Producer
from kproxy.txn.procedures import broker_owners
from kproxy.txn.stored_epochs import decode_value
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.fenced_client import Client, client_of, states, told
from tests.net.txn.broker.native_stage import TIMEOUT_MS, Stage, stage
from tests.net.txn.broker.packing import _kept_or_packed

__all__ = ["_kept_or_packed"]

pytestmark = [pytest.mark.idle_clock, pytest.mark.usefixtures("_kept_or_packed")]

LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
ABORTABLE, UNKNOWN = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
OPTIONS: dict[str, Any] = {
    "instance_id": "me",
    "producer_state_log_num_partitions": 1,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 500,
}


async def begun(cast: Stage, **more: Any) -> Client:
    """A client of a kproxy that keeps what the next one needs."""
    return await client_of(cast, **OPTIONS, **more)


async def restarted(cast: Stage, client: Client) -> Client:
    """The same client after its kproxy was killed and started again."""
    await client.kproxy.kill()
    return replace(client, kproxy=await cast.kproxy(**OPTIONS), connection=client.connection + 10)


def entries(cast: Stage) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of all that the log's topic holds, one after the other, except for the notes of processes."""
    if STATE not in cast.server.cluster.topics:
        return []
    data = cast.server.cluster.topics[STATE].partitions[0].log.read(0, 1 << 30, whole_first_batch=True)
    records = iter_records(data, max_decompressed_bytes=1 << 24)
    return [(record.key, record.value) for record in records if not is_holder_entry(record)]


@LEVELS
class TestBetweenTransactions:
    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    async def test_the_client_notices_nothing(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            for value in "1234":
                await client.transaction(value, committed=committed)
                await trio.sleep(1)  # what nobody waits for is in the log
                client = await restarted(cast, client)
            await client.transaction("5")
            assert cast.read() == (["1", "2", "3", "4", "5"] if committed else ["5"])
            assert client.kproxy.stats.transactions.continued == 1

    async def test_nor_before_its_first_one(self, level: int) -> None:
        async with stage(level) as cast:
            client = await restarted(cast, await begun(cast))
            await client.transaction("1")
            assert cast.read() == ["1"]

    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    async def test_a_repeated_end_is_answered(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1", committed=committed)
            client = await restarted(cast, client)
            await client.end(committed=committed)
            await client.transaction("2")
            assert cast.read() == (["1", "2"] if committed else ["2"])

    async def test_a_client_may_name_its_identity_to_get_the_next(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            await client.transaction("2")
            client = await restarted(cast, client)
            await client.init(client.producer)
            await client.transaction("3")
            assert cast.read() == ["1", "2", "3"]

    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    async def test_the_outcome_outlives_restarts(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1", committed=committed)
            for _ in range(3):
                await trio.sleep(1)
                client = await restarted(cast, client)
                await client.end(committed=committed)
            if committed or level == 2:  # below, an abort is remembered until the next epoch
                await told(ErrorCode.INVALID_TXN_STATE, client.end(committed=not committed))
            await client.transaction("2")
            assert cast.read() == (["1", "2"] if committed else ["2"])

    async def test_a_commit_of_nothing_is_not_lost_with_the_kproxy_that_was_to_begin_it(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            await client.add_offsets("g")
            await trio.sleep(1)
            client = await restarted(cast, client)
            await client.end()
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_after_its_first_end_a_client_is_as_any_other(self, level: int) -> None:
        async with stage(level) as cast:
            client = await restarted(cast, await begun(cast))
            await client.end(committed=False)
            await client.end()
            await told(ErrorCode.INVALID_TXN_STATE, client.send("1"), client.offsets("g", 1))
            await client.transaction("2")
            assert cast.read() == ["2"]

    async def test_a_client_that_initializes_its_id_is_as_any_other(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            client = await restarted(cast, client)
            await client.add()
            await client.init()
            await told(ErrorCode.INVALID_TXN_STATE, client.send("2"))
            await client.transaction("3")
            client = client.over(client.connection + 1)
            await client.transaction("4")
            assert cast.read() == ["1", "3", "4"]

    async def test_a_client_may_change_to_the_second_protocol_after_its_first_end(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            client = await restarted(cast, client)
            await client.end()
            client.second = True
            before = client.producer
            await client.end(committed=False)
            assert client.producer > before
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_once_it_has_written_it_may_change_its_connection(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            client = await restarted(cast, client)
            await client.write("2")
            batch = client.batch("never", client.next[0])
            assert not client.coordinator.takes_at_once("id", [batch]), "its sequences are not known"
            await client.end()
            client = client.over(client.connection + 1)
            await client.write("3")
            assert client.coordinator.takes_at_once("id", [client.batch("never", client.next[0])])
            await client.end()
            assert cast.read() == ["1", "2", "3"]

    async def test_two_requests_at_once_continue_it_once(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            client = await restarted(cast, client)
            async with trio.open_nursery() as nursery:
                for index in (0, 1):
                    nursery.start_soon(client.add, index)
            assert client.kproxy.stats.transactions.continued == 1
            await client.transaction("2")
            assert cast.read() == ["1", "2"]


@LEVELS
class TestWithinATransaction:
    async def test_what_is_open_after_a_restart_is_aborted_after_the_next(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            client = await restarted(cast, client)
            await client.write("2")
            client = await restarted(cast, client)
            await told(ABORTABLE, client.end())
            await client.end(committed=False)
            await client.transaction("3")
            assert (cast.read(), client.kproxy.stats.transactions.open) == (["1", "3"], 0)

    async def test_what_is_open_again_can_only_be_aborted_if_something_is_missing(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            client = await restarted(cast, client)
            await client.write("2")
            await told(ABORTABLE, client.send("3", 1), client.end())
            await client.end(committed=False)
            assert client.kproxy.stats.transactions.open == 0
            await client.transaction("4")
            assert cast.read() == ["1", "4"]

    async def test_offsets_without_what_was_added_before_doom_it(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            await client.add_offsets("g")
            client = await restarted(cast, client)
            await told(ABORTABLE, client.offsets("g", 1), client.end())
            await client.end(committed=False)
            await client.transaction("2")
            assert (cast.read(), client.kproxy.stats.transactions.open) == (["1", "2"], 0)

    async def test_it_can_only_be_aborted_and_the_client_continues(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            await client.write("2")
            client = await restarted(cast, client)
            await told(ABORTABLE, client.send("3"), client.add(1), client.end())
            await client.end(committed=False)
            await client.transaction("4")
            assert cast.read() == ["1", "4"]

    async def test_a_commit_that_the_broker_has_is_answered_as_such(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.write("1")
            lost = cast.server.cluster.control(ApiKey.END_TXN, lambda call: CloseAfter())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_unheard, client)
                await trio.sleep(1)
                assert lost.hits
                cast.server.cluster.controls.remove(lost)
                after = await restarted(cast, client)
                nursery.cancel_scope.cancel()
            await after.end()
            await after.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_a_commit_that_the_broker_has_not_is_refused(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.write("1")
            client = await restarted(cast, client)
            await told(ABORTABLE, client.end())
            await client.end(committed=False)
            assert (cast.read(), states(cast)) == ([], ["EMPTY"])
            await client.transaction("2")
            assert cast.read() == ["2"]

    async def test_nothing_is_taken_without_what_was_added_before(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            await client.add()
            await client.add_offsets("g")
            client = await restarted(cast, client)
            await told(ABORTABLE, client.send("2"), client.offsets("g", 1))
            await client.end(committed=False)
            await client.transaction("3")
            assert cast.read() == ["1", "3"]

    async def test_nothing_is_committed_where_nothing_is_left(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1", committed=False)
            await client.add()
            client = await restarted(cast, client)
            await told(ABORTABLE, client.end())
            await client.end(committed=False)
            await client.transaction("2")
            assert cast.read() == ["2"]

    async def test_a_batch_from_before_it_is_in_no_later_transaction(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            client = await restarted(cast, client)
            await client.add()
            late = await client.produce("late", 1)
            assert late.error_code == 0
            newer = client.over(client.connection + 1)
            await told(ABORTABLE, newer.produce("2", 2))
            await newer.end(committed=False)
            newer.next = {0: 3}
            await newer.transaction("3")
            await newer.transaction("4")
            assert cast.read() == ["1", "3", "4"]


@LEVELS
class TestWhatTheBrokerSays:
    async def test_an_end_that_is_in_flight_is_waited_for(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.write("1")
            cast.server.cluster.hold_markers()
            client = await killed_in_its_end(cast, client)
            assert states(cast) == ["PREPARE_COMMIT"]
            await told(ErrorCode.COORDINATOR_NOT_AVAILABLE, client.end())
            cast.server.cluster.release_markers()
            await client.end()
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_an_end_whose_markers_are_written_late_is_what_it_was(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.write("1")
            cast.server.cluster.hold_markers()
            client = await killed_in_its_end(cast, client)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.end)
                await trio.sleep(2)
                assert states(cast) == ["PREPARE_COMMIT"]
                cast.server.cluster.release_markers()
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_where_nothing_was_begun_nothing_is_committed(self, level: int) -> None:
        async with stage(level) as cast:
            client = await restarted(cast, await begun(cast))
            await told(ABORTABLE, client.end())
            await client.end(committed=False)
            await client.transaction("1")
            assert cast.read() == ["1"]

    async def test_the_outcome_outlives_a_second_restart_after_it_was_recorded(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            await trio.sleep(1)
            client = await restarted(cast, client)
            cluster = cast.server.cluster
            refused: list[Any] = []

            def renewed(call: Any) -> None:
                if call.request.transactional_id == "id":
                    refused.append(cluster.control(ApiKey.PRODUCE, _to_state))

            first = cluster.control(ApiKey.INIT_PRODUCER_ID, renewed)
            await told(ErrorCode.COORDINATOR_NOT_AVAILABLE, client.end())
            assert (len(refused), states(cast)) == (1, ["EMPTY"])
            for control in (first, *refused):
                cluster.controls.remove(control)
            client = await restarted(cast, client)
            await client.end()
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_an_outcome_that_was_not_recorded_before_the_next_epoch_is_lost(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await trio.sleep(1)
            refused = cast.server.cluster.control(ApiKey.PRODUCE, _to_state)
            client = await restarted(cast, client)
            owner = cast.server.cluster.transactional_ids["id"]
            assert owner.renew(client.producer.epoch) is ErrorCode.NONE  # by a kproxy that was killed after it
            cast.server.cluster.controls.remove(refused)
            await told(ABORTABLE, client.add())
            await client.end(committed=False)
            await client.transaction("1")
            assert cast.read() == ["1"]

    async def test_a_commit_that_comes_late_counts_if_it_is_before_the_abort(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.write("1")
            cast.server.cluster.control(ApiKey.END_TXN, _slow_end)
            client = await killed_in_its_end(cast, client, 0.1)
            assert states(cast) == ["ONGOING"]
            await client.end()
            assert cast.read() == ["1"]

    async def test_what_it_aborted_before_it_was_asked_is_no_commit(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.write("1")
            client = await restarted(cast, client)
            cast.server.cluster.control(ApiKey.END_TXN, _edit(ErrorCode.PRODUCER_FENCED), times=1)
            await told(ABORTABLE, client.end())
            await client.end(committed=False)
            await client.transaction("2")
            assert cast.read() == ["2"]

    async def test_where_it_refuses_to_abort_the_client_is_refused_and_may_retry(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.write("1")
            client = await restarted(cast, client)
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            refused = cast.server.cluster.control(ApiKey.END_TXN, _edit(error), times=1)
            asked = _requests(cast)
            await told(error, client.end())
            assert (refused.hits, asked) == (1, [])
            await told(ABORTABLE, client.end())
            await client.end(committed=False)
            assert cast.read() == []

    async def test_what_a_killed_kproxy_has_sent_late_makes_it_forget_nothing(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            await trio.sleep(1)
            stored = decode_value(entries(cast)[-1][1] or b"")
            client = await restarted(cast, client)
            await client.transaction("2")
            owner = cast.server.cluster.transactional_ids["id"]
            assert owner.renew(stored.upstream.epoch) is ErrorCode.PRODUCER_FENCED
            assert states(cast) == ["COMPLETE_COMMIT"]

    async def test_a_client_that_it_has_forgotten_is_unknown(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            client = await restarted(cast, client)
            del cast.server.cluster.transactional_ids["id"]
            await told(UNKNOWN, client.add())
            await client.init()
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_a_transaction_that_it_has_ended_meanwhile_can_only_be_aborted(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            await client.write("2")
            client = await restarted(cast, client)
            cast.now += 2 * TIMEOUT_MS
            await told(ABORTABLE, client.end())
            await client.end(committed=False)
            await client.transaction("3")
            assert cast.read() == ["1", "3"]


async def _unheard(client: Client) -> None:
    with suppress(TxnError):  # its kproxy is killed
        await client.coordinator.end(client.request, committed=True, bumps=False)


async def killed_in_its_end(cast: Stage, client: Client, seconds: float = 1) -> Client:
    """The client at the next kproxy: the one before is killed so long after it was asked to commit."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_unheard, client)
        await trio.sleep(seconds)
        after = await restarted(cast, client)
        nursery.cancel_scope.cancel()
    return after


@LEVELS
class TestWhoHasTheId:
    async def test_a_client_that_was_replaced_is_fenced_and_aborts_nothing(self, level: int) -> None:
        async with stage(level) as cast:
            old = await begun(cast)
            await old.transaction("1")
            new = await client_of(cast)
            await new.transaction("2")
            await new.write("3")
            old = await restarted(cast, old)
            await told(ErrorCode.PRODUCER_FENCED, old.add(), old.end())
            await new.end()
            assert cast.read() == ["1", "2", "3"]

    async def test_a_transaction_of_the_next_producer_is_left_alone(self, level: int) -> None:
        async with stage(level) as cast:
            old = await begun(cast)
            await old.transaction("1")
            await trio.sleep(1)
            new = await client_of(cast)
            await new.write("2")
            old = await restarted(cast, old)
            asked = _requests(cast)
            await told(ErrorCode.PRODUCER_FENCED, old.add(), old.end())
            assert asked == []
            await new.end()
            assert cast.read() == ["1", "2"]

    async def test_nothing_is_asked_in_the_name_of_a_client_that_was_replaced_twice(self, level: int) -> None:
        async with stage(level) as cast:
            old = await begun(cast)
            await old.transaction("1")
            await trio.sleep(1)
            new = await client_of(cast)
            await new.init()
            old = await restarted(cast, old)
            asked = _requests(cast)
            await told(ErrorCode.PRODUCER_FENCED, old.add(), old.end())
            assert asked == []

    async def test_once_the_broker_has_refused_it_nothing_is_asked_again(self, level: int) -> None:
        """Neither by the kproxy that comes next."""
        async with stage(level) as cast:
            old = await begun(cast)
            await old.transaction("1")
            await trio.sleep(1)
            new = await client_of(cast)
            old = await restarted(cast, old)
            await told(ErrorCode.PRODUCER_FENCED, old.add())
            asked = _requests(cast)
            await told(ErrorCode.PRODUCER_FENCED, old.add(), old.end())
            await trio.sleep(1)
            old = await restarted(cast, old)
            await told(ErrorCode.PRODUCER_FENCED, old.add(), old.end(), old.init(old.producer))
            assert asked == []
            await new.transaction("2")

    @pytest.mark.parametrize("distance", [-1, 1], ids=["lower", "higher"])
    async def test_a_transaction_of_another_producer_id_is_left_alone(self, level: int, distance: int) -> None:
        async with stage(level) as cast:
            old = await begun(cast)
            await old.transaction("1")
            await trio.sleep(1)
            owner = cast.server.cluster.transactional_ids["id"]
            owner.producer_id += distance
            old = await restarted(cast, old)
            asked = _requests(cast)
            await told(UNKNOWN, old.add())
            assert asked == []

    async def test_a_client_that_was_replaced_here_is_fenced(self, level: int) -> None:
        async with stage(level) as cast:
            old = await begun(cast)
            new = Client(old.kproxy)
            await new.init()
            new = await restarted(cast, new)
            old = replace(old, kproxy=new.kproxy)
            await told(ErrorCode.PRODUCER_FENCED, old.add(), old.end(), old.init(old.producer))
            assert old.kproxy.stats.transactions.fenced == 3
            await told(UNKNOWN, replace(old, producer=Producer(new.producer.producer_id + 1, 0)).add())
            await new.transaction("1")

    async def test_a_client_that_was_replaced_here_by_one_of_the_second_protocol_is_fenced(self, level: int) -> None:
        """The newer one begins again, as its epoch is not in the log; but that the older one was replaced is."""
        async with stage(level) as cast:
            old = await begun(cast)
            new = Client(old.kproxy, second=True)
            await new.init()
            first = new.producer
            await new.transaction("1")
            await new.transaction("2")
            await trio.sleep(1)  # what nobody waits for is in the log
            new = await restarted(cast, new)
            old = replace(old, kproxy=new.kproxy)
            await told(ErrorCode.PRODUCER_FENCED, old.add(), old.end(), old.init(old.producer))
            await told(UNKNOWN, new.end(), replace(new, producer=first).end())
            await new.init(new.producer)
            await new.transaction("3")
            assert cast.read() == ["1", "2", "3"]

    async def test_another_instance_does_not_continue(self, level: int) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1")
            elsewhere = replace(client, kproxy=await cast.kproxy(**{**OPTIONS, "instance_id": "another"}))
            await told(UNKNOWN, elsewhere.add())
            await client.transaction("2")


class TestWithoutTheLog:
    async def test_nothing_is_kept_of_clients_for_which_kproxy_is_the_producer(self) -> None:
        async with stage() as cast:
            client = await cast.client(**OPTIONS)
            await client.write("1")
            await client.end()
            await trio.sleep(1)
            assert entries(cast) == []

    async def test_data_wait_until_the_next_kproxy_would_know_their_epoch(self) -> None:
        async with stage(1) as cast:
            client = await begun(cast)
            await client.transaction("1")
            await trio.sleep(1)
            refused = cast.server.cluster.control(ApiKey.PRODUCE, _to_state)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.write, "2")
                await trio.sleep(2)
                assert cast.read(committed=False) == ["1"]
                cast.server.cluster.controls.remove(refused)
            assert cast.read(committed=False) == ["1", "2"]

    @pytest.mark.parametrize("option", ["crash_recovery_enable", "idempotence_enable"])
    async def test_clients_begin_again_where_nothing_is_kept(self, option: str) -> None:
        async with stage() as cast:
            client = await client_of(cast, **OPTIONS, **{option: False})
            await client.transaction("1")
            client = await restarted(cast, client)
            await told(UNKNOWN, client.add())
            assert entries(cast) == []

    async def test_clients_begin_again_where_the_broker_describes_nothing(self) -> None:
        async with stage() as cast:
            cast.server.cluster.control(ApiKey.API_VERSIONS, lambda call: Edit(_without_descriptions))
            client = await begun(cast)
            await client.transaction("1")
            client = await restarted(cast, client)
            await told(UNKNOWN, client.add())
            await client.init()
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_transactions_continue_while_it_takes_nothing(self) -> None:
        async with stage() as cast:
            client = await begun(cast)
            await client.transaction("1")
            await trio.sleep(1)
            kept = len(entries(cast))
            refused = cast.server.cluster.control(ApiKey.PRODUCE, _to_state)
            with structlog.testing.capture_logs() as lines:
                for value in "2345":
                    await client.transaction(value)
            assert (cast.read(), len(entries(cast))) == ([*"12345"], kept)
            assert client.kproxy.stats.transactions.unrecorded >= 1
            assert [line["transactional_id"] for line in lines if "log of producer ids is slow" in line["event"]] == [
                "id"
            ]
            cast.server.cluster.controls.remove(refused)
            client = await restarted(cast, client)
            await told(ErrorCode.PRODUCER_FENCED, client.add())
            await client.init()
            await client.transaction("6")
            assert cast.read() == [*"123456"]

    @LEVELS
    @pytest.mark.parametrize("killed", [False, True], ids=["", "killed again"])
    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    async def test_a_client_continues_once_it_takes_the_outcome(
        self, level: int, killed: bool, committed: bool
    ) -> None:
        async with stage(level) as cast:
            client = await begun(cast)
            await client.transaction("1", committed=committed)
            await client.write("2")
            client = await restarted(cast, client)
            refused = cast.server.cluster.control(ApiKey.PRODUCE, _to_state)
            await told(ErrorCode.COORDINATOR_NOT_AVAILABLE, client.end())
            if killed:
                client = await restarted(cast, client)
            cast.server.cluster.controls.remove(refused)
            await trio.sleep(1)
            await told(ABORTABLE, client.add(1), client.end())
            await client.end(committed=False)
            await client.transaction("3")
            assert cast.read() == (["1", "3"] if committed else ["3"])

    async def test_clients_of_the_second_protocol_begin_again(self) -> None:
        async with stage() as cast:
            client = await begun(cast, second=True)
            await client.transaction("1")
            await trio.sleep(1)  # what nobody waits for is in the log
            client = await restarted(cast, client)
            await told(UNKNOWN, client.end())
            await client.init()
            await client.write("2")
            client = await restarted(cast, client)
            await told(UNKNOWN, client.end())


def _slow_end(call: Any) -> Delay:
    return Delay(before=0.9 if call.request.committed else 0.85)


def _to_state(call: Any) -> Close | None:
    return Close() if call.request.topic_data[0].name == STATE else None


def _edit(error: ErrorCode) -> Callable[[Any], Edit]:
    """The broker does what it is asked for, and answers so."""

    def edit(answer: Any) -> None:
        answer.error_code = error

    return lambda call: Edit(edit)


def _requests(cast: Stage) -> list[str]:
    """What the broker is asked for in the name of the id from now on."""
    asked: list[str] = []

    def note(call: Any) -> None:
        if call.request.transactional_id == "id":
            asked.append(type(call.request).__name__)

    for key in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
        cast.server.cluster.control(key, note)
    return asked


def _without_descriptions(answer: Any) -> None:
    answer.api_keys = [row for row in answer.api_keys if row.api_key != ApiKey.DESCRIBE_TRANSACTIONS]


async def test_entries_end_with_what_the_brokers_know() -> None:
    async with stage() as cast:
        client = await begun(cast, transactional_id_timeout_ms=100_000)
        await client.transaction("1")
        await trio.sleep(200 + broker_owners._SWEEP_SECONDS)
        key, value = entries(cast)[-1]
        assert (key, value) == (entries(cast)[0][0], None)


async def test_what_a_former_kproxy_left_is_deleted_once_it_is_old() -> None:
    async with stage() as cast:
        client = await begun(cast)
        await client.transaction("1")
        await trio.sleep(1)  # what nobody waits for is in the log
        await client.kproxy.kill()
        await cast.kproxy(**OPTIONS, transactional_id_timeout_ms=1_000)
        await trio.sleep(2 * broker_owners._SWEEP_SECONDS)
        assert entries(cast)[-1] == (entries(cast)[0][0], None)


async def test_a_log_in_which_nothing_is_old_is_not_read_again() -> None:
    asked: list[str] = []

    def note(call: Any) -> None:
        asked.extend(topic.name for topic in call.request.topics)

    async with stage() as cast:
        client = await begun(cast)
        await client.transaction("1")
        await trio.sleep(1)
        await client.kproxy.kill()
        cast.server.cluster.control(ApiKey.LIST_OFFSETS, note)
        await cast.kproxy(**OPTIONS)
        await trio.sleep(70)  # a process looks after a minute whether another one has its instance.id
        reads_at_start = asked.count(STATE)
        await trio.sleep(2 * broker_owners._SWEEP_SECONDS)
        assert asked.count(STATE) == reads_at_start > 0
