"""A fleet of processes before real brokers: what each costs, what the brokers are asked, and a restart of all."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final

import trio

from kproxy.codec.messages import ApiKey
from kproxy.config.model import Config
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.relay import FaultRelay
from verification.chaos.kproxy_process import KproxyProcess
from verification.chaos.recorder import Recorder
from verification.chaos.relayed_kafka import RelayedKafka
from verification.chaos.released import ReleasedClient, ReleasedProducer
from verification.chaos.verdict import read_everything
from verification.history import Outcome, check, read_history

BROKERS: Final = 3
_TOPIC: Final = "fleet"
_PARTITIONS: Final = 12
_PER_SECOND: Final = 20
_SETTLE_S: Final = 20.0
_STOP_S: Final = 60.0
#: The chaos run has shorter times than these defaults.
_OPTIONS: Final = {
    "metadata-max-age-ms": str(Config.metadata_max_age_ms),
    "upstream-request-timeout-ms": str(Config.upstream_request_timeout_ms),
    "upstream-connect-timeout-ms": str(Config.upstream_connect_timeout_ms),
}


@dataclass(slots=True)
class Cost:
    """Of each process in one phase: seconds of processor time; then resident bytes at its end."""

    lasted: float
    cpu: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    #: At the brokers, by API; fleet-wide.
    requests: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class Findings:
    """What a run showed."""

    start: Cost
    idle: Cost
    restarts: Cost
    acknowledged: int
    #: Errors that a client received, and anomalies of the history.
    faults: list[str]


def run(processes: int, idle_s: float, clients: int) -> Findings:
    """Start so many processes at once, let them idle, and restart each while clients write.

    :raises KproxyFailed: one ended by itself.
    """
    with tempfile.TemporaryDirectory(prefix="kproxy-fleet-") as directory:
        home = Path(directory)
        with RelayedKafka(BROKERS, home / "kafka") as kafka, Recorder(home) as recorder:
            return trio.run(_Fleet(kafka, home, recorder, processes, clients).run, idle_s)


class _Fleet:
    def __init__(self, kafka: RelayedKafka, home: Path, recorder: Recorder, processes: int, clients: int) -> None:
        self._kafka = kafka
        self._home = home
        self._recorder = recorder
        self._relays = [
            FaultRelay(("127.0.0.1", port), port=at)
            for port, at in zip(chain(*kafka.relayed_ports), chain(*kafka.relay_ports), strict=True)
        ]
        upstream = ",".join(f"127.0.0.1:{relay.port}" for relay in self._relays)
        self._kproxies = [
            KproxyProcess(f"sidecar-{number}", upstream, home, _OPTIONS, relayed=False) for number in range(processes)
        ]
        self._producers = [self._producer(kproxy) for kproxy in self._kproxies[:clients]]

    def _producer(self, kproxy: KproxyProcess) -> ReleasedProducer:
        places = [(_TOPIC, partition) for partition in range(_PARTITIONS)]
        name, usual = f"{kproxy.name}.librdkafka", 1_000_000
        job = {"name": name, "places": places, "equal": "", "per_second": _PER_SECOND, "in_flight": usual}
        return ReleasedProducer(
            ReleasedClient("librdkafka", job), f"127.0.0.1:{kproxy.listen}", self._recorder, self._home
        )

    async def run(self, idle_s: float) -> Findings:
        with ClusterClient(self._kafka.bootstrap) as client:
            client.create_topic(_TOPIC, _PARTITIONS, BROKERS)
        try:
            async with trio.open_nursery() as nursery:
                for relay in self._relays:
                    await nursery.start(relay.serve)
                start = await self._start()
                await trio.sleep(_SETTLE_S)
                idle = await self._idle(idle_s)
                restarts = await self._restart()
                nursery.cancel_scope.cancel()
        finally:
            for kproxy in self._kproxies:
                kproxy.kill()
        with (self._home / "batches.log").open("w", encoding="utf-8") as batches:
            for operation in read_everything(self._kafka.bootstrap, {_TOPIC: _PARTITIONS}, batches):
                self._recorder.add(operation)
        self._recorder.flush()
        history = list(read_history(self._recorder.path))
        faults = [operation.error for operation in history if operation.error]
        faults += [str(anomaly) for anomaly in check(history)]
        return Findings(start, idle, restarts, self._recorder.records[Outcome.OK], faults)

    async def _start(self) -> Cost:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for kproxy in self._kproxies:
                nursery.start_soon(kproxy.start)
        return self._cost(began, [0.0] * len(self._kproxies), Counter())

    async def _idle(self, seconds: float) -> Cost:
        began, cpu, requests = trio.current_time(), self._cpu(), self._requests()
        await trio.sleep(seconds)
        return self._cost(began, cpu, requests)

    async def _restart(self) -> Cost:
        async with trio.open_nursery() as nursery:
            for producer in self._producers:
                nursery.start_soon(producer.run)
            while len(self._recorder.by_process) < len(self._producers):  # noqa: ASYNC110 - records have no event
                await trio.sleep(0.1)
            began, requests = trio.current_time(), self._requests()
            for kproxy in self._kproxies:
                await trio.to_thread.run_sync(kproxy.stop, _STOP_S)
                await kproxy.start()
            cost = self._cost(began, [0.0] * len(self._kproxies), requests)
            for producer in self._producers:
                producer.stop()
        return cost

    def _cost(self, began: float, cpu: Sequence[float], requests: Counter[int]) -> Cost:
        return Cost(
            trio.current_time() - began,
            [now - before for now, before in zip(self._cpu(), cpu, strict=True)],
            [kproxy.footprint().resident for kproxy in self._kproxies],
            self._requests() - requests,
        )

    def _cpu(self) -> list[float]:
        return [kproxy.cpu_seconds() for kproxy in self._kproxies]

    def _requests(self) -> Counter[int]:
        return sum((relay.counts.requests for relay in self._relays), Counter[int]())


def report(found: Findings) -> Iterator[str]:
    """Lines for a person."""
    count = len(found.start.cpu)
    yield f"{count} processes, {BROKERS} brokers of Kafka; all figures of one process are median and most"
    yield f"all started at once: ready after {found.start.lasted:.1f} s, {_middle(found.start.cpu)} s of CPU"
    yield from _asked(found.start, count)
    shares = [100 * cpu / found.idle.lasted for cpu in found.idle.cpu]
    yield f"idle for {found.idle.lasted:.0f} s: {_middle(shares)} % of a core, {_middle(found.idle.resident, 1e6)} MB"
    yield from _asked(found.idle, count)
    yield f"all restarted one after the other: {found.restarts.lasted:.1f} s"
    yield from _asked(found.restarts, count)
    yield f"  {found.acknowledged:,} records acknowledged, {len(found.faults)} errors {json.dumps(found.faults[:3])}"


def _middle(values: Sequence[float], unit: float = 1.0) -> str:
    return f"{median(values) / unit:.3g}, {max(values) / unit:.3g}"


def _asked(cost: Cost, count: int) -> Iterator[str]:
    total = cost.requests.total()
    apis = ", ".join(f"{number} {ApiKey(key).name}" for key, number in cost.requests.most_common(6))
    each = f"one in {cost.lasted * count / total:.1f} s of each process" if total else "none"
    yield f"  requests at the brokers: {total}, {each}: {apis}"
