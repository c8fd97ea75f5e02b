"""One run: cluster, relays, kproxy, clients, faults; then heal, read everything, judge."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import trio

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.ports import free_ports
from kproxy.testing.relay import Drop, FaultRelay, Faults
from verification.chaos.arrivals import Arrivals
from verification.chaos.consumer import LegacyConsumer
from verification.chaos.kproxy_process import BROKER_PORTS, RETRY_MEMORY, KproxyFailed, KproxyProcess, log_problems
from verification.chaos.nemesis import Nemesis
from verification.chaos.producer import LegacyProducer
from verification.chaos.recorder import Recorder
from verification.chaos.relayed_kafka import RelayedKafka
from verification.chaos.released import KAFKA_PYTHON, ReleasedClient, ReleasedProducer
from verification.chaos.schedule import FAMILIES, Step, gateway_schedule, make_schedule
from verification.chaos.transactional_load import OTHER_TOPICS, TRANSACTIONAL_TOPICS, Client, TransactionalLoad, options
from verification.chaos.verdict import (
    Bar,
    Verdict,
    errors_bar,
    footprint_bars,
    forgotten_bar,
    log_bar,
    order_bar,
    progress_bar,
    read_everything,
    repeats_bar,
    without_success,
)
from verification.chaos.workload import TOPICS, UNCOMPRESSED, changes_order, habits_for, released_for
from verification.history import check, read_history

_QUIET_S: Final = 5.0
"""After the last client has gone: what kproxy still holds is let go of."""
_PROGRESS_TRIES: Final = 60
"""A client that had no success while the faults lasted has some within so many seconds after them."""
_IDLE_TRIES: Final = 60
WINDOW_S: Final = 120.0
"""``retry.window.ms``, the default: so long unconfirmed batches are kept."""
_FORGOTTEN_TRIES: Final = 180
"""So many seconds after the last client all of them have been forgotten: they count from the end of their connections,
which kproxy may see late, and a kproxy that was killed counts none of the time for which it was away.
"""
_METRICS_S: Final = 1.0
_BALANCED_S: Final = 0.05
_LOST_SHARE: Final = 0.03
_FLEET: Final = {"fleet-retries-enable": "true", "fleet-announce-interval-ms": "5000"}

LOADS: Final = ("plain", "transactions")
"""What clients do: records each by itself, made exactly-once by kproxy; or transactions, in all homes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to be like.

    :param kproxies: how many; None: one, or two that share the transaction log if there are transactions.
    """

    seconds: float
    seed: int
    kproxies: int | None = None
    brokers: int = 3
    families: Sequence[str] = FAMILIES
    released: bool = True
    """Whether released clients take part in the plain load, too."""
    loads: Sequence[str] = LOADS
    balanced: bool = False
    """Whether all clients of the plain load reach all kproxies through one balancer. Then each connection goes to any
    of them, one of them is killed, frozen or cut off from the brokers every 5 s, 3 % of the responses to Produce
    requests are lost, and there are no other faults."""

    @property
    def instances(self) -> int:
        """The number of kproxies."""
        return self.kproxies or (3 if self.balanced else 2 if "transactions" in self.loads else 1)

    @property
    def sees_all_expire(self) -> bool:
        """Whether it waits at the end until what kproxy keeps for retries has expired.

        Not where it is so short that none of it could have expired before: that would be most of the run.
        """
        return self.seconds >= WINDOW_S

    @property
    def networks(self) -> int:
        """How many relays each broker has: one for all kproxies, or one for each that can be cut off by itself."""
        return self.instances if self.balanced else 1

    @property
    def schedule(self) -> list[Step]:
        """Its faults."""
        if self.balanced:
            return gateway_schedule(self.seed, self.seconds, self.instances)
        return make_schedule(
            self.seed, self.seconds, kproxies=self.instances, brokers=self.brokers, families=self.families
        )

    @property
    def topics(self) -> Mapping[str, int]:
        """What is written to without transactions: partitions by topic."""
        return TOPICS if "plain" in self.loads else {}


class Run:
    """A run while it lasts: what the live view shows.

    :param kafka: has been started.
    :param directory: for the history and all logs; exists.
    """

    def __init__(self, plan: Plan, kafka: RelayedKafka, directory: Path, recorder: Recorder) -> None:
        self.plan = plan
        self.recorder = recorder
        self.phase = "starting"
        self.metrics: dict[str, float] = {}
        self._kafka = kafka
        self._directory = directory
        names = [f"kproxy-{n + 1}" for n in range(plan.instances)]
        self._balanced_ports = free_ports(1 + BROKER_PORTS) if plan.balanced else None
        self.kproxies = [
            KproxyProcess(
                name,
                ",".join(f"127.0.0.1:{port}" for port in kafka.relay_ports[n % len(kafka.relay_ports)]),
                directory,
                self._options(name),
                self._balanced_ports,
            )
            for n, name in enumerate(names)
        ]
        before = self.kproxies[:1] if plan.balanced else self.kproxies
        self.arrivals = Arrivals(directory)
        self._client_relays = [
            _relays_before(kproxy, plan.seed, self.arrivals, n * len(kproxy.advertised))
            for n, kproxy in enumerate(before)
        ]
        self._upstream_relays = [
            [FaultRelay(("127.0.0.1", port), port=at, seed=plan.seed) for port, at in zip(ports, relays, strict=True)]
            for ports, relays in zip(kafka.relayed_ports, kafka.relay_ports, strict=True)
        ]
        self.nemesis = Nemesis(kafka, self.kproxies, self._client_relays, self._upstream_relays)
        self._transactions = self._make_transactions() if "transactions" in plan.loads else None
        self._producers = self._make_producers()
        self._bars: list[Bar] = []

    def _options(self, name: str) -> Mapping[str, str]:
        return {**options(name, self._directory), **(_FLEET if self.plan.balanced else {})}

    async def _balance(self) -> None:
        """Have each relay's next connection go to any kproxy that has not been killed."""
        relays, chance = self._client_relays[0], random.Random(self.plan.seed)
        relays[0].faults.drop_answers = Drop(share=_LOST_SHARE)
        while True:
            alive = [kproxy for kproxy in self.kproxies if not kproxy.ended()] or self.kproxies
            for place, relay in enumerate(relays):
                relay.upstream = ("127.0.0.1", chance.choice(alive).targets[place])
            await trio.sleep(_BALANCED_S)

    async def run(self) -> Verdict:
        """Do it all.

        :raises KproxyFailed: kproxy ended by itself.
        """
        for _, producer in self._producers:
            if isinstance(producer, ReleasedProducer):  # takes long the first time, so before the clock starts
                await producer.install()
        await trio.to_thread.run_sync(self._make_topics)
        try:
            async with trio.open_nursery() as nursery:
                for relay in chain(*self._upstream_relays, *self._client_relays):
                    await nursery.start(relay.serve)
                for kproxy in self.kproxies:
                    await kproxy.start()
                nursery.start_soon(self._watch_metrics)
                if self.plan.balanced:
                    nursery.start_soon(self._balance)
                await self._clients_and_faults()
                await self._let_settle()
                nursery.cancel_scope.cancel()
        finally:
            for kproxy in self.kproxies:
                kproxy.kill()
            (self._directory / "faults.log").write_text("".join(f"{line}\n" for line in self.nemesis.done))
        return await trio.to_thread.run_sync(self._judge)

    def _make_topics(self) -> None:
        with ClusterClient(self._kafka.bootstrap) as client:
            more = {**TRANSACTIONAL_TOPICS, **OTHER_TOPICS} if self._transactions else {}
            for topic, partitions in {**self.plan.topics, **more}.items():
                client.create_topic(topic, partitions, self._kafka.brokers)

    def _make_transactions(self) -> TransactionalLoad:
        host, _, port = self._kafka.bootstrap.split(",")[0].rpartition(":")
        return TransactionalLoad(self.kproxies, (host, int(port)), self._directory, self.recorder, self.plan.seed)

    def _make_producers(self) -> list[tuple[str, LegacyProducer | Client]]:
        producers: list[tuple[str, LegacyProducer | Client]] = []
        if self._transactions is not None:
            producers += self._transactions.clients
        entrances = self.kproxies[:1] if self.plan.balanced else self.kproxies
        for kproxy in entrances if "plain" in self.plan.loads else ():
            address = ("127.0.0.1", kproxy.advertised[0])
            for habits in habits_for(kproxy.name):
                producers.append((habits.name, LegacyProducer(habits, address, self.recorder, self.plan.seed)))
            for client in released_for(kproxy.name, deep=self.plan.seed % 2 == 0) if self.plan.released else ():
                bootstrap = f"127.0.0.1:{address[1]}"
                producer = ReleasedProducer(client, bootstrap, self.recorder, self._directory)
                producers.append((str(client.job["name"]), producer))
        return producers

    @property
    def _was_killed(self) -> bool:
        return any(" kill kproxy " in line for line in self.nemesis.done)

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self._producers]

    def _make_consumers(self) -> list[LegacyConsumer | ReleasedProducer]:
        addresses = [("127.0.0.1", kproxy.advertised[0]) for kproxy in self.kproxies]
        places = [(topic, partition) for topic, count in self.plan.topics.items() for partition in range(count)]
        consumers: list[LegacyConsumer | ReleasedProducer] = [
            LegacyConsumer(
                f"reader.{topic}.{partition}", topic, partition, addresses[n % len(addresses)], self.recorder
            )
            for n, (topic, partition) in enumerate(places)
        ]
        if places and self.plan.released:
            # kproxy's fences write control records there, too; this client's codecs are not installed
            job = {"name": "old-reader.plain", "topics": UNCOMPRESSED, "uncommitted": False}
            bootstrap = f"127.0.0.1:{addresses[-1][1]}"
            client = ReleasedClient("old_reader", job, KAFKA_PYTHON)
            consumers.append(ReleasedProducer(client, bootstrap, self.recorder, self._directory))
        return consumers

    async def _clients_and_faults(self) -> None:
        plan = self.plan
        async with trio.open_nursery() as readers:
            for consumer in self._make_consumers():
                readers.start_soon(consumer.run)
            if self._transactions is not None:
                for reader in self._transactions.readers():
                    readers.start_soon(reader.run)
                for prober in self._transactions.probers:
                    readers.start_soon(prober.run)
            async with trio.open_nursery() as nursery:
                for _, producer in self._producers:
                    nursery.start_soon(producer.run)
                self.phase = "faults"
                end = trio.current_time() + plan.seconds
                await self.nemesis.run(plan.schedule)
                self.phase = "healed"
                await trio.sleep_until(end)
                for _ in range(_PROGRESS_TRIES):
                    if not without_success(self.recorder.by_process, self._names):
                        break
                    await trio.sleep(_METRICS_S)
                for _, producer in self._producers:
                    producer.stop()
            await trio.sleep(_QUIET_S)
            readers.cancel_scope.cancel()

    async def _let_settle(self) -> None:
        """Wait until each kproxy has nothing in flight, then look at what it holds."""
        self.phase = "settling"
        for _ in range(_IDLE_TRIES):
            if not await self._in_flight():
                break
            await trio.sleep(_METRICS_S)
        await trio.sleep(_QUIET_S)
        if self._transactions is not None:
            self._bars += await self._transactions.settle()
            await self._transactions.read_to_the_end()
        in_flight = await self._in_flight()
        self._bars.append(Bar("sends in flight at the end", f"{in_flight:.0f}", not in_flight))
        kept = len(self._transactions.clients) * self.plan.brokers if self._transactions is not None else 0
        for kproxy in self.kproxies:
            if kproxy.ended() or kproxy.at_start is None:
                raise KproxyFailed(f"{kproxy.name} ended by itself:\n{kproxy.log_tail()}")
            sizes = kproxy.at_start, kproxy.footprint()
            self._bars += footprint_bars(kproxy.name, *sizes, kept, kproxy.most_for_retries)
        if self.plan.sees_all_expire:
            await self._let_expire()

    async def _let_expire(self) -> None:
        """Wait until each kproxy has forgotten what no client sends again, then look what is left."""
        self.phase = "forgetting"
        for _ in range(_FORGOTTEN_TRIES):
            pages = [await trio.to_thread.run_sync(kproxy.metrics) for kproxy in self.kproxies]
            left = [page.get(RETRY_MEMORY) for page in pages]
            if not any(left) and None not in left:
                break
            await trio.sleep(_METRICS_S)
        for kproxy, size in zip(self.kproxies, left, strict=True):
            self._bars.append(forgotten_bar(kproxy.name, kproxy.most_for_retries, size))

    async def _in_flight(self) -> float:
        pages = [await trio.to_thread.run_sync(kproxy.metrics) for kproxy in self.kproxies]
        return sum(page.get("kproxy_batches_in_flight", 0.0) for page in pages)

    async def _watch_metrics(self) -> None:
        while True:
            found: dict[str, float] = {}
            for kproxy in self.kproxies:
                for name, value in (await trio.to_thread.run_sync(kproxy.metrics)).items():
                    found[name] = found.get(name, 0.0) + value
            self.metrics = found or self.metrics
            await trio.sleep(_METRICS_S)

    def _judge(self) -> Verdict:
        self.phase = "checking"
        with (self._directory / "batches.log").open("w", encoding="utf-8") as batches:
            for operation in read_everything(self._kafka.bootstrap, self.plan.topics, batches):
                self.recorder.add(operation)
            if self._transactions is not None:
                for operation in self._transactions.read_uncommitted(self._kafka.bootstrap, batches):
                    self.recorder.add(operation)
        self.recorder.flush()
        history = list(read_history(self.recorder.path))
        bars = [
            *self._bars,
            *(log_bar(kproxy.name, log_problems(kproxy.log_tail(1 << 30))) for kproxy in self.kproxies),
            progress_bar(self.recorder.by_process, self._names),
            errors_bar(self.recorder.unexpected),
        ]
        anomalies = check(history, changes_order)
        verdict = Verdict(
            history, anomalies, [*bars, order_bar(anomalies), repeats_bar(anomalies, killed=self._was_killed)]
        )
        if verdict.anomalies:
            self.arrivals.explain()
        return verdict


async def run_chaos(
    plan: Plan, kafka: RelayedKafka, directory: Path, watch: Callable[[Run], None], every_s: float
) -> Verdict:
    """Run a plan; ``watch`` is called every so often while it lasts.

    :raises KproxyFailed: kproxy ended by itself.
    """
    with Recorder(directory) as recorder:
        run = Run(plan, kafka, directory, recorder)
        with run.arrivals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_call_often, partial(watch, run), every_s)
                verdict = await run.run()
                nursery.cancel_scope.cancel()
    return verdict


async def _call_often(function: Callable[[], None], every_s: float) -> None:
    while True:
        function()
        await trio.sleep(every_s)


def _relays_before(kproxy: KproxyProcess, seed: int, arrivals: Arrivals, first: int) -> list[FaultRelay]:
    """Relays that are numbered from ``first``."""
    faults = Faults()
    places = enumerate(zip(kproxy.targets, kproxy.advertised, strict=True), first)
    return [
        FaultRelay(("127.0.0.1", target), port=port, faults=faults, seed=seed, watch=partial(arrivals.take, number))
        for number, (target, port) in places
    ]
