"""Retries of clients that lost an answer: each record is in the log once, through sockets and against a fake broker."""

import socket
from contextlib import AbstractAsyncContextManager

import pytest
import trio

from kproxy.budget import AT_ONCE_STEPS, READ_RECORD_STEPS
from kproxy.codec import compression
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.dedup.lane_record import decode_key, decode_value
from kproxy.testing.fake_broker import Call, FakeServer, open_fake_cluster
from tests.codec.message_sets import message_set
from tests.net.harness import PATIENCE, FrameClient, Proxied, errors_of, eventually, proxied, running, values_in
from tests.net.lane_harness import entries
from tests.net.retrying import TIME_MS, Gate, bases, batch, end, request

pytestmark = pytest.mark.idle_clock


async def lose_answer(proxy: Proxied, message: object, version: int = 8, *, reset: bool = True) -> None:
    """A request is written, and its client ends the connection without a look at the response."""
    client = await proxy.client(1)
    gate = Gate(proxy)
    await client.send(message, version)  # type: ignore[arg-type]
    await gate.wait_reached()
    await end(client, reset=reset)
    gate.release()


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("codec", [0, compression.GZIP])
async def test_a_retry_on_a_new_connection_is_answered_and_not_written(reset: bool, codec: int) -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message = request(batch(b"a", b"b", codec=codec))
        await lose_answer(proxy, message, reset=reset)
        async with await proxy.client(1) as client:
            answer = await client.call(message, 8)
            assert (errors_of(answer), bases(answer)) == ([0], [0])
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]
        assert proxy.stats.retries.records_matched == 2


@pytest.mark.parametrize("magic", [1, 2])
async def test_a_long_retry_is_read_beside_the_loop_and_not_written(magic: int) -> None:
    """It may be read as often as something else has to be waited for, and is compared once."""
    values = [b"%d" % at for at in range(AT_ONCE_STEPS // READ_RECORD_STEPS + 1)]
    records = message_set([(TIME_MS, None, value) for value in values], 1, 0) if magic == 1 else batch(*values, codec=1)
    message, version = request(records), 8 if magic == 2 else 2
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        await lose_answer(proxy, message, version)
        async with await proxy.client(1) as client:
            answer = await client.call(message, version)
            assert (errors_of(answer), bases(answer)) == ([0], [0])
        assert len(values_in(proxy.brokers, "t")) == len(values)
        assert proxy.stats.retries.records_matched == len(values)


async def test_a_retry_waits_for_the_first_while_that_is_in_flight() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message, gate = request(batch(b"a")), Gate(proxy, b"a")
        first = await proxy.client(1)
        await first.send(message, 8)
        await gate.wait_reached()
        await end(first)
        async with await proxy.client(1) as second:
            await second.send(message, 8)
            await eventually(lambda: sum(proxy.stats.clients.connections_accepted.values()) >= 2)
            gate.release()
            assert bases(await second.receive()) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]


@pytest.mark.parametrize(
    ("retries", "offsets", "log"),
    [
        ([batch(b"a"), batch(b"b", b"c")], [0, 1], b"abc"),
        ([batch(b"a", b"b", b"c", b"d")], [-1], b"abcd"),
        ([batch(b"x", b"b", b"y")], [-1], b"abcxy"),
        ([batch(b"c", b"b", b"a")], [-1], b"abc"),
    ],
)
async def test_records_that_are_regrouped_are_found_and_new_ones_written(
    retries: list[bytes], offsets: list[int], log: bytes
) -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        await lose_answer(proxy, request(batch(b"a", b"b", b"c")))
        async with await proxy.client(1) as client:
            answers = [await client.call(request(again), 8) for again in retries]
        assert [base for answer in answers for base in bases(answer)] == offsets
        assert [base for answer in answers for base in errors_of(answer)] == [0] * len(offsets)
        assert b"".join(value or b"" for value in values_in(proxy.brokers, "t")) == log


async def test_batches_that_are_joined_are_found() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        client, gate = await proxy.client(1), Gate(proxy, b"b")
        await client.call(request(batch(b"a")), 8)
        await client.send(request(batch(b"b")), 8)
        await gate.wait_reached()
        await end(client, reset=True)
        gate.release()
        async with await proxy.client(1) as again:
            assert bases(await again.call(request(batch(b"a", b"b")), 8)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


async def test_of_several_partitions_only_what_is_in_doubt_is_left_out() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t", partitions=3)
        await lose_answer(proxy, request(batch(b"a"), batch(b"b")))
        async with await proxy.client(1) as client:
            answer = await client.call(request(batch(b"a"), batch(b"b"), batch(b"c")), 8)
            assert (errors_of(answer), bases(answer)) == ([0, 0, 0], [0, 0, 0])
        assert [values_in(proxy.brokers, "t", at) for at in range(3)] == [[b"a"], [b"b"], [b"c"]]


@pytest.mark.parametrize(("version", "magic"), [(1, 0), (2, 1)])
async def test_message_sets_are_found_again(version: int, magic: int) -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message = request(message_set([(TIME_MS, None, b"a"), (TIME_MS, None, b"b")], magic, 0))
        await lose_answer(proxy, message, version)
        async with await proxy.client(1) as client:
            assert bases(await client.call(message, version)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


async def test_a_response_is_in_doubt_after_a_connection_that_kproxy_ended() -> None:
    """It is in the client's kernel, but the client need not have read it: it sent nothing that says so."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message = request(message_set([(TIME_MS, None, b"a")], 0, 0))
        async with await proxy.client(1) as client:
            await client.send(message, 1)
            assert isinstance(client.stream, trio.SocketStream)
            with trio.fail_after(PATIENCE):
                await client.stream.socket.recv(1, socket.MSG_PEEK)
            await client.stream.send_all(b"\xff\xff\xff\xff")
            await eventually(lambda: not proxy.stats.clients.connections_open)
        async with await proxy.client(1) as client:
            assert bases(await client.call(message, 1)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]


async def test_equal_message_sets_with_other_times_are_kept() -> None:
    """Also where the client's clock tells what kproxy's does when they come."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        first = await proxy.client(1)
        assert errors_of(await first.call(request(message_set([(TIME_MS, None, b"a")], 1, 0)), 2)) == [0]
        await end(first, reset=True)
        async with await proxy.client(1) as second:
            later = request(message_set([(TIME_MS + 1, None, b"a")], 1, 0))
            assert errors_of(await second.call(later, 2)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"a"]


async def test_records_that_got_the_brokers_time_are_found() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
        message = request(batch(b"a"))
        await lose_answer(proxy, message)
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(message, 8)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]


async def test_two_clients_of_one_name_that_live_at_a_time_are_not_merged() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message = request(batch(b"a"))
        async with await proxy.client(1) as first, await proxy.client(1) as second:
            answers = [await client.call(message, 8) for client in (first, second)]
        assert [bases(answer) for answer in answers] == [[0], [1]]


async def test_equal_records_on_one_connection_are_kept() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as client:
            assert [bases(await client.call(request(batch(b"a")), 8)) for _ in range(3)] == [[0], [1], [2]]


async def test_another_producers_equal_records_are_kept() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message = request(batch(b"a"))
        await lose_answer(proxy, message)
        async with await proxy.client(1, client_id="another") as client:
            assert errors_of(await client.call(message, 8)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"a"]


async def test_without_acks_nothing_is_in_doubt() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message = request(batch(b"a"), acks=0)
        for _ in range(2):
            client = await proxy.client(1)
            await client.stream.send_all(client.encode(message, 8, silent=True))
            await eventually(lambda: proxy.stats.produce.batches_stamped > 0)
            await end(client)
        await eventually(lambda: values_in(proxy.brokers, "t") == [b"a", b"a"])


async def test_what_is_open_for_too_long_is_answered_and_its_retry_waits_for_it() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message, gate = request(batch(b"a"), timeout_ms=1000), Gate(proxy, b"a")
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(message, 8)) == [ErrorCode.REQUEST_TIMED_OUT]
            await client.send(request(batch(b"a"), timeout_ms=60_000), 8)
            gate.release()
            answer = await client.receive()
            assert (errors_of(answer), bases(answer)) == ([0], [0])
        assert proxy.stats.produce.requests_timed_out == 1
        assert values_in(proxy.brokers, "t") == [b"a"]


async def test_a_request_that_has_to_wait_for_too_long_gets_an_error_and_is_not_written() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        gate = Gate(proxy, b"a")
        first = await proxy.client(1)
        await first.send(request(batch(b"a")), 8)
        await gate.wait_reached()
        await end(first)
        async with await proxy.client(1) as second:
            answer = await second.call(request(batch(b"b"), timeout_ms=1000), 8)
            assert errors_of(answer) == [ErrorCode.REQUEST_TIMED_OUT]
            gate.release()
            assert errors_of(await second.call(request(batch(b"b")), 8)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


async def test_a_request_after_the_end_is_left_to_the_newer_connection() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        gate = Gate(proxy, b"a")
        first = await proxy.client(1)
        later = b"".join(first.encode(request(batch(value)), 8) for value in (b"a", b"b"))
        await first.stream.send_all(later)
        await gate.wait_reached()  # the second waits, since the first batch of a producer id is alone in flight
        await end(first)
        async with await proxy.client(1) as second:
            await second.send(request(batch(b"a")), 8)
            await second.send(request(batch(b"b")), 8)
            gate.release()
            assert [errors_of(await second.receive()) for _ in range(2)] == [[0], [0]]
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


async def without_producer_id(proxy: Proxied, client: FrameClient, value: bytes) -> trio.Event:
    """A client's first request waits for a producer id until the event is set."""
    asked, given = trio.Event(), trio.Event()

    async def hold(call: Call) -> None:
        asked.set()
        await given.wait()

    proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, hold)
    await client.send(request(batch(value)), 8)
    with trio.fail_after(PATIENCE):
        await asked.wait()
    return given


async def test_what_waits_for_a_producer_id_is_not_overtaken_over_an_older_connection() -> None:
    """The client sends on to a partition's new leader while it has no response of the former one (librdkafka)."""
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", placed=[[1, 2]])
        async with await proxy.client(1) as older, await proxy.client(2) as newer:
            assert errors_of(await older.call(request(batch(b"z")), 8)) == [0]
            proxy.brokers.move_leader("t", 0, 2)
            given = await without_producer_id(proxy, newer, b"a")
            proxy.brokers.move_leader("t", 0, 1)
            await older.send(request(batch(b"b")), 8)
            await trio.sleep(0.1)
            given.set()
            assert errors_of(await newer.receive()) == [0]
            assert errors_of(await older.receive()) == [0]
        assert values_in(proxy.brokers, "t") == [b"z", b"a", b"b"]


async def test_what_waits_for_its_broker_is_not_overtaken_at_the_new_leader() -> None:
    """The former leader takes connections and answers nothing, so a request waits there until it is refused."""
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", placed=[[1, 2]])
        answers = trio.Event()

        async def hold(call: Call) -> None:
            if call.broker_id == 1:
                await answers.wait()

        proxy.brokers.control(ApiKey.API_VERSIONS, hold)
        async with await proxy.client(1) as former, await proxy.client(2) as leader:
            await former.send(request(batch(b"a"), timeout_ms=1000), 8)
            await trio.sleep(0.1)
            proxy.brokers.move_leader("t", 0, 2)
            await leader.send(request(batch(b"b")), 8)
            assert errors_of(await former.receive()) == [ErrorCode.REQUEST_TIMED_OUT]
            assert errors_of(await leader.receive()) == [ErrorCode.REQUEST_TIMED_OUT]
            assert errors_of(await leader.call(request(batch(b"a")), 8)) == [0]
            assert errors_of(await leader.call(request(batch(b"b")), 8)) == [0]
            answers.set()
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


@pytest.mark.parametrize("parts", [1, 2], ids=["read", "in the kernel"])
async def test_what_was_not_taken_yet_is_not_overtaken_at_the_new_leader(parts: int) -> None:
    """The client has many requests in flight to the former leader: one waits in kproxy, and all after it."""
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", placed=[[1, 2]])
        proxy.brokers.create_topic("u", placed=[[1, 2]])
        async with await proxy.client(1) as former, await proxy.client(2) as leader:
            assert errors_of(await former.call(request(batch(b"z")), 8)) == [0]
            gate = Gate(proxy, b"held")
            await former.send(request(batch(b"held")), 8)
            await gate.wait_reached()
            frames = [former.encode(request(batch(b"%d" % at), topic="u"), 8) for at in range(8)]
            frames.append(former.encode(request(batch(b"a")), 8))
            for part in (frames,) if parts == 1 else (frames[:-1], frames[-1:]):
                await former.stream.send_all(b"".join(part))
                await trio.sleep(0.2)
            proxy.brokers.move_leader("t", 0, 2)
            await leader.send(request(batch(b"b")), 8)
            await trio.sleep(0.2)
            gate.release()
            answers = [await former.receive() for _ in range(10)]
            assert errors_of(answers[-1]) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
            assert errors_of(await leader.receive()) != [0]
            assert errors_of(await leader.call(request(batch(b"a", b"b")), 8)) == [0]
        assert values_in(proxy.brokers, "t") == [b"z", b"held", b"a", b"b"]


async def test_a_request_after_the_end_is_left_to_an_older_connection_to_the_broker_that_leads_again() -> None:
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", placed=[[1, 2]])
        async with await proxy.client(1) as older:
            assert errors_of(await older.call(request(batch(b"z")), 8)) == [0]
            proxy.brokers.move_leader("t", 0, 2)
            newer = await proxy.client(2)
            given = await without_producer_id(proxy, newer, b"a")
            await end(newer)
            await trio.sleep(0.1)  # a client's back-off
            proxy.brokers.move_leader("t", 0, 1)
            assert errors_of(await older.call(request(batch(b"a", b"b")), 8)) == [0]
            given.set()
            await eventually(lambda: proxy.stats.clients.connections_open == 1)
        assert values_in(proxy.brokers, "t") == [b"z", b"a", b"b"]


async def test_a_retry_finds_its_records_where_another_broker_leads_now() -> None:
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", placed=[[1, 2]])
        message = request(batch(b"a"))
        await lose_answer(proxy, message)
        await eventually(lambda: values_in(proxy.brokers, "t") == [b"a"])
        proxy.brokers.move_leader("t", 0, 2)
        async with await proxy.client(2) as client:
            assert bases(await client.call(message, 8)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]


@pytest.mark.parametrize(("seconds", "written"), [(2.0, 2), (0.2, 1)], ids=["silent", "busy"])
async def test_who_sends_something_after_a_silence_has_read_what_came_before_it(seconds: float, written: int) -> None:
    """Also where kproxy was not waiting for its requests meanwhile, but one of these for the broker."""
    old = request(message_set([(TIME_MS, None, b"a")], 0, 0))  # without timestamps
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.create_topic("u")
        client = await proxy.client(1)
        assert errors_of(await client.call(old, 1)) == [0]
        gate = Gate(proxy, b"held")
        held = [request(batch(b"held" if at == 0 else b"%d" % at), topic="t" if at == 0 else "u") for at in range(8)]
        await client.stream.send_all(b"".join(client.encode(one, 8) for one in held))
        await gate.wait_reached()
        await trio.sleep(seconds)
        await client.send(request(batch(b"after"), topic="u"), 8)
        await trio.sleep(0.2)
        gate.release()
        for _ in range(9):
            assert errors_of(await client.receive()) == [0]
        await end(client, reset=True)
        async with await proxy.client(1) as another:
            assert errors_of(await another.call(old, 1)) == [0]
        assert values_in(proxy.brokers, "t").count(b"a") == written


async def test_a_program_that_stood_still_may_send_again_what_its_kernel_had_received() -> None:
    """The program writes what was ready before it reads, and closes the connection, since its time-out has passed."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        client = await proxy.client(1)
        await client.send(request(batch(b"a")), 8)
        await eventually(lambda: values_in(proxy.brokers, "t") == [b"a"])
        await trio.sleep(2.5)
        await client.send(request(batch(b"b")), 8)
        await eventually(lambda: values_in(proxy.brokers, "t") == [b"a", b"b"])
        await end(client, reset=True)
        async with await proxy.client(1) as another:
            assert bases(await another.call(request(batch(b"a")), 8)) == [0]
            assert bases(await another.call(request(batch(b"b")), 8)) == [1]
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


def former_self(fake: FakeServer) -> AbstractAsyncContextManager[Proxied]:
    """kproxy as one instance of many: who has the same id takes over what it left."""
    return running(
        fake.bootstrap, instance_id="one", crash_recovery_enable=True, producer_state_log_replication_factor=1
    )


async def test_a_retry_after_a_crash_finds_what_the_former_self_has_written() -> None:
    async with open_fake_cluster(1) as fake:
        fake.cluster.create_topic("t", partitions=2)
        both = request(batch(b"a", b"b"), batch(b"c"))
        async with former_self(fake) as proxy:
            proxy.fake = fake
            await eventually(lambda: proxy.stats.upstream.ready)
            client = await proxy.client(1)
            assert errors_of(await client.call(both, 8)) == [0, 0]
            await end(client, reset=True)
        async with former_self(fake) as proxy:
            await eventually(lambda: proxy.stats.upstream.ready)
            async with await proxy.client(1) as client:
                answer = await client.call(request(batch(b"a", b"b"), batch(b"c", b"d")), 8)
                assert (errors_of(answer), bases(answer)) == ([0, 0], [0, -1])
        assert values_in(fake.cluster, "t", 0) == [b"a", b"b"]
        assert values_in(fake.cluster, "t", 1) == [b"c", b"d"]


def is_given_back(fake: FakeServer) -> bool:
    """Whether the log says of a lane that it was given back."""
    return any(value and decode_value(decode_key(key), value).returned for _, key, value in entries(fake.cluster))


async def test_a_connection_that_ended_before_the_crash_needs_no_fence() -> None:
    async with open_fake_cluster(1) as fake:
        fake.cluster.create_topic("t", partitions=1)
        async with former_self(fake) as proxy:
            proxy.fake = fake
            await eventually(lambda: proxy.stats.upstream.ready)
            client = await proxy.client(1)
            assert errors_of(await client.call(request(batch(b"a")), 8)) == [0]
            await end(client, reset=True)
            await eventually(lambda: is_given_back(fake))
        async with former_self(fake) as proxy:
            await eventually(lambda: proxy.stats.upstream.ready)
            async with await proxy.client(1) as client:
                assert errors_of(await client.call(request(batch(b"a")), 8)) == [0]
                assert errors_of(await client.call(request(batch(b"b")), 8)) == [0]
            assert proxy.stats.retries.fences == {}
        assert values_in(fake.cluster, "t") == [b"a", b"b"]
        assert fake.cluster.topics["t"].partitions[0].log.end_offset == 2  # no marker


async def test_what_a_killed_self_had_in_flight_is_fenced_off() -> None:
    async with open_fake_cluster(1) as fake:
        fake.cluster.create_topic("t")
        message = request(batch(b"held up"))
        async with former_self(fake) as proxy:
            proxy.fake = fake
            await eventually(lambda: proxy.stats.upstream.ready)
            client, gate = await proxy.client(1), Gate(proxy, b"held up")
            await client.send(message, 8)
            await gate.wait_reached()
        async with former_self(fake) as proxy:
            await eventually(lambda: proxy.stats.upstream.ready)
            async with await proxy.client(1) as again:
                await again.send(message, 8)
                await eventually(lambda: proxy.stats.retries.recoveries > 0)
                gate.release()
                assert errors_of(await again.receive()) == [0]
        await end(client)
        assert values_in(fake.cluster, "t") == [b"held up"]


async def test_a_whole_request_may_be_repeated_many_times_for_one_partitions_error() -> None:
    """One partition does not exist: the other one's success is repeated each time, and is written once."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t", 1)
        asked = request(batch(b"a"), batch(b"b"))
        asked.topic_data[0].partition_data[1].index = 8
        async with await proxy.client(1) as client:
            for _ in range(6):
                errors = errors_of(await client.call(asked, 8))
                assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert values_in(proxy.brokers, "t") == [b"a"]
