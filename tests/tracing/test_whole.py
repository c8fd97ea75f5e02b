"""The program sends traces to a collector, which decodes them."""

import re
import signal
from contextlib import closing
from http.client import HTTPConnection

import trio

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.testing.fake_broker import open_fake_cluster
from tests.net.harness import errors_of
from tests.net.txn.wire_producer import WireProducer
from tests.test_app import Process, kproxy, serving
from tests.tracing.otlp_stub import attributes, collector

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

OUTCOMES = ("exported", "dropped", "failed")


async def page_of(running: Process) -> str:
    def get() -> str:
        with closing(HTTPConnection(str(where), timeout=60)) as connection:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

    where = (await running.said("listening"))["http"]
    return await trio.to_thread.run_sync(get)


def produce_traced(topic: str, flags: str) -> ProduceRequest:
    headers = (("traceparent", f"00-{TRACE}-{SPAN}-{flags}".encode()),)
    batch = bytes(build_batch([Record(0, 0, b"key", b"value", headers)]))
    part = ProduceRequestPartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[ProduceRequestTopicProduceData(name=topic, partition_data=[part])]
    )


async def test_requests_and_transactions_reach_the_collector_with_the_context_of_their_records() -> None:
    with collector() as stub:
        flags = (
            "--otel-exporter-otlp-endpoint", stub.endpoint, "--otel-traces-sampler-arg", "1",
            "--otel-bsp-schedule-delay-ms", "50", "--otel-service-name", "gateway", "--transactions-home", "kproxy",
        )  # fmt: skip
        async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *flags) as running:
            fake.cluster.create_topic("t")
            await serving(running)
            async with await running.client() as client:
                await client.call(ApiVersionsRequest(client_software_name="sarama", client_software_version="1.45"), 3)
                assert errors_of(await client.call(produce_traced("t", "01"), 9)) == [0]
                assert errors_of(await client.call(produce_traced("t", "00"), 9)) == [0]
                producer = WireProducer(client, "etl-1")
                assert await producer.init() == 0
                for committed in (True, False):
                    assert await producer.add(("t", 0)) == [0]
                    assert await producer.produce("v", ("t", 0)) == [0]
                    assert await producer.end(committed=committed) == 0
            with trio.fail_after(120):
                running.process.send_signal(signal.SIGTERM)
                assert await running.process.wait() == 0  # what was not sent by then is sent on the way out
    assert stub.resources[0]["service.name"] == "gateway"
    traced, *in_transactions = stub.named("send t")
    told = attributes(traced)
    assert (traced.trace_id.hex(), traced.parent_span_id.hex()) == (TRACE, SPAN)
    assert told["messaging.destination.name"] == "t"
    assert told["kproxy.partitions"] == ["t-0"]
    assert told["kproxy.client_software"] == "sarama 1.45"
    assert (told["kproxy.api_version"], told["kproxy.broker_id"]) == (9, 1)
    assert 0 < traced.end_time_unix_nano - traced.start_time_unix_nano < 60e9
    assert len(in_transactions) == 2, "what its producer does not sample is not traced"
    one, two = stub.named("transaction")
    assert [attributes(span)["kproxy.outcome"] for span in (one, two)] == ["committed", "aborted"]
    assert [event.name for event in one.events] == ["commit asked", "data acknowledged"]
    linked = {link.span_id for link in one.links}
    assert in_transactions[0].span_id in linked
    assert one.span_id in {link.span_id for link in in_transactions[0].links}
    ends = stub.named("EndTxn")
    assert [{link.span_id for link in span.links} for span in ends] == [{one.span_id}, {two.span_id}]


async def test_a_collector_that_is_not_there_costs_nothing_but_spans() -> None:
    flags = (
        "--otel-exporter-otlp-endpoint", "http://127.0.0.1:9", "--otel-traces-sampler-arg", "1",
        "--otel-bsp-schedule-delay-ms", "20", "--otel-bsp-max-queue-size", "2",
    )  # fmt: skip
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *flags) as running:
        fake.cluster.create_topic("t")
        await serving(running)
        async with await running.client() as client:
            for _ in range(20):
                assert errors_of(await client.call(produce_traced("t", "01"), 9)) == [0]
        page = await page_of(running)
        counts = {
            outcome: float(re.findall(rf'kproxy_spans_total{{outcome="{outcome}"}} (.*)', page)[0])
            for outcome in OUTCOMES
        }
        assert counts["exported"] == 0
        assert counts["dropped"] > 0
        with trio.fail_after(120):
            running.process.send_signal(signal.SIGTERM)
            assert await running.process.wait() == 0
