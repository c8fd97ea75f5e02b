"""One run: numbers in, copied in transactions while processes are killed, numbers out."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kproxy.codec.batch import iter_records, read_header
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import DEFAULT_VERSION, REPLICATED, RealKafka
from verification.copiers.processes import Kproxy, Tool, ToolFailed

_INPUT: Final = "copiers-input"
_OUTPUT: Final = "copiers-output"
_PARTITIONS: Final = 2
_TRANSACTION_SIZE: Final = 100
_TRANSACTION_TIMEOUT_MS: Final = 20_000
_LOOK_SECONDS: Final = 0.2
_BROKER_AWAY_SECONDS: Final = 4.0
_ROOMY: Final = 1 << 26


@dataclass(frozen=True)
class Job:
    """What to do: so many records, a kill every so many seconds at most ``kills`` times, within ``seconds``."""

    records: int
    kills: int
    pause: float
    seconds: float
    seed: int


@dataclass
class Outcome:
    """What came of it."""

    records: int
    committed: int = 0
    unique: int = 0
    disordered: int = 0
    #: Records in the output's logs, those of aborted transactions too.
    written: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    bugs: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether each number is there once, in order, and nothing went wrong inside kproxy."""
        return self.committed == self.unique == self.records and not self.disordered and not self.bugs


class _Stage:
    """The cluster, two kproxies and two copiers, each of its own partition and through its own kproxy."""

    def __init__(self, kafka: RealKafka, directory: Path, stack: ExitStack, job: Job) -> None:
        self.kafka = kafka
        self.job = job
        self.kproxies = [Kproxy(f"kproxy-{name}", kafka.bootstrap, directory) for name in "ab"]
        for kproxy in self.kproxies:
            stack.enter_context(kproxy)
            kproxy.wait_ready()
        self.directory = directory
        self.copiers = [self._copier(index) for index in range(_PARTITIONS)]

    def _copier(self, index: int) -> Tool:
        arguments = ["TransactionalMessageCopier", "--broker-list", self.kproxies[index].bootstrap]
        arguments += ["--input-topic", _INPUT, "--input-partition", str(index), "--output-topic", _OUTPUT]
        arguments += ["--transactional-id", f"copier-{index}", "--consumer-group", f"copiers-{index}"]
        arguments += ["--transaction-size", str(_TRANSACTION_SIZE), "--enable-random-aborts", "--use-group-metadata"]
        arguments += ["--transaction-timeout", str(_TRANSACTION_TIMEOUT_MS)]
        return Tool(f"copier-{index}", DEFAULT_VERSION, arguments, self.directory)

    def produce(self, tell: Callable[[str, int], None]) -> None:
        """Writes the numbers; ToolFailed if some are not acknowledged."""
        arguments = ["VerifiableProducer", "--bootstrap-server", self.kproxies[0].bootstrap, "--topic", _INPUT]
        arguments += ["--max-messages", str(self.job.records), "--acks", "-1"]
        acknowledged, deadline = 0, time.monotonic() + self.job.seconds
        with Tool("producer", DEFAULT_VERSION, arguments, self.directory) as producer:
            while producer.exit_code is None and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                acknowledged += sum(row.get("name") == "producer_send_success" for row in producer.news())
                tell("written", acknowledged)
            acknowledged += sum(row.get("name") == "producer_send_success" for row in producer.news())
            tell("written", acknowledged)
            if acknowledged < self.job.records:
                raise ToolFailed(f"{acknowledged} of {self.job.records} records are acknowledged:\n{producer.tail()}")


def run(job: Job, directory: Path, tell: Callable[[str, int], None]) -> Outcome:
    """Does it; ``tell(what, how many)`` hears how far it is. ToolFailed if the tools do not come to an end."""
    began = time.monotonic()
    outcome = Outcome(job.records)
    with ExitStack() as stack:
        kafka = stack.enter_context(RealKafka(brokers=3, config=REPLICATED))
        with ClusterClient(kafka.bootstrap) as client:
            for topic in (_INPUT, _OUTPUT):
                client.create_topic(topic, _PARTITIONS, 3)
        stage = _Stage(kafka, directory, stack, job)
        stage.produce(tell)
        with _copying(stage):
            _until_copied(stage, outcome, tell)
        _count(stage, outcome)
    outcome.seconds = time.monotonic() - began
    return outcome


@contextmanager
def _copying(stage: _Stage) -> Iterator[None]:
    with ExitStack() as stack:
        for copier in stage.copiers:
            stack.enter_context(copier)
        yield


def _until_copied(stage: _Stage, outcome: Outcome, tell: Callable[[str, int], None]) -> None:
    """Kills processes at random, until all is copied; one that ends without having copied all is started again."""
    chance, job = random.Random(stage.job.seed), stage.job
    deadline, next_kill = time.monotonic() + job.seconds, time.monotonic() + job.pause
    done: set[str] = set()
    while len(done) < len(stage.copiers):
        if time.monotonic() > deadline:
            logs = "\n".join(copier.tail() for copier in stage.copiers)
            raise ToolFailed(f"not copied within {job.seconds:.0f} s:\n{logs}")
        for copier in stage.copiers:
            if copier.name not in done and copier.exit_code is not None:
                done |= {copier.name} if _has_all(copier) else set()
                if copier.name not in done:
                    copier.start()
        if outcome.kills.total() < job.kills and time.monotonic() > next_kill:
            outcome.kills[_kill(stage, chance, done)] += 1
            next_kill = time.monotonic() + job.pause * chance.uniform(0.5, 1.5)
        tell("kills", outcome.kills.total())
        tell("copied", _copied(stage))
        time.sleep(_LOOK_SECONDS)


def _has_all(copier: Tool) -> bool:
    """Whether a copier that has ended has said that nothing is left."""
    said = [row for row in copier.news() if row.get("stage") == "ShutdownComplete"]
    return bool(said) and said[-1].get("remaining") == 0 and not copier.exit_code


def _kill(stage: _Stage, chance: random.Random, done: set[str]) -> str:
    """Kills something, and starts it again."""
    victims = ["kproxy", "kproxy", "broker", "copier"]
    what = chance.choice(victims)
    if what == "kproxy":
        kproxy = chance.choice(stage.kproxies)
        kproxy.kill()
        kproxy.start()
    elif what == "broker":
        index = chance.randrange(stage.kafka.brokers)
        stage.kafka.kill(index)
        time.sleep(_BROKER_AWAY_SECONDS)
        stage.kafka.restart(index)
    else:
        running = [copier for copier in stage.copiers if copier.name not in done]
        if running:
            copier = chance.choice(running)
            copier.kill()
            copier.start()
    return what


def _copied(stage: _Stage) -> int:
    """Records in the output that a reader of committed data has before it, as far as is known now."""
    try:
        with ClusterClient(stage.kproxies[0].bootstrap, timeout=5) as client:
            return sum(client.offset(_OUTPUT, index, isolation_level=1) for index in range(_PARTITIONS))
    except (OSError, RuntimeError):
        return 0


def _count(stage: _Stage, outcome: Outcome) -> None:
    """Reads the output through kproxy as a reader of committed data does, and as it lies in the log."""
    for kproxy in stage.kproxies:
        kproxy.wait_ready()
    seen: Counter[bytes] = Counter()
    for index in range(_PARTITIONS):
        wanted = _values(stage.kproxies[1].bootstrap, _INPUT, index, committed=True)
        found = _values(stage.kproxies[1].bootstrap, _OUTPUT, index, committed=True)
        outcome.written += len(_values(stage.kafka.bootstrap, _OUTPUT, index, committed=False))
        outcome.disordered += sum(one != other for one, other in zip(found, wanted, strict=False))
        seen.update(found)
    outcome.committed, outcome.unique = seen.total(), len(seen)
    outcome.bugs = [bug for kproxy in stage.kproxies for bug in kproxy.bugs()]


def _values(bootstrap: str, topic: str, partition: int, *, committed: bool) -> list[bytes]:
    with ClusterClient(bootstrap) as client:
        data = client.read_all(topic, partition, isolation_level=int(committed))
    values: list[bytes] = []
    at = 0
    while at < len(data):
        header = read_header(data, at)
        batch = memoryview(data)[at : at + header.size]
        if not header.is_control:
            values += [row.value or b"" for row in iter_records(batch, max_decompressed_bytes=_ROOMY)]
        at += header.size
    return values
