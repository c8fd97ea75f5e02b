"""A real Prometheus watches kproxy under load: what rules and dashboard ask for is there."""

import json
import re
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio
from prometheus_client import generate_latest

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.config import Address
from kproxy.control.listeners import serve_http
from kproxy.control.metrics import make_declared_registry
from kproxy.injection.webhook_stats import WebhookStats
from kproxy.net.running_facts import Facts
from kproxy.net.txn.service import Transactions
from kproxy.proxy.certificate_stats import Validity
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import Answer, Call
from tests.codec.message_sets import message_set
from tests.deploy.prometheus import DEPLOY, RULES, Prometheus, watching
from tests.deploy.test_rules import promtool, rules
from tests.net.harness import FrameClient, Proxied, fetch, produce, proxied
from tests.net.txn.wire_producer import WireProducer

DASHBOARD = DEPLOY / "grafana" / "kproxy.json"
_CHOSEN = {"$__rate_interval": "30s", "$__range": "1h", "$namespace": ".*", "$job": ".+", "$instance": ".+"}
ROUNDS = 20
_YEAR_SECONDS = 31_536_000


def queries() -> dict[str, str]:
    """The queries of the dashboard by panel and series, with Grafana's variables filled in."""
    found = {}
    top = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    for panel in (each for row in top for each in (row, *row.get("panels", ()))):
        for target in panel.get("targets", ()):
            expr = target["expr"]
            for variable, value in _CHOSEN.items():
                expr = expr.replace(variable, value)
            assert "$" not in expr
            found[f"{panel['title']}: {target['legendFormat']}"] = expr
    return found


def old_produce(topic: str) -> ProduceRequest:
    data = ProduceRequestPartitionProduceData(index=0, records=message_set([(1, None, b"old")], magic=1, codec=0))
    part = ProduceRequestTopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[part])


def one_refusal() -> Any:
    """The broker says once that it is not the leader; kproxy sends again."""
    row = ProduceResponsePartitionProduceResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1)
    said = Answer(ProduceResponse(responses=[ProduceResponseTopicProduceResponse("t", partition_responses=[row])]))
    left = [said]

    def fault(call: Call) -> Answer | None:
        return left.pop() if left else None

    return fault


def count_refusals(stats: Stats) -> None:
    """Count what listeners with TLS, logins, rules and quotas do."""
    stats.certificates.uses("ssl.certificate.location", Validity(0, time.time() + _YEAR_SECONDS))
    stats.clients.logins["PLAIN", "accepted"] = 1
    stats.refused.count_http_refused("control", "token")
    stats.refused.count_http_connection("http", "evicted")
    stats.refused.authorization_refusals["Read", "Topic"] = 1
    stats.refused.throttle_seconds["producer_byte_rate"] = 1.5


async def produce_on(client: FrameClient) -> None:
    while True:
        await client.call(produce("t", b"a", b"b", timeout_ms=60_000), 9)
        await trio.sleep(0.01)


async def load(proxy: Proxied, stack: AsyncExitStack) -> FrameClient:
    """New and old producers and consumers, a fault, and transactions: decided, given up, and one that stays open.

    The new producer, for more.
    """
    brokers = proxy.brokers
    brokers.create_topic("t")
    brokers.create_topic("u")
    new, old, owner, reader = [
        await stack.enter_async_context(await proxy.client(1, client_id=name)) for name in ("new", "old", "etl", "read")
    ]
    await new.call(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.8.0"), 3)
    brokers.control(ApiKey.PRODUCE, one_refusal())
    for _ in range(ROUNDS):
        await new.call(produce("t", b"a", b"b", timeout_ms=60_000), 9)
        await old.call(old_produce("t"), 2)
        await new.call(fetch("t"), 12)
        await old.call(fetch("t"), 2)
    producer = WireProducer(owner, "etl-1")
    assert await producer.init() == 0
    for committed in (True, False, None):
        assert await producer.add(("u", 0)) == [0]
        assert await producer.produce("v", ("u", 0)) == [0]
        if committed is not None:
            assert await producer.end(committed=committed) == 0
    await reader.call(fetch("u", isolation_level=1), 11)
    return new


async def page_of(address: Address) -> bytes:
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(f"GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join([part async for part in stream])
    return answer.partition(b"\r\n\r\n")[2]


async def check(watcher: Prometheus, page: bytes) -> None:
    linted = promtool("check", "metrics", stdin=page)
    assert (linted.returncode, linted.stdout) == (0, b""), linted.stderr.decode()
    webhook = generate_latest(make_declared_registry(WebhookStats()))
    names = set(re.findall(r"^(\w+)", (page + webhook).decode(), re.MULTILINE))
    asked = queries()
    written = " ".join([*asked.values(), *(rule["expr"] for rule in rules())])
    assert set(re.findall(r"(?<![\w:])(?:kproxy|process)_\w+(?![\w:])", written)) <= names
    await watcher.until("count_over_time(kproxy_ready[1m]) > 3")
    empty = [where for where, expr in asked.items() if not await watcher.series(expr)]
    assert empty == []
    await watcher.until("instance_api_key:kproxy_requests:rate5m > 0")
    for rule in rules():
        if "record" in rule and "produce_failures" not in rule["record"]:
            await watcher.until(rule["record"])
    groups = (await watcher.ask("rules"))["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}, RULES
    firing = {alert["labels"]["alertname"] for alert in (await watcher.ask("alerts"))["alerts"]}
    # KproxyBusy says that this machine is busy, and it may be: other tests run beside this one.
    assert firing - {"KproxyBusy"} == set()


async def test_what_rules_and_dashboard_ask_for_is_there_under_load(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(proxied(coordinator=Transactions))
        nursery = await stack.enter_async_context(trio.open_nursery())
        config = replace(proxy.config, http=Address("127.0.0.1", 0))
        facts = Facts(config, proxy.stats, proxy.cluster, proxy.server)
        count_refusals(proxy.stats)
        address = await nursery.start(serve_http, config, proxy.stats, facts, proxy.transactions.control)
        async with AsyncExitStack() as clients, watching(address, tmp_path) as watcher:
            producer = await load(proxy, clients)
            async with trio.open_nursery() as busy:
                busy.start_soon(produce_on, producer)
                await check(watcher, await page_of(address))
                busy.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
