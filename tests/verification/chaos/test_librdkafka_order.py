"""What librdkafka does with the order of its records when a request is refused, by itself and through kproxy.

While it waits for a response it has the next request ready. So with one in flight it writes out of order on a broker
that says REQUEST_TIMED_OUT.
"""

import json
from typing import Any

import confluent_kafka
import trio

from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Answer, Call, FakeCluster, open_fake_cluster
from tests.net.harness import PATIENCE, eventually, proxied, values_in

REFUSAL = ProduceResponse(
    responses=[
        ProduceResponseTopicProduceResponse(
            name="t",
            partition_responses=[
                ProduceResponsePartitionProduceResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, base_offset=-1)
            ],
        )
    ]
)


class Librdkafka:
    """A producer with one request in flight and one record in each."""

    def __init__(self, bootstrap: str) -> None:
        self.delivered: list[bytes] = []
        self._ready = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": False,
                "acks": "all",
                "linger.ms": 0,
                "batch.num.messages": 1,
                "max.in.flight.requests.per.connection": 1,
                "request.timeout.ms": 2000,
                "statistics.interval.ms": 20,
                "stats_cb": self._count_ready,
                "log_level": 0,
            }
        )

    def _count_ready(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self._ready = sum(broker["outbuf_msg_cnt"] for broker in brokers)

    def close(self) -> None:
        """Ends its connections."""
        del self._producer

    def send(self, value: bytes) -> None:
        self._producer.produce("t", value, partition=0, on_delivery=lambda error, _: self._deliver(error, value))

    def _deliver(self, error: Any, value: bytes) -> None:
        assert error is None
        self.delivered.append(value)

    def has_ready(self) -> bool:
        """Whether the next request is made, and waits for the response to the one before."""
        self._producer.poll(0)
        return self._ready == 1

    def has_delivered(self, count: int) -> bool:
        self._producer.poll(0)
        return len(self.delivered) == count


class Hold:
    """Holds the first Produce request for ``t``, then refuses it; and takes down in which order they come."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.came: list[bytes | None] = []
        self.let_go = trio.Event()
        cluster.control(ApiKey.PRODUCE, self._see)

    async def _see(self, call: Call) -> Answer | None:
        if call.request.topic_data[0].name != "t":
            return None
        records = call.request.topic_data[0].partition_data[0].records
        value = next(iter_records(records, max_decompressed_bytes=1000)).value
        self.came.append(value)
        if len(self.came) > 1:
            return None
        await self.let_go.wait()
        return Answer(REFUSAL)


async def test_by_itself_it_sends_what_it_has_ready_before_it_repeats_what_was_refused() -> None:
    async with open_fake_cluster() as fake:
        fake.cluster.create_topic("t")
        hold, client = Hold(fake.cluster), Librdkafka(fake.bootstrap)
        client.send(b"a")
        await eventually(lambda: bool(hold.came))
        client.send(b"b")
        await eventually(client.has_ready)
        hold.let_go.set()
        await eventually(lambda: client.has_delivered(2))
        assert hold.came == [b"a", b"b", b"a"]
        assert values_in(fake.cluster, "t") == [b"b", b"a"]


async def test_through_kproxy_it_does_so_too_and_the_order_is_kept() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        asked = trio.Event()

        def no_id(call: Call) -> Answer:
            asked.set()
            return Answer(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

        control = proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, no_id)
        client = Librdkafka(f"127.0.0.1:{proxy.port}")
        client.send(b"a")
        await eventually(asked.is_set)
        client.send(b"b")
        await eventually(lambda: proxy.stats.produce.requests_timed_out >= 1)
        proxy.brokers.controls.remove(control)
        await eventually(lambda: client.has_delivered(2))
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]
        client.close()


async def test_with_any_number_in_flight_too_while_there_are_too_few_replicas() -> None:
    """Requests wait for room in kproxy for longer than their time-out, some are refused, and the client sends on."""
    count, refused = 6000, 0

    def refuse(call: Call) -> Answer | None:
        nonlocal refused
        if call.request.topic_data[0].name != "t" or trio.current_time() > enough_at:
            return None
        refused += 1
        row = ProduceResponsePartitionProduceResponse(error_code=ErrorCode.NOT_ENOUGH_REPLICAS, base_offset=-1)
        return Answer(
            ProduceResponse(responses=[ProduceResponseTopicProduceResponse(name="t", partition_responses=[row])])
        )

    delivered: list[str] = []
    async with proxied(connection_buffer_bytes=8192) as proxy:
        proxy.brokers.create_topic("t")
        enough_at = trio.current_time() + 5
        proxy.brokers.control(ApiKey.PRODUCE, refuse)
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{proxy.port}",
                "enable.idempotence": False,
                "linger.ms": 0,
                "batch.num.messages": 10,
                "request.timeout.ms": 1000,
                "log_level": 0,
            }
        )
        for number in range(count):
            producer.produce(
                "t", b"%d" % number, partition=0, on_delivery=lambda error, _: delivered.append(str(error))
            )
            if not number % 10:
                producer.poll(0)
                await trio.sleep(0.01)
        with trio.fail_after(PATIENCE):
            while len(delivered) < count:
                producer.poll(0)
                await trio.sleep(0.01)
        assert set(delivered) == {"None"}
        assert refused
        assert proxy.stats.produce.requests_timed_out
        written = [int(value or b"") for value in values_in(proxy.brokers, "t")]
        assert written == list(range(count))
        del producer  # closes its connections
