"""What a transaction writes is in the logs, in order, and once for a reader."""

import uuid
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.metadata import MetadataResponse
from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import read_header
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from kproxy.net.brokers import pipelined_client
from kproxy.net.txn.writer import TransactionWriter
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker import Answer, Call, Close, CloseAfter, Drop, Edit
from kproxy.testing.fake_broker.controls import Fault
from kproxy.testing.kafka import RealKafka
from kproxy.txn.procedures.outside import WriteTerms
from kproxy.txn.writes import GIVEN_UP, STATE_LOST
from tests.net.harness import eventually
from tests.net.txn.writer_harness import EPOCH, PID, Writing, batch, connections, seen, stored, writing

Function = Callable[[Call], Fault | Awaitable[Fault | None] | None]


def answer(call: Call, error: int, base_offset: int = -1) -> Answer:
    """A response that says the same of all partitions; nothing is written."""
    topics = [
        ProduceResponseTopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                ProduceResponsePartitionProduceResponse(index=part.index, error_code=error, base_offset=base_offset)
                for part in topic.partition_data
            ],
        )
        for topic in call.request.topic_data
    ]
    return Answer(ProduceResponse(responses=topics))


def said(error: int) -> Callable[[Call], Answer]:
    """The broker writes nothing and says so."""
    return lambda call: answer(call, error)


def instead(error: int) -> Edit:
    """The batch is written, and the broker says something else."""

    def change(response: object) -> None:
        for topic in response.responses:  # type: ignore[attr-defined]
            for row in topic.partition_responses:
                row.error_code, row.base_offset = error, -1

    return Edit(change)


def refused(index: int, error: int) -> Function:
    """One partition's batches are refused; others, also of the same request, are written."""
    row = ProduceResponsePartitionProduceResponse(index=index, error_code=error, base_offset=-1)

    def add(response: object) -> None:
        response.responses[0].partition_responses.append(row)  # type: ignore[attr-defined]

    def control(call: Call) -> Fault | None:
        (topic,) = call.request.topic_data
        others = [part for part in topic.partition_data if part.index != index]
        if len(others) == len(topic.partition_data):
            return None
        topic.partition_data = others
        return Edit(add)

    return control


def indexes(call: Call) -> list[int]:
    """The partitions of a Produce request, in its order."""
    return [part.index for topic in call.request.topic_data for part in topic.partition_data]


def written(call: Call, base_offset: int = 0) -> Answer:
    """The broker says that all is written."""
    return answer(call, 0, base_offset)


async def turns(count: int) -> None:
    """So many turns of the event loop pass."""
    for _ in range(count):
        await trio.lowlevel.checkpoint()


def holds(call: Call, value: bytes) -> bool:
    """Whether a Produce request has a value in it."""
    return any(value in bytes(part.records)[61:] for topic in call.request.topic_data for part in topic.partition_data)


def at(value: bytes, *faults: Fault | Callable[[Call], Fault | None]) -> Function:
    """A control function: the next of these for each request that holds a value."""
    left = list(faults)

    def control(call: Call) -> Fault | None:
        if not left or not holds(call, value):
            return None
        fault = left.pop(0)
        return fault(call) if callable(fault) else fault

    return control


async def write_five(w: Writing) -> None:
    """One record is written, four are sent at once after it."""
    await w.write(b"0")
    sends = [w.accept(b"%d" % n) for n in range(1, 5)]
    assert await w.settled(*sends) == [0] * 4
    assert w.visible() == [b"%d" % n for n in range(5)]
    offsets = {(row.offset, row.value) for row in w.log()}
    assert {(send.base_offset, b"%d" % n) for n, send in enumerate(sends, 1)} <= offsets


class TestRequests:
    async def test_batches_for_one_leader_go_as_one_request_that_names_topics_by_id(self) -> None:
        asked: list[tuple[int, int, int]] = []

        def note(call: Call) -> None:
            size = sum(len(topic.partition_data) for topic in call.request.topic_data)
            asked.append((call.broker_id, size, call.version))
            assert (call.request.acks, call.request.transactional_id) == (-1, None)

        async with writing(2, 6) as w:
            w.brokers.control(ApiKey.PRODUCE, note)
            sends = w.writer.accept([batch(b"a", b"b", index=index) for index in range(6)])
            assert await w.settled(*sends) == [0] * 6
            assert sorted(asked) == [(1, 3, 13), (2, 3, 13)]
            assert w.writer.written() == {("t", index): (2, (), 0) for index in range(6)}
            assert all(w.visible(index) == [b"ab"] for index in range(6))
            assert (w.stats.produce.batches_stamped, w.stats.produce.records_stamped) == (6, 12)

    async def test_five_are_in_flight_at_a_time_and_the_first_goes_alone(self) -> None:
        gates = [trio.Event(), trio.Event()]
        began: list[bytes] = []
        async with writing() as w:

            async def hold(call: Call) -> None:
                began.append(bytes(call.request.topic_data[0].partition_data[0].records)[-2:-1])
                await gates[len(began) > 1].wait()

            w.brokers.control(ApiKey.PRODUCE, hold)
            sends = [w.accept(b"%d" % n) for n in range(9)]
            await eventually(lambda: len(began) == 1)
            assert [send.in_flight for send in sends] == [True] + [False] * 8
            gates[0].set()
            await eventually(lambda: sends[0].settled and sends[5].in_flight)
            assert [send.in_flight for send in sends[1:]] == [True] * 5 + [False] * 3
            assert w.stats.produce.sends_in_flight == 8
            gates[1].set()
            assert await w.settled(*sends) == [0] * 9
            assert w.visible() == [b"%d" % n for n in range(9)]
            assert began == w.visible()

    async def test_what_comes_for_other_partitions_waits_for_the_answer_that_is_due_and_goes_together(self) -> None:
        gate, asked = trio.Event(), list[list[int]]()

        async def hold(call: Call) -> None:
            asked.append(indexes(call))
            await gate.wait()

        async with writing(1, 5) as w:
            w.brokers.control(ApiKey.PRODUCE, hold)
            sends = [w.accept(b"a", index=0)]
            await eventually(lambda: sends[0].in_flight)
            sends += [w.accept(b"a", index=index) for index in range(1, 5)]
            await trio.testing.wait_all_tasks_blocked()
            assert [send.in_flight for send in sends] == [True] + [False] * 4
            gate.set()
            assert await w.settled(*sends) == [0] * 5
            assert asked == [[0], [1, 2, 3, 4]]

    async def test_much_for_other_partitions_does_not_wait(self) -> None:
        gate = trio.Event()

        async def hold(_: Call) -> None:
            await gate.wait()

        async with writing(1, 2) as w:
            w.brokers.control(ApiKey.PRODUCE, hold)
            sends = [w.accept(b"a", index=0)]
            await eventually(lambda: sends[0].in_flight)
            sends.append(w.accept(bytes(70_000), index=1))
            await eventually(lambda: sends[1].in_flight)
            assert not sends[0].settled
            gate.set()
            assert await w.settled(*sends) == [0, 0]

    async def test_connections_are_kept_for_the_next_transaction(self) -> None:
        used: set[int] = set()
        async with writing() as w:
            w.brokers.control(ApiKey.PRODUCE, lambda call: used.add(call.connection))
            await w.write(b"a", b"b")
            assert w.visible() == [b"a", b"b"]
            w.replace()
            await w.write(b"c")
            assert w.visible() == [b"c"]
            assert w.writer.written() == {("t", 0): (3, (), 2)}
        assert len(used) == 1

    async def test_room_is_bounded_and_one_larger_batch_goes_alone(self) -> None:
        gate = trio.Event()
        async with writing(connection_buffer_bytes=65_536) as w:

            async def hold(_: Call) -> None:
                await gate.wait()

            w.brokers.control(ApiKey.PRODUCE, hold)
            await w.writer.room(1 << 30)
            first = w.accept(bytes(50_000))
            left = 65_536 - w.writer._writes.held_bytes
            assert w.writer.has_room(left)
            assert not w.writer.has_room(left + 1)
            await w.writer.room(10_000)
            with trio.move_on_after(0.05) as waited:
                await w.writer.room(20_000)
            assert waited.cancelled_caught
            gate.set()
            with trio.fail_after(120):
                await w.writer.room(20_000)
            assert first.settled

    async def test_flush_waits_for_all(self) -> None:
        async with writing(1, 3) as w:
            await w.writer.flush()
            sends = [w.accept(b"%d" % n, index=n % 3) for n in range(30)]
            with pytest.raises(LocalProtocolError):
                w.writer.written()
            with trio.fail_after(120):
                await w.writer.flush()
            assert all(send.settled and not send.error_code for send in sends)
            assert w.writer.written()["t", 2].end_offset == 10

    async def test_a_writer_with_nothing_to_send_has_no_task(self) -> None:
        """Else each committed transaction would leave one."""
        async with writing() as w:
            await w.write(b"a", b"b")
            await eventually(lambda: len(w.connections.nursery.child_tasks) == len(w.connections._clients))
            await w.write(b"c")
            assert w.visible() == [b"a", b"b", b"c"]

    @pytest.mark.parametrize("empties", [True, False], ids=["waits", "not-for-ever"])
    async def test_batches_of_a_transaction_of_the_brokers_name_it_and_gather_from_the_line(
        self, empties: bool
    ) -> None:
        asked: list[list[int]] = []

        def note(call: Call) -> Answer:
            (topic,) = call.request.topic_data
            assert (call.request.transactional_id, call.version) == ("id", 11)
            assert all(read_header(bytes(part.records)).is_transactional for part in topic.partition_data)
            asked.append(indexes(call))
            return written(call)

        async with writing(1, 2) as w:
            for index in range(2):
                await w.write(b"connects, and learns the leader", index=index)
            line = ["next"]
            w.writer = TransactionWriter(w.connections, 7, EPOCH, WriteTerms("id", 11, line))
            w.brokers.control(ApiKey.PRODUCE, note)
            sends = [w.accept(b"a")]
            if empties:
                await turns(50)
                sends.append(w.accept(b"b", index=1))
                line.clear()
            assert await w.settled(*sends) == [0] * len(sends)
            assert asked == [list(range(len(sends)))]

    async def test_calls_in_the_line_are_waited_for_for_a_hundred_turns_if_nothing_is_open(self) -> None:
        async with writing(1, 22) as w:
            for index in range(22):
                await w.write(b"learns the leader", index=index)
            send = w.accept(b"nobody is in a line")
            await turns(5)
            assert send.attempts == 1
            await w.writer.flush()
            line = ["next"]
            w.writer = TransactionWriter(w.connections, 7, EPOCH, WriteTerms("id", 11, line))
            rounds = [go := trio.Event()]

            async def answer(call: Call) -> Answer:
                await go.wait()
                return written(call, len(rounds))

            w.brokers.control(ApiKey.PRODUCE, answer)
            for empties in (False, True, False):
                sends = [w.accept(b"a", index=index) for index in range(20)]
                await turns(10 if empties else 90)
                assert not any(send.in_flight for send in sends)
                if empties:
                    line.clear()
                await turns(20)
                assert all(send.in_flight for send in sends)
                line[:] = ["another"]
                sends.append(w.accept(bytes(70_000), index=20))
                await turns(5)
                assert sends[-1].in_flight
                go.set()
                assert await w.settled(*sends) == [0] * 21
                rounds.append(go := trio.Event())

    async def test_a_request_holds_as_much_as_a_connection_may_and_a_larger_batch_goes_alone(self) -> None:
        around = len(batch(bytes(32_000))[2]) - 32_000
        asked: list[list[int]] = []
        async with writing(1, 4, connection_buffer_bytes=65_536) as w:
            for index in range(4):
                await w.write(b"learns the leader", index=index)
            w.replace()
            w.brokers.control(ApiKey.PRODUCE, lambda call: asked.append(indexes(call)))
            half = bytes(32_768 - around)
            values = [half, half, b"small", bytes(70_000)]
            sends = w.writer.accept([batch(value, index=index) for index, value in enumerate(values)])
            assert len(sends[0].batch) == 32_768
            assert await w.settled(*sends) == [0] * 4
        assert asked == [[0, 1], [2], [3]]

    async def test_what_follows_in_its_partition_takes_along_what_is_for_others(self) -> None:
        go = trio.Event()

        async def hold(_: Call) -> None:
            await go.wait()

        async with writing(1, 2) as w:
            for index in range(2):
                await w.write(b"0", index=index)
            w.brokers.control(ApiKey.PRODUCE, hold)
            sends = [w.accept(b"1")]
            await eventually(lambda: sends[0].in_flight)
            sends += w.writer.accept([batch(b"2"), batch(b"2", index=1)])
            await turns(5)
            assert [send.in_flight for send in sends] == [True] * 3
            go.set()
            assert await w.settled(*sends) == [0] * 3

    async def test_no_more_is_sent_than_a_connection_has_room_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pipelined_client, "_MOST_REQUESTS", 2)
        go = trio.Event()

        async def hold(_: Call) -> None:
            await go.wait()

        async with writing() as w:
            await w.write(b"0")
            w.brokers.control(ApiKey.PRODUCE, hold)
            sends = []
            for number in range(1, 5):
                sends.append(w.accept(b"%d" % number))
                await turns(5)
            assert [send.in_flight for send in sends] == [True, True, False, False]
            go.set()
            assert await w.settled(*sends) == [0] * 4
            assert w.visible() == [b"0", b"1", b"2", b"3", b"4"]

    async def test_what_is_not_whole_is_refused(self) -> None:
        async with writing() as w:
            topic, index, data, count = batch(b"a")
            with pytest.raises(RemoteProtocolError):
                w.writer.accept([(topic, index, data[:-1], count)])
            await w.write(b"b")
            assert w.writer.failed is None


class TestWhen:
    @pytest.mark.idle_clock
    async def test_a_partition_that_backs_off_for_long_delays_no_other(self) -> None:
        async with writing(1, 2, retry_backoff_ms=100, retry_backoff_max_ms=60_000) as w:
            w.brokers.control(ApiKey.PRODUCE, refused(1, ErrorCode.NOT_ENOUGH_REPLICAS))
            began = trio.current_time()
            stuck = w.accept(b"stuck", index=1)
            await trio.sleep(30)  # it is tried again after 0.1, 0.2, 0.4 ... 25.6 seconds
            w.brokers.control(ApiKey.PRODUCE, at(b"0", said(ErrorCode.NOT_ENOUGH_REPLICAS)))
            await w.write(b"0")
            assert not stuck.settled
            assert trio.current_time() < began + 31
            w.writer.abandon()

    async def test_a_leader_and_a_connection_are_searched_once_for_all_that_waits(self) -> None:
        asked: list[ApiKey] = []
        for key in (ApiKey.METADATA, ApiKey.API_VERSIONS):
            go = trio.Event()

            async def hold(call: Call, key: ApiKey = key, go: trio.Event = go) -> None:
                if key != ApiKey.METADATA or call.request.topics:  # else: which cluster a broker belongs to
                    asked.append(key)
                    await go.wait()

            async with writing(1, 3) as w:
                w.brokers.control(key, hold)
                sends = []
                for index in range(3):
                    sends.append(w.accept(b"a", index=index))
                    await eventually(lambda: key in asked)  # noqa: B023 - called at once
                    await trio.testing.wait_all_tasks_blocked()
                    assert len(w.connections.nursery.child_tasks) == 1
                go.set()
                assert await w.settled(*sends) == [0] * 3
        assert asked.count(ApiKey.METADATA) <= 2

    async def test_a_connection_that_is_lost_is_made_once_for_all_that_waits(self) -> None:
        go, asked = trio.Event(), list[int]()

        async def hold(call: Call) -> None:
            asked.append(call.connection)
            await go.wait()

        async with writing(1, 3) as w:
            for index in range(3):
                await w.write(b"a", index=index)
            for client in w.connections._clients.values():
                client.close()
            await eventually(lambda: not w.connections.nursery.child_tasks)
            w.brokers.control(ApiKey.API_VERSIONS, hold)
            sends = []
            for index in range(3):
                sends.append(w.accept(b"b", index=index))
                await eventually(lambda: bool(asked))
                await trio.testing.wait_all_tasks_blocked()
                assert len(w.connections.nursery.child_tasks) == 1
            go.set()
            assert await w.settled(*sends) == [0] * 3

    @pytest.mark.parametrize(
        ("served", "version"), [((0, 2), None), ((0, 3), 3), ((12, 14), 13), ((14, 15), None)], ids=str
    )
    async def test_a_broker_whose_requests_the_writer_does_not_speak_gets_none(
        self, served: tuple[int, int], version: int | None
    ) -> None:
        def other(message: Any) -> None:
            for row in message.api_keys:
                if row.api_key == ApiKey.PRODUCE:
                    row.min_version, row.max_version = served

        asked: list[int] = []
        async with writing() as w:
            w.brokers.control(ApiKey.API_VERSIONS, lambda _: Edit(other))
            w.brokers.control(ApiKey.PRODUCE, lambda call: asked.append(call.version))
            send = w.accept(b"a")
            await eventually(lambda: send.settled or w.stats.upstream.errors.get("transaction_writer", 0) >= 2)
            assert send.settled is (version is not None)
            assert asked == ([] if version is None else [version])


class TestResends:
    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            (said(ErrorCode.NOT_ENOUGH_REPLICAS), "not_now"),
            (said(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "not_now"),
            (said(ErrorCode.REQUEST_TIMED_OUT), "open"),
            (said(ErrorCode.KAFKA_STORAGE_ERROR), "open"),
            (instead(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), "open"),
            (instead(ErrorCode.NOT_LEADER_OR_FOLLOWER), "open"),
            (instead(ErrorCode.UNKNOWN_SERVER_ERROR), "open"),
            (Answer(ProduceResponse()), "open"),
            (Close(), "open"),
            (CloseAfter(), "open"),
        ],
    )
    @pytest.mark.parametrize("value", [b"0", b"1", b"4"])
    async def test_what_is_not_definite_is_sent_again_in_order(self, fault: Fault, reason: str, value: bytes) -> None:
        async with writing() as w:
            w.brokers.control(ApiKey.PRODUCE, at(value, fault))
            await write_five(w)
            assert [row.value for row in w.log()] == [b"%d" % n for n in range(5)], "nothing is there twice"
            assert w.stats.produce.resends[reason] >= 1
            copies = w.writer.written()["t", 0].copies
            assert (int(value), int(value)) in copies
            assert set(copies) <= {(n, n) for n in range(5)}

    async def test_only_what_is_sent_again_is_counted_and_a_lost_connection_is_an_error(self) -> None:
        async with writing() as w:
            await w.write(b"0")
            assert w.stats.produce.resends == {}
            not_now = said(ErrorCode.NOT_ENOUGH_REPLICAS)
            w.brokers.control(ApiKey.PRODUCE, at(b"1", not_now, not_now, Close()))
            await w.write(b"1")
            assert w.stats.produce.resends == {"not_now": 2, "open": 1}
            assert w.stats.upstream.errors == {"transaction_writer": 1}

    @pytest.mark.idle_clock
    async def test_a_broker_that_does_not_answer_counts_as_lost(self) -> None:
        async with writing(upstream_request_timeout_ms=50) as w:
            w.brokers.control(ApiKey.PRODUCE, at(b"2", Drop(apply=False)))
            await write_five(w)

    async def test_to_the_new_leader(self) -> None:
        async with writing(3) as w:
            leaders: list[int] = []
            w.brokers.control(ApiKey.PRODUCE, lambda call: leaders.append(call.broker_id))

            def move(_: Call) -> None:
                leader = w.partition().leader
                w.brokers.move_leader("t", 0, next(node for node in (1, 2, 3) if node != leader))

            w.brokers.control(ApiKey.PRODUCE, at(b"2", move, move))
            await write_five(w)
            assert [row.value for row in w.log()] == [b"%d" % n for n in range(5)]
            assert len(set(leaders)) >= 2

    async def test_when_a_broker_dies_and_there_is_no_leader_for_a_while(self) -> None:
        async with writing(2) as w:
            await w.write(b"0")
            one, two = w.partition().leader, 3 - w.partition().leader
            w.brokers.shrink_isr(two)
            await w.fake.stop_broker(two)
            await w.fake.stop_broker(one)
            sends = [w.accept(b"1"), w.accept(b"2")]
            await eventually(lambda: w.stats.upstream.errors.get("transaction_writer", 0) >= 3)
            await w.fake.start_broker(one)
            assert await w.settled(*sends) == [0, 0]
            assert w.visible() == [b"0", b"1", b"2"]
            await w.fake.start_broker(two)

    async def test_a_broker_that_comes_back_may_serve_other_versions(self) -> None:
        async with writing() as w:
            await w.write(b"0")
            (broker,) = w.connections.cluster.map.brokers.values()
            served = broker.versions
            w.brokers.control(ApiKey.PRODUCE, at(b"1", Close()))
            await w.write(b"1")
            assert broker.versions is not served

    async def test_one_partition_that_waits_holds_up_no_other(self) -> None:
        async with writing(1, 2) as w:
            w.brokers.control(ApiKey.PRODUCE, refused(0, ErrorCode.NOT_ENOUGH_REPLICAS))
            await w.write(b"a", index=1)
            stuck = w.accept(b"stuck")
            await w.write(*[b"%d" % n for n in range(20)], index=1)
            assert not stuck.settled
            w.writer.abandon()

    async def test_a_broker_that_can_not_be_reached_holds_up_no_other(self) -> None:
        async with writing(2, 2) as w:
            for broker in w.brokers.brokers.values():
                if broker.node_id == w.partition(0).leader:
                    broker.port = 1
            stuck = w.accept(b"stuck")
            await w.write(*[b"%d" % n for n in range(20)], index=1)
            assert not stuck.settled
            w.writer.abandon()

    async def test_copies_of_a_broker_that_forgot_do_not_count(self) -> None:
        """The timestamps are old: a broker that looks after its producers forgets this one at once."""
        async with writing() as w:

            def forget(_: Call) -> Fault:
                w.brokers.forget_producers("t", 0)
                w.partition().log.producers.keep_before(0)
                return Close()

            w.brokers.control(ApiKey.PRODUCE, at(b"0", CloseAfter(), forget))
            sends = [w.accept(b"0"), w.accept(b"1")]
            assert await w.settled(*sends) == [0, 0]
            assert [row.value for row in w.log()] == [b"0", b"0", b"1"]
            assert w.visible() == [b"0", b"1"]
            assert w.writer.written()["t", 0] == (3, ((0, 1),), 1)
            assert sends[0].base_offset == 1


class TestFailing:
    @pytest.mark.parametrize(
        "error", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE]
    )
    async def test_a_refusal_fails_the_transaction(self, error: ErrorCode) -> None:
        async with writing() as w:
            await w.write(b"0")
            w.brokers.control(ApiKey.PRODUCE, at(b"2", said(error)))
            sends = [w.accept(b"%d" % n) for n in range(1, 5)]
            assert await w.settled(*sends) == [0, error, GIVEN_UP, GIVEN_UP]
            assert w.writer.failed == error
            assert await w.settled(w.accept(b"5")) == [GIVEN_UP]
            with pytest.raises(LocalProtocolError):
                w.writer.written()

    async def test_a_real_refusal_of_the_broker(self) -> None:
        async with writing() as w:
            w.brokers.topics["t"].config["max.message.bytes"] = "500"
            assert await w.settled(w.accept(bytes(1000))) == [ErrorCode.MESSAGE_TOO_LARGE]

    async def test_topics_that_are_not_there(self) -> None:
        async with writing() as w:
            assert await w.settled(w.accept(b"a", topic="none")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            w.replace()
            assert await w.settled(w.accept(b"a", index=9)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    async def test_a_topic_that_is_deleted(self) -> None:
        async with writing() as w:
            await w.write(b"0")
            w.brokers.delete_topic("t")
            assert await w.settled(w.accept(b"1")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    @pytest.mark.parametrize("grown", [False, True], ids=["shorter", "longer than before"])
    async def test_a_topic_that_is_recreated_meanwhile_is_another_one(self, grown: bool) -> None:
        """What the transaction wrote before is lost, so it must not be committed."""
        async with writing() as w:
            await w.write(b"0")
            w.brokers.delete_topic("t")
            w.brokers.create_topic("t", 1)
            if grown:
                other = TransactionWriter(w.connections, PID + 1, EPOCH)
                await other.settled(other.accept([batch(*[b"x"] * 5)]))
            assert await w.settled(w.accept(b"1")) == [GIVEN_UP]
            assert w.writer.recreated == "t"
            assert w.log() == []

    async def test_brokers_without_topic_ids_are_asked_by_name(self) -> None:
        def without_ids(answer: Message) -> None:
            assert isinstance(answer, MetadataResponse)
            for topic in answer.topics:
                topic.topic_id = bytes(16)

        versions: list[int] = []
        async with writing() as w:
            w.brokers.control(ApiKey.METADATA, lambda _: Edit(without_ids))
            w.brokers.control(ApiKey.PRODUCE, lambda call: versions.append(call.version))
            await w.write(b"0", b"1")
            assert (versions, w.visible()) == ([12, 12], [b"0", b"1"])

    async def test_state_that_is_lost_after_an_open_outcome(self) -> None:
        async with writing() as w:
            await w.write(b"0")

            def truncate(_: Call) -> Fault:
                w.partition().log.truncate(0)
                w.partition().log.producers.marker(PID, EPOCH, 0, 0)
                return Close()

            w.brokers.control(ApiKey.PRODUCE, at(b"1", truncate))
            sends = [w.accept(b"1"), w.accept(b"2")]
            assert await w.settled(*sends) == [STATE_LOST, GIVEN_UP]
            assert w.writer.failed == STATE_LOST

    @pytest.mark.idle_clock
    async def test_what_may_be_in_the_log_is_sent_again_less_often_and_for_five_minutes(self) -> None:
        """The broker may have forgotten the producer then, and takes the same batch twice."""
        async with writing(retry_backoff_ms=100, retry_backoff_max_ms=60_000) as w:
            await w.write(b"0")
            asked: list[float] = []

            def cut(call: Call) -> Close:
                asked.append(trio.current_time() - began)
                return Close()

            w.brokers.control(ApiKey.PRODUCE, cut)
            began = trio.current_time()
            sends = [w.accept(b"1"), w.accept(b"2")]
            with trio.fail_after(500):
                await w.writer.settled(sends)
            assert [send.error_code for send in sends] == [STATE_LOST, GIVEN_UP]
            doubled = [0.1 * (2**n - 1) for n in range(11)]
            assert asked == pytest.approx([*doubled, doubled[-1] + 60, doubled[-1] + 120, doubled[-1] + 180], abs=0.005)

    async def test_fenced_by_a_higher_epoch(self) -> None:
        async with writing() as w:
            await w.write(b"0")
            w.partition().log.append_marker(PID, EPOCH + 5, False, 0, 0, 0)
            assert await w.settled(w.accept(b"1")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
            assert w.writer.failed == ErrorCode.INVALID_PRODUCER_EPOCH

    async def test_abandoned_nothing_is_sent_again(self) -> None:
        async with writing() as w:
            seen: list[bytes] = []

            def refuse(call: Call) -> Fault | None:
                if holds(call, b"next"):
                    return None
                seen.append(b"")
                return answer(call, ErrorCode.NOT_ENOUGH_REPLICAS)

            w.brokers.control(ApiKey.PRODUCE, refuse)
            send = w.accept(b"0")
            await eventually(lambda: len(seen) >= 3)
            w.writer.abandon(ErrorCode.INVALID_PRODUCER_EPOCH)
            assert await w.settled(send) == [ErrorCode.INVALID_PRODUCER_EPOCH]
            count = len(seen)
            w.replace()
            await w.write(b"next")
            assert len(seen) <= count + 1
            assert w.visible() == [b"next"]

    async def test_what_an_abandoned_one_has_in_flight_holds_up_no_other(self) -> None:
        async with writing() as w:
            asked: list[int] = []

            async def hang(call: Call) -> None:
                if holds(call, b"hangs"):
                    asked.append(call.connection)
                    await trio.sleep_forever()

            w.brokers.control(ApiKey.PRODUCE, hang)
            send = w.accept(b"hangs")
            await eventually(lambda: len(asked) == 1)
            (broker,) = w.connections.cluster.map.brokers.values()
            served = broker.versions
            w.writer.abandon()
            assert await w.settled(send) == [GIVEN_UP]
            w.replace()
            await w.write(b"next")
            assert broker.versions is served, "the broker has done nothing to be asked again"

    async def test_a_caller_that_waits_for_room_continues_when_it_fails(self) -> None:
        async with writing(connection_buffer_bytes=65_536) as w:
            w.brokers.control(ApiKey.PRODUCE, said(ErrorCode.NOT_ENOUGH_REPLICAS))
            w.accept(bytes(60_000))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(w.writer.room, 60_000)
                nursery.start_soon(w.writer.flush)
                w.writer.abandon()

    async def test_connections_that_are_closed_make_no_new_ones(self) -> None:
        async with writing() as w:
            w.connections.close()
            send = w.accept(b"0")
            await eventually(lambda: w.stats.upstream.errors.get("transaction_writer", 0) >= 2)
            assert not send.settled


class Chaos:
    """Faults drawn from a seed, for each Produce request."""

    def __init__(self, w: Writing, seed: int, forgetful: bool) -> None:
        self.random = Random(seed)
        self.w = w
        self.left = self.random.randrange(3, 25)
        self.forgetful = forgetful

    def __call__(self, call: Call) -> Fault | None:
        draw = self.random.random()
        if draw > 0.5 or not self.left:
            return None
        self.left -= 1
        if draw < 0.1:
            self.move()
            return None
        if draw < 0.18 and self.forgetful:
            index = self.random.randrange(len(self.w.brokers.topics["t"].partitions))
            self.w.partition(index).log.producers.keep_before(0)
            return None
        return self.random.choice(
            [
                Close(),
                CloseAfter(),
                instead(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
                instead(ErrorCode.REQUEST_TIMED_OUT),
                Answer(ProduceResponse()),
                answer(call, ErrorCode.NOT_ENOUGH_REPLICAS),
            ]
        )

    def move(self) -> None:
        index = self.random.randrange(len(self.w.brokers.topics["t"].partitions))
        self.w.brokers.move_leader("t", index, self.random.choice([1, 2, 3]))


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_under_any_faults_what_is_reported_is_what_a_reader_sees(seed: int, forgetful: bool) -> None:
    async with writing(3, 3, retry_backoff_ms=1, retry_backoff_max_ms=3) as w:
        random = Random(seed)
        chaos = Chaos(w, seed, forgetful)
        w.brokers.control(ApiKey.PRODUCE, chaos)
        accepted: dict[int, list[tuple[bytes, object]]] = {0: [], 1: [], 2: []}
        sends = []
        for _ in range(40):
            chosen = random.sample(range(3), random.randrange(1, 4))
            values = {index: [b"%d." % len(accepted[index])] * random.randrange(1, 4) for index in chosen}
            made = w.writer.accept([batch(*rows, index=index) for index, rows in values.items()])
            for send in made:
                accepted[send.place[1]].append((b"".join(values[send.place[1]]), send))
            sends += made
            if random.random() < 0.3:
                await trio.sleep(random.random() * 0.004)
        with trio.fail_after(20):
            await w.writer.settled(sends)
        if not forgetful:
            assert w.writer.failed is None
        if w.writer.failed is not None:
            return
        chaos.left = 0
        for index, rows in accepted.items():
            assert w.visible(index) == [value for value, _ in rows]
            in_log = {(row.offset, row.value) for row in w.log(index)}
            assert {(send.base_offset, value) for value, send in rows} <= in_log  # type: ignore[attr-defined]
            last = rows[-1][1]
            assert w.writer.written()["t", index].end_offset == last.base_offset + last.records  # type: ignore[attr-defined]


@pytest.mark.kafka
async def test_on_a_real_broker(kafka: RealKafka) -> None:
    topic = f"txn-writer-{uuid.uuid4().hex[:12]}"
    with ClusterClient(kafka.bootstrap, timeout=12) as client:
        client.create_topic(topic, partitions=2)
        async with connections(kafka.bootstrap) as (stats, pool):
            for epoch in (EPOCH, EPOCH + 1):
                writer = TransactionWriter(pool, PID, epoch)
                sends = []
                for n in range(40):
                    values = b"%d." % n, b"%d;" % n
                    sends += writer.accept([batch(*values, index=index, topic=topic) for index in (0, 1)])
                    if n in (10, 20, 30):
                        with trio.fail_after(120):
                            await writer.settled(sends[:n])
                        for broker in pool.cluster.map.brokers.values():
                            lost = pool.client(broker)
                            if lost is not None:  # on a busy machine it may have timed out
                                lost.close()
                with trio.fail_after(120):
                    await writer.flush()
                assert writer.failed is None
                for index in (0, 1):
                    log = stored(client.read_all(topic, index), epoch)
                    written = writer.written()[topic, index]
                    assert seen(log, written) == [b"%d.%d;" % (n, n) for n in range(40)]
                    assert written.end_offset == log[-1].offset + 2
                    found = [(row.sequence, row.offset) for row in log]
                    assert found == [(send.sequence, send.base_offset) for send in sends if send.place[1] == index]
                    assert set(written.copies) <= set(found)
            assert sum(stats.produce.resends.values()) > 0
            late = TransactionWriter(pool, PID, EPOCH)
            (send,) = late.accept([batch(b"late", topic=topic)])
            with trio.fail_after(120):
                await late.settled([send])
            assert late.failed == ErrorCode.INVALID_PRODUCER_EPOCH
