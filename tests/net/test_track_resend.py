"""Sending again until each outcome is known."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
import structlog
import trio

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Answer, Call, Close, CloseAfter, Edit
from kproxy.testing.fake_broker.apis import APIS
from kproxy.testing.fake_broker.controls import Fault
from tests.net.harness import Proxied, errors_of, eventually, produce, proxied, values_in
from tests.net.retrying import Gate, batch, end, request

pytestmark = pytest.mark.idle_clock


def said(error: int) -> ProduceResponse:
    row = ProduceResponsePartitionProduceResponse(index=0, error_code=error, base_offset=-1)
    return ProduceResponse(responses=[ProduceResponseTopicProduceResponse(name="t", partition_responses=[row])])


def instead(error: int) -> Edit:
    """The batch is written, and the broker says something else."""

    def change(response: object) -> None:
        for topic in response.responses:  # type: ignore[attr-defined]
            for row in topic.partition_responses:
                row.error_code, row.base_offset = error, -1

    return Edit(change)


async def produce_three(proxy: Proxied, version: int = 8) -> list[list[int]]:
    async with await proxy.client(1) as client:
        assert errors_of(await client.call(produce("t", b"0"), version)) == [0]
        await client.stream.send_all(b"".join(client.encode(produce("t", b"%d" % n), version) for n in (1, 2, 3)))
        return [errors_of(await client.receive()) for _ in range(3)]


def at(value: bytes, fault: Fault) -> object:
    """A control function: the fault for the batch that holds a value."""
    return lambda call: fault if value in bytes(call.request.topic_data[0].partition_data[0].records)[61:] else None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Answer(said(ErrorCode.NOT_ENOUGH_REPLICAS)), "not_now"),
        (Answer(said(ErrorCode.LEADER_NOT_AVAILABLE)), "not_now"),
        (Answer(said(ErrorCode.NOT_LEADER_OR_FOLLOWER)), "open"),
        (Answer(said(ErrorCode.REQUEST_TIMED_OUT)), "open"),
        (instead(ErrorCode.REQUEST_TIMED_OUT), "open"),
        (instead(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), "open"),
        (instead(ErrorCode.NOT_LEADER_OR_FOLLOWER), "open"),
        (CloseAfter(), "open"),
    ],
)
async def test_what_is_not_definite_is_sent_again_once_and_in_order(fault: Fault, reason: str) -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, at(b"1", fault), times=1)  # type: ignore[arg-type]
        assert await produce_three(proxy) == [[0], [0], [0]]
        assert values_in(proxy.brokers, "t") == [b"0", b"1", b"2", b"3"]
        assert proxy.stats.produce.resends[reason] >= 1
        assert proxy.stats.produce.epoch_bumps == 0


@pytest.mark.parametrize("error", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
async def test_a_definite_refusal_is_answered_and_the_batches_after_it_are_written(error: int) -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, at(b"1", Answer(said(error))), times=1)  # type: ignore[arg-type]
        assert await produce_three(proxy) == [[error], [0], [0]]
        assert values_in(proxy.brokers, "t") == [b"0", b"2", b"3"]


async def test_a_broker_that_lost_the_producers_state_gets_a_new_epoch() -> None:
    """KIP-360."""
    epochs: list[tuple[int, int]] = []

    def look(call: Call) -> None:
        epochs.append(struct.unpack_from(">hi", call.request.topic_data[0].partition_data[0].records, 51))

    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        answer = Answer(said(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
        proxy.brokers.control(ApiKey.PRODUCE, look)
        proxy.brokers.control(ApiKey.PRODUCE, at(b"1", answer), times=1)  # type: ignore[arg-type]
        assert await produce_three(proxy) == [[0], [0], [0]]
        assert values_in(proxy.brokers, "t") == [b"0", b"1", b"2", b"3"]
        assert proxy.stats.produce.epoch_bumps == 1
    assert epochs[-3:] == [(1, 0), (1, 1), (1, 2)]


async def test_a_topic_that_is_deleted_meanwhile_is_believed_after_a_while() -> None:
    async with proxied(upstream_request_timeout_ms=2000) as proxy:
        proxy.brokers.create_topic("t")

        def delete(call: Call) -> Fault:
            proxy.brokers.delete_topic("t")
            return Answer(said(ErrorCode.NOT_LEADER_OR_FOLLOWER))

        async with await proxy.client(1) as client:
            proxy.brokers.control(ApiKey.PRODUCE, delete, times=1)
            answer = await client.call(produce("t", b"a"), 8)
            assert errors_of(answer) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("stays", [True, False])
async def test_a_copy_that_was_given_up_is_fenced_when_its_partition_appears(first: bool, stays: bool) -> None:
    """The partition did not exist when its batch was given up; the copy arrives before the retry, or after it."""
    async with proxied(upstream_request_timeout_ms=2000) as proxy:
        gate = Gate(proxy, b"a")
        client = await proxy.client(1)
        await client.send(request(batch(b"a")), 8)
        await gate.wait_reached()
        assert errors_of(await client.receive()) == [ErrorCode.REQUEST_TIMED_OUT]
        if not stays:
            await end(client)
            await proxy.at_rest()
            client = await proxy.client(1)
        assert errors_of(await client.call(request(batch(b"a")), 8)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        proxy.brokers.create_topic("t")
        if first:
            gate.release()
            await eventually(lambda: values_in(proxy.brokers, "t") == [b"a"])
        await client.send(request(batch(b"a")), 8)
        await eventually(lambda: proxy.stats.retries.fences == {"done": 1})
        gate.release()
        assert errors_of(await client.receive()) == [0]
        assert errors_of(await client.call(request(batch(b"b")), 8)) == [0]
        written = [value for value in values_in(proxy.brokers, "t") if value in (b"a", b"b")]
        assert written == [b"a", b"b"]
        await end(client)


async def test_a_batch_named_by_topic_id_is_sent_again_by_its_id() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        request = produce("t", b"a")
        request.topic_data[0].name, request.topic_data[0].topic_id = "", proxy.brokers.topics["t"].topic_id
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: CloseAfter(), times=1)
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(request, 13)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]


async def test_a_client_that_goes_leaves_no_batch_undecided() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Answer(said(ErrorCode.NOT_ENOUGH_REPLICAS)), times=5)
        async with await proxy.client(1) as client:
            await client.stream.send_all(b"".join(client.encode(produce("t", value), 8) for value in (b"a", b"b")))
            with_batches = proxy.stats.produce
        await proxy.at_rest()
        assert with_batches.resends
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


async def test_what_is_given_up_when_the_client_has_gone_is_given_up_in_time() -> None:
    async with proxied(delivery_timeout_ms=100) as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Answer(said(ErrorCode.NOT_ENOUGH_REPLICAS)))
        async with await proxy.client(1) as client:
            await client.send(produce("t", b"a"), 8)
        await proxy.at_rest()


def in_turn(proxy: Proxied, value: bytes, *faults: Fault | Callable[[Call], Any]) -> None:
    """What becomes of each attempt to send the batch that holds a value."""
    attempts = iter(faults)

    def control(call: Call) -> Any:
        if value not in bytes(call.request.topic_data[0].partition_data[0].records)[61:]:
            return None
        fault = next(attempts, None)
        return fault(call) if callable(fault) else fault

    proxy.brokers.control(ApiKey.PRODUCE, control)


def forgetting(proxy: Proxied) -> Callable[[Call], None]:
    """The partition's leader forgets the producers' sequences."""

    def forget(_: Call) -> None:
        for _, entry in proxy.brokers.topics["t"].partitions[0].log.producers.items():
            entry.batches.clear()

    return forget


def failing(error: int) -> Edit:
    def change(response: object) -> None:
        for marker in response.markers:  # type: ignore[attr-defined]
            marker.topics[0].partitions[0].error_code = error

    return Edit(change)


class TestFences:
    @pytest.mark.parametrize("written", [True, False])
    async def test_state_lost_while_an_answer_was_lost_makes_one_copy(self, written: bool) -> None:
        async with proxied() as proxy:
            proxy.brokers.create_topic("t")
            in_turn(proxy, b"1", CloseAfter() if written else Close(), forgetting(proxy))
            assert await produce_three(proxy) == [[0], [0], [0]]
            assert values_in(proxy.brokers, "t") == [b"0", b"1", b"2", b"3"]
            assert proxy.stats.retries.fences == {"done": 1}
            assert proxy.stats.produce.epoch_bumps == 1
            assert proxy.stats.produce.resends["fenced"] == (2 if written else 3)

    async def test_the_offset_told_is_that_of_the_copy(self) -> None:
        async with proxied() as proxy:
            proxy.brokers.create_topic("t")
            in_turn(proxy, b"b", CloseAfter(), forgetting(proxy))
            async with await proxy.client(1) as client:
                await client.call(produce("t", b"a", b"a"), 8)
                answer = await client.call(produce("t", b"b"), 8)
            assert answer.responses[0].partition_responses[0].base_offset == 2

    @pytest.mark.parametrize("others", [0, 5], ids=["alone", "with-others"])
    async def test_it_is_found_in_a_topic_that_was_deleted_and_made_again(self, others: int) -> None:
        """Its first offsets are below those that the producer had in the former topic."""

        async def remade(call: Call) -> Fault:
            proxy.brokers.delete_topic("t")
            proxy.brokers.create_topic("t")
            await APIS[ApiKey.PRODUCE].handle(call)
            for _ in range(others):
                await another.call(produce("t", b"other"), 8)
            return Close()

        async with proxied() as proxy, await proxy.client(1) as another:
            proxy.brokers.create_topic("t")
            async with await proxy.client(1) as client:
                await client.call(produce("t", b"a", b"a"), 8)
                in_turn(proxy, b"b", remade, forgetting(proxy))
                assert errors_of(await client.call(produce("t", b"b"), 8)) == [0]
            assert values_in(proxy.brokers, "t") == [b"b", *([b"other"] * others)]

    async def test_it_is_found_by_the_topics_id(self) -> None:
        async with proxied() as proxy:
            proxy.brokers.create_topic("t")
            in_turn(proxy, b"b", CloseAfter(), forgetting(proxy))
            async with await proxy.client(1) as client:
                for value in (b"a", b"b", b"c"):
                    request = produce("t", value)
                    request.topic_data[0].name, request.topic_data[0].topic_id = "", proxy.brokers.topics["t"].topic_id
                    assert errors_of(await client.call(request, 13)) == [0]
            assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c"]
            assert proxy.stats.retries.fences == {"done": 1}

    async def test_a_refusal_of_what_is_in_the_log_already_is_not_told(self) -> None:
        async with proxied() as proxy:
            proxy.brokers.create_topic("t")
            in_turn(proxy, b"1", CloseAfter(), Answer(said(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
            assert await produce_three(proxy) == [[0], [0], [0]]
            assert values_in(proxy.brokers, "t") == [b"0", b"1", b"2", b"3"]

    async def test_a_refusal_of_what_was_lost_is_answered_once_nothing_of_it_can_come_any_more(self) -> None:
        async with proxied() as proxy:
            proxy.brokers.create_topic("t")
            in_turn(proxy, b"1", Close(), Answer(said(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
            assert await produce_three(proxy) == [[ErrorCode.TOPIC_AUTHORIZATION_FAILED], [0], [0]]
            assert values_in(proxy.brokers, "t") == [b"0", b"2", b"3"]
            assert proxy.stats.retries.fences == {"done": 1}

    async def test_records_with_old_timestamps_are_not_sent_again_on_trust(self) -> None:
        """A broker forgets a producer by its records' timestamps, and would take the batch for new."""
        async with proxied() as proxy:
            proxy.brokers.create_topic("t")
            in_turn(proxy, b"a", CloseAfter())
            request = produce("t", b"")
            batch = build_batch([Record(0, 1_500_000_000_000, None, b"a", ())])
            request.topic_data[0].partition_data[0].records = bytes(batch)
            async with await proxy.client(1) as client:
                assert errors_of(await client.call(request, 8)) == [0]
            assert values_in(proxy.brokers, "t") == [b"a"]
            assert (proxy.stats.retries.fences, proxy.stats.produce.resends) == ({"done": 1}, {})

    async def test_where_markers_are_refused_it_waits_and_counts(self) -> None:
        async with proxied(upstream_request_timeout_ms=200) as proxy:
            proxy.brokers.create_topic("t")
            in_turn(proxy, b"1", CloseAfter(), forgetting(proxy))
            proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, lambda _: failing(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            began = trio.current_time()
            assert await produce_three(proxy) == [[0], [0], [0]]
            assert trio.current_time() - began >= 0.2
            assert values_in(proxy.brokers, "t") == [b"0", b"1", b"2", b"3"]
            assert proxy.stats.retries.fences == {"refused": 1}

    async def test_a_fence_that_fails_is_tried_again(self) -> None:
        async with proxied() as proxy:
            proxy.brokers.create_topic("t")
            in_turn(proxy, b"1", CloseAfter(), forgetting(proxy))
            proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, lambda _: failing(ErrorCode.INVALID_TXN_STATE), times=2)
            assert await produce_three(proxy) == [[0], [0], [0]]
            assert values_in(proxy.brokers, "t") == [b"0", b"1", b"2", b"3"]

    async def test_what_can_not_be_read_is_written_and_counted(self) -> None:
        def refuse(response: object) -> None:
            for topic in response.topics:  # type: ignore[attr-defined]
                topic.partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

        async with proxied() as proxy:
            proxy.brokers.create_topic("t")
            in_turn(proxy, b"1", CloseAfter(), forgetting(proxy))
            proxy.brokers.control(ApiKey.DESCRIBE_PRODUCERS, lambda _: Edit(refuse))
            assert await produce_three(proxy) == [[0], [0], [0]]
            assert proxy.stats.retries.readbacks_failed == {"unreadable": 1}
            assert set(values_in(proxy.brokers, "t")) == {b"0", b"1", b"2", b"3"}

    async def test_a_deleted_partition_needs_no_fence(self) -> None:
        async with proxied() as proxy:
            proxy.brokers.create_topic("t")

            def delete(_: Call) -> None:
                proxy.brokers.topics.pop("t", None)

            in_turn(proxy, b"1", CloseAfter(), Answer(said(ErrorCode.MESSAGE_TOO_LARGE)))
            proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, delete)
            assert await produce_three(proxy) == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]] * 3

    async def test_who_was_fenced_by_another_ends_the_connection_and_writes_no_more(self) -> None:
        async with proxied() as proxy:
            proxy.brokers.create_topic("t")
            log = proxy.brokers.topics["t"].partitions[0].log

            def fence(_: Call) -> Fault:
                ((pid, entry),) = log.producers.items()
                log.append_marker(pid, entry.epoch + 40, False, 0, 0, 0)
                return Close()

            in_turn(proxy, b"1", fence)
            with structlog.testing.capture_logs() as lines:
                async with await proxy.client(1) as client:
                    assert errors_of(await client.call(produce("t", b"0"), 8)) == [0]
                    await client.send(produce("t", b"1"), 8)
                    assert await client.ended()
                await proxy.at_rest()
            assert [line["log_level"] for line in lines if "fenced by another" in str(line)] == ["warning"]
            async with await proxy.client(1) as client:
                assert errors_of(await client.call(produce("t", b"2"), 8)) == [0]
            assert values_in(proxy.brokers, "t") == [b"0", b"2"], "the next connection has another producer id"
