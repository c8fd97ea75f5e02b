"""Producers of librdkafka with its defaults: a million requests in flight, in one partition, each record a number."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kproxy.testing.kafka import RealKafka
from verification.network.clients import LIBRDKAFKA
from verification.network.line import Line, Way
from verification.network.outcome import Outcome, compare, compare_in_order
from verification.network.packets import Place, Segment
from verification.network.site import Site, bootstrap_of

__all__ = ["at_the_end", "config_of", "latency", "one_name", "order"]

_FIRST_MS: Final = 1_700_000_000_000
_ONE_WAY_S: Final = 0.1
_RESETS: Final = 4
_PADDING: Final = 200
"""Without it Nagle's algorithm holds requests back until those before them are acknowledged."""
_FLUSH_S: Final = 180.0
_REPLICATED: Final = {
    "default.replication.factor": "2",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "2",
    "replica.lag.time.max.ms": "3000",
}


def latency(site: Site) -> Outcome:
    """3,000 records with 100 ms of latency in each direction, and the connections reset four times.

    Takes for granted: default options, a direct connection, a client that keeps the order of its queue.
    """
    topic, count = site.topic("latency"), 3000
    job = {"topic": topic, "count": count, "per_second": 1000, "first_ms": None, "padding": _PADDING}
    with (
        site.wire(Line(_ONE_WAY_S)) as wire,
        site.kproxy("latency") as kproxy,
        site.client(LIBRDKAFKA, {**job, "config": config_of(bootstrap_of(kproxy), "latency")}) as client,
    ):
        for part in range(1, _RESETS + 1):
            client.report(partial(_is_so_far, count * part // (_RESETS + 1)))
            wire.reset()
        acknowledged = client.report(at_the_end)["acknowledged"]
    log = [int(record.value) for record in site.log(topic)]
    return compare(range(count), acknowledged, log)


def one_name(site: Site) -> Outcome:
    """Two programs with one client.id send equal records with equal timestamps; one loses responses again and again.

    Four times what kproxy sends to that one is lost for 300 ms, and then its connections are reset. All that was
    acknowledged is in the log.

    Takes for granted: default options, programs that use their connections at the same time.
    """
    topic, count = site.topic("one-name"), 6000
    job: dict[str, Any] = {"topic": topic, "count": count, "per_second": 600, "first_ms": _FIRST_MS}
    with site.wire() as wire, site.kproxy("one-name") as kproxy:
        job["config"] = config_of(bootstrap_of(kproxy), "rdkafka")
        with site.client(LIBRDKAFKA, job, "steady") as steady:
            steady.report()
            spared = wire.tell(lambda line: line.connections)
            with site.client(LIBRDKAFKA, job, "losing") as losing:
                losing.report()
                for _ in range(4):
                    time.sleep(1.0)
                    wire.tell(lambda line: setattr(line, "losing", _responses_to_others(spared)))
                    time.sleep(0.3)
                    wire.reset(lambda line: line.connections - spared)
                    wire.tell(lambda line: line.heal())
                both = [each.report(at_the_end, seconds=_FLUSH_S)["acknowledged"] for each in (steady, losing)]
    log = [int(record.value) for record in site.log(topic)]
    return compare([*range(count)] * 2, [*both[0], *both[1]], log)


def order(site: Site) -> Outcome:
    """60,000 records while min.insync.replicas is not met: of two brokers the leader is killed twice, for 10 s.

    Takes for granted: default options, a client that names itself as librdkafka, whose queue keeps its order.
    """
    count = 60_000
    with RealKafka(2, config=_REPLICATED, directory=site.directory / "two-brokers") as kafka:
        topic = site.topic("order", kafka)
        with site.wire(), site.kproxy("order", kafka=kafka) as kproxy:
            config = {**config_of(bootstrap_of(kproxy), "order"), "request.timeout.ms": 4000}
            job = {
                "topic": topic,
                "count": count,
                "per_second": count / 25,
                "first_ms": None,
                "burst": 100,
                "config": config,
            }
            with site.client(LIBRDKAFKA, job) as client:
                for _ in range(2):
                    time.sleep(4)
                    leader = site.leader(topic, kafka)
                    kafka.kill(leader)
                    time.sleep(10)
                    kafka.restart(leader)
                acknowledged = client.report(at_the_end, seconds=_FLUSH_S)["acknowledged"]
        log = [int(record.value) for record in site.log(topic, kafka)]
    return compare_in_order(range(count), acknowledged, log)


def config_of(bootstrap: str, client_id: str) -> dict[str, Any]:
    """Return librdkafka's defaults but for what a record's loss by the client itself would hide."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "enable.idempotence": False,
        "message.timeout.ms": 120_000,
        "log_level": 0,
    }


def _is_so_far(done: int, report: dict[str, Any]) -> bool:
    return bool(report["done"] >= done)


def at_the_end(report: dict[str, Any]) -> bool:
    """Whether a report is the driver's last one."""
    return "acknowledged" in report


def _responses_to_others(spared: set[Place]) -> Callable[[Way, Segment], bool]:
    return lambda way, segment: way is Way.RESPONSES and segment.target not in spared
