"""Producers of librdkafka with its defaults: a million requests in flight, in one partition, each record a number."""

import time
from collections.abc import Callable
from dataclasses import replace
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
_PROGRAMS: Final = 4
_IN_FLIGHT: Final = 15
"""Responses, of about 20 at this latency: one for each 5 ms, librdkafka's ``linger.ms``."""
_PADDING: Final = 200
"""Without it Nagle's algorithm holds requests back until those before them are acknowledged."""
_PATIENCE_S: Final = 30.0
_FLUSH_S: Final = 180.0
_REPLICAS: Final = 2
_REPLICATED: Final = {"default.replication.factor": "3", "min.insync.replicas": str(_REPLICAS)}
_LONG_RECORD: Final = 2000
"""Bytes. In less than half of an outage the client sends more than kproxy reads ahead (``connection.buffer.bytes``)."""
_OUTAGES: Final = 3
_OUTAGE_S: Final = 10.0
_TIMED_OUT: Final = 10
"""So many requests must time out: where the client repeats nothing no record can be late."""


def latency(site: Site) -> Outcome:
    """Four programs of 2,000 records each, 100 ms of latency in each direction; each one's connection is reset once.

    It is reset when the line has 15 responses in flight: kproxy has read many later requests since it wrote them. Each
    program has a client.id of its own and waits for its first record, so that kproxy has not seen it send many requests
    before a response was written. After a reset a program does that, so a second reset would show little.

    Takes for granted: default options, a direct connection, a client that keeps the order of its queue.
    """
    outcome, count = Outcome(0, 0, 0, 0, 0), 2000
    with site.wire(Line(_ONE_WAY_S)) as wire, site.kproxy("latency") as kproxy:
        for number in range(_PROGRAMS):
            topic = site.topic(f"latency.{number}")
            job: dict[str, Any] = {"topic": topic, "count": count, "per_second": 1000, "first_ms": None}
            job |= {"padding": _PADDING, "first_alone": True, "config": config_of(bootstrap_of(kproxy), topic)}
            with site.client(LIBRDKAFKA, job) as client:
                client.report()
                wire.wait(_many_in_flight, _PATIENCE_S)
                wire.reset()
                acknowledged = client.report(at_the_end)["acknowledged"]
            outcome += compare(range(count), acknowledged, [int(record.value) for record in site.log(topic)])
    return outcome


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
    """60,000 records while min.insync.replicas is not met: of two replicas one is killed three times, for 10 s.

    That one is the follower. A third broker keeps the controllers' majority: without it nobody takes the follower out
    of the in-sync replicas, and the leader refuses nothing. The records are long. So in each outage kproxy stops
    reading, what it has not read waits for longer than the client's time-out of 4 s, and kproxy refuses it unsent while
    the client sends more. Each outage has a program and a client.id of its own: kproxy has not seen that one send so
    much yet.

    Takes for granted: default options, a client that names itself as librdkafka, whose queue keeps its order.
    """
    outcome, count = Outcome(0, 0, 0, 0, 0), 20_000
    with (
        RealKafka(3, config=_REPLICATED, directory=site.directory / "three-brokers") as kafka,
        site.wire(),
        site.kproxy("order", kafka=kafka) as kproxy,
    ):
        for number in range(_OUTAGES):
            topic = site.topic(f"order.{number}", kafka, _REPLICAS)
            config = {**config_of(bootstrap_of(kproxy), topic), "request.timeout.ms": 4000}
            job = {"topic": topic, "count": count, "per_second": 1600, "first_ms": None, "config": config}
            job |= {"burst": 100, "padding": _LONG_RECORD}
            with site.client(LIBRDKAFKA, job) as client:
                client.report()
                follower = site.follower(topic, kafka)
                kafka.kill(follower)
                time.sleep(_OUTAGE_S)
                kafka.restart(follower)
                acknowledged = client.report(at_the_end, seconds=_FLUSH_S)["acknowledged"]
            log = [int(record.value) for record in site.log(topic, kafka)]
            outcome += compare_in_order(range(count), acknowledged, log)
        timed_out = kproxy.metrics().get("kproxy_requests_timed_out", 0.0)
    faults = () if timed_out >= _TIMED_OUT else (f"only {timed_out:.0f} requests timed out",)
    return replace(outcome, faults=faults)


def config_of(bootstrap: str, client_id: str) -> dict[str, Any]:
    """Return librdkafka's defaults but for what a record's loss by the client itself would hide."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "enable.idempotence": False,
        "message.timeout.ms": 120_000,
        "log_level": 0,
    }


def _many_in_flight(line: Line) -> bool:
    return max(line.in_flight(Way.RESPONSES).values(), default=0) >= _IN_FLIGHT


def at_the_end(report: dict[str, Any]) -> bool:
    """Whether a report is the driver's last one."""
    return "acknowledged" in report


def _responses_to_others(spared: set[Place]) -> Callable[[Way, Segment], bool]:
    return lambda way, segment: way is Way.RESPONSES and segment.target not in spared
