"""One run of the proof: a cluster, a kproxy, numbers in; then the job for a sink, and what it made of them."""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka import Producer

from kproxy.client import ControlClient, ControlError, ControlUnreachable
from kproxy.proxy.coordinator_rules import Home
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import REPLICATED, RealKafka
from kproxy.testing.tools import Unavailable
from verification.copiers.processes import Kproxy, ToolFailed
from verification.spark_proof.connector import connector_jars
from verification.spark_proof.driver import DRIVER, EXECUTOR, WORKER, Driver, running
from verification.spark_proof.job import INPUT_PARTITIONS, KAFKA, KPROXY
from verification.spark_proof.kills import Kills, PlannedKills, RandomKills
from verification.spark_proof.reader import Beside, Reader, check_decided, read_to_end
from verification.spark_proof.verdict import Outcome, TopicPartition, exactness, torn_moments

INPUT: Final = "proof-input"
_OUTPUTS: Final = ("a", "b", "c")
_OUTPUT_PARTITIONS: Final = 2
_PADDING: Final = "-" * 80
_LOOK_SECONDS: Final = 0.2
_BROKER_AWAY_SECONDS: Final = 4.0
_PATIENCE_SECONDS: Final = 120.0
#: What is killed at random, the likelier ones more than once.
_VICTIMS: Final = (DRIVER, EXECUTOR, EXECUTOR, WORKER, WORKER, KPROXY, KPROXY, "broker")
VICTIMS: Final = tuple(dict.fromkeys(_VICTIMS))

TRANSACTIONAL_ID: Final = "proof"

Tell = Callable[[str, int], None]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Job:
    """What to do: so many records in batches of so many, a kill every so many seconds and at most ``kills``."""

    records: int
    batch: int
    kills: int
    pause: float
    #: A run that takes longer fails.
    seconds: float
    seed: int
    brokers: int
    #: Spark's master: ``local-cluster[2,1,1024]`` is two executors of one core, as processes.
    master: str
    #: Of kproxy's transactions; where the broker decides, all is read there.
    home: Home = Home.KPROXY
    #: Whom to kill, in an order by ``seed``, in place of ``kills`` at random: each in the middle of a batch of its own.
    victims: tuple[str, ...] = ()

    @property
    def batches(self) -> int:
        """How many batches Spark makes of the records."""
        return -(-self.records // self.batch)


class Stage:
    """Cluster and kproxy, with the numbers in the input; each sink's job runs on it."""

    def __init__(self, job: Job, directory: Path, kafka: RealKafka) -> None:
        """``directory`` is for all logs and Spark's files; ``kafka`` runs."""
        self.job = job
        self.directory = directory
        self.kafka = kafka
        self.control = directory / "control.sock"
        options = ("--control-socket", str(self.control), "--transactions-home", job.home.value)
        self.kproxy = Kproxy("proof", kafka.bootstrap, directory, *options)
        self._readers = kafka.bootstrap if job.home.is_broker else self.kproxy.bootstrap

    def run(self, sink: str, tell: Tell) -> Outcome:
        """The job, with ``sink`` KPROXY or KAFKA; ``tell(what, how many)`` hears how far it is.

        ToolFailed if it does not come to an end, Unavailable without the connector's jars.
        """
        began, outcome = time.monotonic(), Outcome(sink, self.job.records)
        places = _create_outputs(self.kafka.bootstrap, sink, self.job.brokers)
        driver = Driver(self._arguments(sink, self.kproxy), self.directory)
        reader = Reader(self._readers, places)
        with Beside(reader), running(driver):
            self._until_done(driver, outcome, lambda: tell("copied", _copied(reader)), tell)
        outcome.drivers, outcome.looks = driver.starts, reader.looks
        outcome.seconds = time.monotonic() - began
        self._judge(outcome, reader, places)
        return outcome

    def _arguments(self, sink: str, kproxy: Kproxy) -> dict[str, str]:
        return {
            "sink": sink,
            "master": self.job.master,
            "jars": ",".join(str(jar) for jar in connector_jars()) if sink == KAFKA else "",
            "kproxy": kproxy.bootstrap,
            "control": str(self.control),
            "brokers": self.kafka.bootstrap,
            "id": TRANSACTIONAL_ID,
            "input": INPUT,
            "outputs": ",".join(_outputs(sink)),
            "batch": str(self.job.batch),
            "checkpoint": str(self.directory / f"checkpoint-{sink}"),
            "gates": str(self._gates(sink)) if self.job.victims else "",
        }

    def _until_done(self, driver: Driver, outcome: Outcome, progress: Callable[[], None], tell: Tell) -> None:
        """Kills what is due; a driver that has ended otherwise than well is started again."""
        chance = random.Random(self.job.seed)
        kills = self._kills(outcome.sink, chance)
        deadline = time.monotonic() + self.job.seconds
        while driver.exit_code != 0:
            if time.monotonic() > deadline:
                raise ToolFailed(self._why_not_done(driver, outcome))
            if driver.exit_code is not None:
                driver.start()
            driver.note()
            # Workers come and go: if there is none now, one is killed as soon as there is.
            victim = kills.due()
            if victim is not None and self._kill(victim, driver, chance):
                outcome.kills[victim] += 1
                kills.killed()
            tell("kills", outcome.kills.total())
            progress()
            time.sleep(_LOOK_SECONDS)

    def _why_not_done(self, driver: Driver, outcome: Outcome) -> str:
        planned, noted = (self._noted(outcome.sink, notes) for notes in ("offsets", "commits"))
        return (
            f"not copied within {self.job.seconds:.0f} s: {len(planned)} batches planned, {len(noted)} committed, "
            f"{driver.starts} drivers, kills: {dict(outcome.kills)}\n{driver.tail()}\n{self.kproxy.tail()}"
        )

    def _kills(self, sink: str, chance: random.Random) -> Kills:
        job = self.job
        if not job.victims:
            return RandomKills((chance.choice(_VICTIMS) for _ in range(job.kills)), job.pause, chance)
        victims = chance.sample(job.victims, len(job.victims))
        return PlannedKills(victims, job.batches, self._gates(sink), partial(self._is_written, sink))

    def _gates(self, sink: str) -> Path:
        return self.directory / f"gates-{sink}"

    def _is_written(self, sink: str, batch: int) -> bool:
        """Whether a task of this batch has written its rows, and the batch is not committed. Spark's own sink does not
        say so: there it is enough that the batch is planned."""
        if batch not in self._noted(sink, "offsets"):
            return False
        if sink != KPROXY:
            return True
        try:
            parts = ControlClient(self.control).describe(TRANSACTIONAL_ID).parts
        except (ControlError, ControlUnreachable):
            return False  # kproxy, or its log's leader, is being started
        return any(part.prepared and part.name.startswith(f"{batch}-") for part in parts)

    def _noted(self, sink: str, notes: str) -> set[int]:
        """The batches of which Spark's checkpoint has a note: ``offsets``, planned, or ``commits``, done."""
        directory = self.directory / f"checkpoint-{sink}" / notes
        return {int(path.name) for path in directory.glob("*") if path.name.isdigit()}

    def _kill(self, what: str, driver: Driver, chance: random.Random) -> bool:
        if what == KPROXY:
            self.kproxy.kill()
            self.kproxy.start()
            return True
        if what != "broker":
            return driver.kill(what, chance.choice)
        index = chance.randrange(self.kafka.brokers)
        self.kafka.kill(index)
        time.sleep(_BROKER_AWAY_SECONDS)
        try:
            self.kafka.restart(index)
        except Unavailable:
            self.kafka.restart(index)  # on a machine with much to do the first try may take too long
        return True

    def _judge(self, outcome: Outcome, reader: Reader, places: Sequence[TopicPartition]) -> None:
        self.kproxy.wait_ready()
        _patiently(lambda: check_decided(self._readers, places))
        found = _patiently(lambda: read_to_end(self._readers, places, committed=True))
        for topic in _outputs(outcome.sink):
            rows = (found.numbers[place] for place in places if place.topic == topic)
            outcome.topics[topic] = exactness(chain.from_iterable(rows), self.job.records)
        ends = batch_ends(self.directory / f"checkpoint-{outcome.sink}")
        with ClusterClient(self.kafka.bootstrap) as client:
            outcome.hidden = sum(client.offset(*place) for place in places) - outcome.shown
        outcome.batches = len(next(iter(ends.values()), ()))
        if outcome.sink == KPROXY and not self.job.home.is_broker:  # the brokers' markers come one by one
            outcome.torn = torn_moments(reader.seen, found.numbers, ends, INPUT_PARTITIONS)
            outcome.torn += [
                f"{place.topic}-{place.partition} was read otherwise while it was written"
                for place, row in reader.numbers.items()
                if row != found.numbers[place][: len(row)]
            ]
        outcome.bugs = self.kproxy.bugs()


def batch_ends(checkpoint: Path) -> dict[int, list[int]]:
    """For each partition of the input, where each batch ended, from the log of offsets that Spark keeps."""
    ends: dict[int, list[int]] = {}
    logs = sorted((int(path.name), path) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
    for _, path in logs:
        offsets = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
        for partition, end in offsets[INPUT].items():
            ends.setdefault(int(partition), []).append(end)
    return ends


@contextmanager
def stage(job: Job, directory: Path) -> Iterator[Stage]:
    """Cluster and kproxy run for the length of the block. ToolFailed, Unavailable if they are unavailable."""
    config = REPLICATED if job.brokers > 1 else {}
    with RealKafka(brokers=job.brokers, config=config) as kafka:
        made = Stage(job, directory, kafka)
        with made.kproxy:
            made.kproxy.wait_ready()
            _fill(kafka.bootstrap, job)
            yield made


def _outputs(sink: str) -> list[str]:
    return [f"proof-{sink}-{name}" for name in _OUTPUTS]


def _create_outputs(bootstrap: str, sink: str, brokers: int) -> list[TopicPartition]:
    with ClusterClient(bootstrap) as client:
        for topic in _outputs(sink):
            client.create_topic(topic, _OUTPUT_PARTITIONS, min(3, brokers))
    return [TopicPartition(topic, partition) for topic in _outputs(sink) for partition in range(_OUTPUT_PARTITIONS)]


def _fill(bootstrap: str, job: Job) -> None:
    """Number n is at offset n div 4 of partition n modulo 4."""
    with ClusterClient(bootstrap) as client:
        client.create_topic(INPUT, INPUT_PARTITIONS, min(3, job.brokers))
    failed: list[str] = []
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 50}
    producer = Producer(
        {
            **settings,
            "on_delivery": lambda error, _: failed.append(error.str()),
            "delivery.report.only.error": True,
        }
    )
    for number in range(job.records):
        while True:
            try:
                producer.produce(INPUT, _PADDING, str(number), number % INPUT_PARTITIONS)
                break
            except BufferError:
                producer.poll(_LOOK_SECONDS)
    producer.flush()
    if failed:
        raise ToolFailed(f"the input was not written: {failed[0]}")


def _copied(reader: Reader) -> int:
    """Numbers of the output that is least far."""
    by_topic: dict[str, int] = {}
    for place, row in reader.numbers.items():
        by_topic[place.topic] = by_topic.get(place.topic, 0) + len(row)
    return min(by_topic.values())


def _patiently(ask: Callable[[], _T]) -> _T:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except (OSError, RuntimeError) as error:
            if time.monotonic() > deadline:
                raise ToolFailed(f"no verdict within {_PATIENCE_SECONDS:.0f} s of the copy's end: {error}") from error
            time.sleep(_LOOK_SECONDS)
