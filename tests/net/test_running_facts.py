from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.messages import ApiKey
from kproxy.control import fact_schemas
from kproxy.control.json_schema import faults
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.net.running_facts import Facts
from kproxy.net.sampler import Sampler
from kproxy.proxy.durations import Requests
from kproxy.proxy.facts import UNPREPARED, fact_json, utc
from kproxy.testing.fake_broker import Answer, Delay, open_fake_cluster
from tests.net.harness import Proxied, eventually, metadata, produce, proxied, running

pytestmark = pytest.mark.idle_clock


@asynccontextmanager
async def watched(**options: Any) -> AsyncIterator[tuple[Proxied, Facts]]:
    async with proxied(brokers=2, **options) as proxy:
        proxy.brokers.create_topic("orders", 2)
        yield proxy, Facts(proxy.config, proxy.stats, proxy.cluster, proxy.server)


async def test_the_status_says_what_producers_wait_for_while_the_port_accepts_and_is_ready_right_after() -> None:
    asked, go = trio.Event(), trio.Event()

    async def hold(_: Any) -> None:
        asked.set()
        await go.wait()

    async with open_fake_cluster(1) as fake:
        fake.cluster.control(ApiKey.CREATE_TOPICS, hold)
        async with running(fake.bootstrap, crash_recovery_enable=True) as proxy:
            facts = Facts(proxy.config, proxy.stats, proxy.cluster, proxy.server)
            await asked.wait()
            async with await proxy.client() as client:
                assert (await client.call(metadata(), 8)).brokers
            status = facts.status()
            assert (status.ready, status.reasons) == (False, [UNPREPARED])
            go.set()
            await proxy.server.lanes.log.opened.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert facts.status().ready
            proxy.server.stop_accepting()
            assert (facts.status().ready, facts.status().reasons) == (False, ["not listening for clients"])


async def test_a_client_is_known_by_what_it_says_and_does() -> None:
    async with watched() as (proxy, facts), await proxy.client(client_id="billing") as client:
        await client.call(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.8.0"), 3)
        await client.call(MetadataRequest(topics=[]), 1)
        [row] = facts.clients().rows
    assert (row.client_id, row.software_name, row.software_version) == ("billing", "librdkafka", "2.8.0")
    assert (row.host, row.principal, row.connections, row.requests) == ("127.0.0.1", "User:ANONYMOUS", 1, 2)
    assert row.versions == {"Metadata": 1, "ApiVersions": 3}
    assert row.last_error is None


async def test_a_client_is_found_by_its_client_id() -> None:
    async with (
        watched() as (proxy, facts),
        await proxy.client(client_id="billing") as one,
        await proxy.client(client_id="loader") as other,
    ):
        await one.call(MetadataRequest(topics=[]), 1)
        await other.call(MetadataRequest(topics=[]), 1)
        [row] = facts.clients("loader").rows
        assert row.client_id == "loader"
        assert facts.clients().total == 2
        assert facts.clients("nobody").total == 0


async def test_connections_of_one_client_are_one_row() -> None:
    async with watched() as (proxy, facts), await proxy.client() as one, await proxy.client() as other:
        await one.call(MetadataRequest(topics=[]), 1)
        await other.call(MetadataRequest(topics=[]), 4)
        [row] = facts.clients().rows
    assert (row.connections, row.requests) == (2, 2)


async def test_what_the_broker_refused_is_reported_also_when_the_client_has_disconnected() -> None:
    async with watched() as (proxy, facts):
        async with await proxy.client(client_id="loader") as client:
            await client.call(produce("nowhere", b"a"), 3)
            [row] = facts.clients().rows
            assert row.last_error is not None
            assert row.last_error.reason == "Produce: UNKNOWN_TOPIC_OR_PARTITION"
        await eventually(lambda: not proxy.server.connections)
        [error] = facts.status().recent_errors
    assert (error.client_id, error.host, error.reason) == ("loader", "127.0.0.1", row.last_error.reason)


async def test_clients_that_kafka_4_refuses_are_listed_also_when_they_have_disconnected() -> None:
    async with watched() as (proxy, facts):
        async with await proxy.client(1, client_id="old") as old, await proxy.client(1, client_id="new") as new:
            await old.call(produce("orders", b"a"), 2)
            await old.call(produce("orders", b"b"), 2)
            await old.call(MetadataRequest(topics=[]), 0)
            await new.call(produce("orders", b"c"), 3)
        status = facts.status()
    [row] = status.legacy_clients
    assert (row.client_id, row.requests, row.removed, status.legacy_total) == ("old", 2, ["Produce v2"], 1)


async def test_clients_that_kafka_4_refuses_say_when_they_were_seen_and_those_that_left_come_last() -> None:
    async with watched() as (proxy, facts), await proxy.client(1, client_id="here") as here:
        async with await proxy.client(1, client_id="gone") as gone:
            for _ in range(3):
                await gone.call(produce("orders", b"a"), 2)
        await here.call(produce("orders", b"a"), 2)
        await eventually(lambda: len(proxy.server.connections) == 1)
        before = facts.status().now_ms
        facts.sample()
        await trio.sleep(60)
        await here.call(produce("orders", b"b"), 2)
        rows = facts.status().legacy_clients
        assert [(row.client_id, row.connections) for row in rows] == [("here", 1), ("gone", 0)]
        assert rows[0].last_seen_ms >= before + 60_000
        assert abs(rows[1].last_seen_ms - before) < 1000


async def test_a_broker_that_is_down_is_a_trouble_and_not_counted_as_up() -> None:
    async with watched() as (proxy, facts):
        assert (facts.status().troubles, facts.status().brokers_up) == ([], 2)
        await proxy.fake.stop_broker(2)
        with pytest.raises(OSError, match="cannot connect"):
            await proxy.cluster.call(proxy.cluster.map.brokers[2].address, MetadataRequest(topics=[]), MetadataResponse)
        status = facts.status()
        [row] = status.troubles
        assert row.what.startswith("broker 2 (127.0.0.1:")
        assert row.since_ms is not None
        assert row.severe
        assert (status.brokers_up, status.brokers_known) == (1, 2)


async def test_refused_connections_are_a_trouble_for_a_minute() -> None:
    async with watched() as (proxy, facts):
        facts.sample()
        proxy.stats.clients.connections_refused["max_connections"] = 3
        [row] = facts.status().troubles
        assert (row.detail, row.severe) == ("max_connections 3", False)
        for _ in range(30):
            facts.sample()
        assert facts.status().troubles == []


async def test_a_lane_says_who_writes_under_it() -> None:
    async with watched() as (proxy, facts), await proxy.client(1, client_id="loader") as client:
        assert facts.lanes().rows == []
        await client.call(produce("orders", b"a"), 3)
        [lane] = facts.lanes().rows
    assert lane.producer_id is not None
    assert lane.producer_id & KPROXY_BIT
    assert (lane.state, lane.client_id, lane.partitions, lane.in_flight, lane.in_doubt) == ("leased", "loader", 1, 0, 0)


async def test_brokers_and_who_is_relayed_to_them() -> None:
    async with watched() as (proxy, facts), await proxy.client(2) as client:
        await client.call(MetadataRequest(topics=[]), 1)
        await proxy.cluster.versions(proxy.cluster.map.brokers[2])
        first, second = facts.brokers().rows
    assert (first.node_id, second.node_id, first.up, second.up) == (1, 2, True, True)
    assert (first.connections, second.connections) == (0, 1)
    assert second.port == proxy.cluster.map.brokers[2].port
    assert second.release is not None


async def test_a_broker_that_can_not_be_reached_has_an_error() -> None:
    async with watched(upstream_connect_timeout_ms=500) as (proxy, facts):
        await proxy.fake.stop_broker(2)
        async with await proxy.client(2) as client:
            await client.send(MetadataRequest(topics=[]), 1)
            assert await client.ended()
        row = facts.brokers().rows[1]
    assert row.errors >= 1
    assert row.last_error is not None
    assert "cannot connect to" in row.last_error.reason


async def test_while_no_broker_answers_status_and_rows_say_since_when_and_why_and_what_is_tried_next() -> None:
    async with watched(retry_backoff_max_ms=1000) as (proxy, facts):
        before = facts.status().now_ms
        for node_id in (1, 2):
            await proxy.fake.stop_broker(node_id)
        await eventually(lambda: not facts.status().ready)
        [reason] = facts.status().reasons
        since = f"no broker answers since {utc(before // 1000)[:10]}"
        assert reason.startswith(since)
        assert "Connection refused" in reason
        assert reason.endswith("; tried again every 1 s")
        for row in facts.brokers().rows:
            assert not row.up
            assert row.down is not None
            assert before <= row.down.since_ms <= facts.status().now_ms
            assert f"cannot connect to {row.address}: Connection refused" in row.down.reason
            assert row.down.next == "tried again every 1 s"
            assert row.last_error is not None
        with trio.fail_after(1), pytest.raises(OSError, match="no broker answers since"):
            await facts.fleet()
        await proxy.fake.start_broker(1)
        await eventually(lambda: facts.status().ready)
        await eventually(lambda: facts.brokers().rows[0].up)


async def test_an_outage_began_when_the_last_broker_fell_silent() -> None:
    async with watched() as (proxy, facts):
        await proxy.fake.stop_broker(2)
        with pytest.raises(OSError, match="cannot connect"):
            await proxy.cluster.call(proxy.cluster.map.brokers[2].address, MetadataRequest(topics=[]), MetadataResponse)
        await trio.sleep(600)
        before = facts.status().now_ms
        await proxy.fake.stop_broker(1)
        await eventually(lambda: not facts.status().ready)
        [row] = facts.status().troubles
        assert row.what == "no broker answers"
        assert row.since_ms is not None
        assert row.since_ms >= before - 1000


async def test_a_broker_that_ends_its_connections_is_down_before_anybody_needs_it() -> None:
    async with watched() as (proxy, facts):
        await proxy.cluster.versions(proxy.cluster.map.brokers[2])  # over a connection that is idle from now on
        everybody = await proxy.cluster.ask_any(MetadataRequest(topics=[]), MetadataResponse)
        proxy.brokers.control(ApiKey.METADATA, lambda _: Answer(everybody))
        await proxy.fake.stop_broker(2)
        await eventually(lambda: not facts.brokers().rows[1].up)
        down = facts.brokers().rows[1].down
        assert down is not None
        assert "Connection refused" in down.reason
        assert down.next == "tried again every 2 s"
        assert facts.status().ready
        await proxy.fake.start_broker(2)
        await eventually(lambda: facts.brokers().rows[1].up)


async def test_a_broker_that_hangs_is_down_since_it_was_asked() -> None:
    async with watched(upstream_request_timeout_ms=20_000) as (proxy, facts):
        proxy.brokers.control(ApiKey.METADATA, lambda _: Delay(3600))
        asked_ms = facts.status().now_ms
        for broker in proxy.cluster.map.brokers.values():
            with pytest.raises(OSError, match="did not answer in 20000 ms"):
                await proxy.cluster.call(broker.address, MetadataRequest(topics=[]), MetadataResponse)
        first, second = facts.brokers().rows
        assert first.down is not None
        assert second.down is not None
        assert first.down.since_ms < asked_ms + 15_000 <= second.down.since_ms


async def test_a_broker_that_hangs_with_a_batch_is_down_within_seconds_and_up_again_at_once() -> None:
    async with watched() as (proxy, facts), await proxy.client(1) as client:
        await client.call(produce("orders", b"a"), 3)
        go = trio.Event()

        async def hang(_: Any) -> None:
            await go.wait()

        for key in (ApiKey.PRODUCE, ApiKey.API_VERSIONS):
            proxy.brokers.control(key, hang)
        await client.send(produce("orders", b"b"), 3)
        began = trio.current_time()
        await eventually(lambda: not facts.brokers().rows[0].up)
        assert trio.current_time() - began < 15
        [row] = facts.status().troubles
        assert "did not answer a probe within 4 s" in row.detail
        assert facts.brokers().rows[1].up
        go.set()
        await eventually(lambda: facts.brokers().rows[0].up)


async def test_a_batch_that_waits_for_replicas_is_no_sign_that_its_broker_hangs() -> None:
    async with watched() as (proxy, facts), await proxy.client(1) as client:
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(20))
        await client.send(produce("orders", b"a"), 3)
        for _ in range(19):
            await trio.sleep(1)
            assert facts.status().troubles == []


async def test_a_broker_that_the_others_do_not_name_is_down() -> None:
    async with watched() as (proxy, facts):
        await proxy.fake.stop_broker(2)
        await proxy.cluster.refresh()
        row = facts.brokers().rows[1]
        assert (row.up, row.down is None) == (False, False)
        assert row.down is not None
        assert row.down.reason == "the other brokers do not name it as a member of the cluster"
        assert row.down.next == "they are asked again every 30 s"


@pytest.mark.parametrize("name", ["status", "clients", "lanes", "brokers"])
async def test_facts_are_as_the_document_says(name: str) -> None:
    schemas = {
        "status": fact_schemas.STATUS,
        "clients": fact_schemas.CLIENTS,
        "lanes": fact_schemas.LANES,
        "brokers": fact_schemas.BROKERS,
    }
    async with watched() as (proxy, facts), await proxy.client(1) as client:
        await client.call(produce("orders", b"a"), 3)
        await client.call(produce("nowhere", b"a"), 3)
        found = fact_json(getattr(facts, name)())
        answer = found if name == "status" else {"total": found["total"], name: found["rows"]}
        assert list(faults(answer, schemas[name])) == []


async def test_rates_are_what_came_since_the_last_look() -> None:
    async with watched() as (proxy, _), await proxy.client() as client:
        sampler = Sampler(proxy.stats)
        await client.call(MetadataRequest(topics=[]), 1)
        [connection] = proxy.server.connections
        sampler.sample(proxy.server.connections, 100.0)
        for _ in range(4):
            await client.call(MetadataRequest(topics=[]), 1)
        sampler.sample(proxy.server.connections, 102.0)
        rate = sampler.rate(connection)
        assert (rate.requests, sampler.total.requests) == (2.0, 2.0)
        assert sampler.answered(connection) == 4
        assert rate.bytes_in == sampler.total.bytes_in > 0 < rate.bytes_out
        sampler.sample(proxy.server.connections, 104.0)
        assert sampler.rate(connection).requests == 0.0
        assert sampler.history().requests == [2.0, 0.0]
        assert sampler.history().produce_p99_ms is None
        proxy.stats.apis.requests[ApiKey.PRODUCE, 9] = Requests()
        proxy.stats.apis.requests[ApiKey.PRODUCE, 9].observe(0.002)
        assert sampler.history().produce_p99_ms == 2.485


async def test_what_rules_forbid_is_listed_with_the_client(tmp_path: Path) -> None:
    rules = tmp_path / "acl.yaml"
    rules.write_text("rules: []\n")
    async with watched(acl_file=rules) as (proxy, facts), await proxy.client(1, client_id="loader") as client:
        await client.call(produce("orders", b"a"), 3)
        [row] = facts.clients().rows
    assert row.last_error is not None
    assert row.last_error.reason == "Produce: not allowed, Write on Topic orders"
