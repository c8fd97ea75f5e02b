"""Kafka Streams with exactly_once_v2 through kproxy, killed again and again: stateful and stateless, both coordinators.

A stateful application writes to its changelog, which is compacted, so the broker coordinates it. `INTEROP_KILLS` is how
often the applications are killed with SIGKILL in the middle of their work; in the end kproxy is, too.
"""

import os
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.committed import CommittedReader
from tests.interop.jvm import running
from tests.interop.proxy import KproxyProcess
from tests.support.clients import Command, java_program

pytestmark = [pytest.mark.kafka, pytest.mark.java]
PARTITIONS: Final = 2
_WORDS: Final = ("ant", "bee", "cat", "dog", "elk")
_ROUND: Final = 250
_SLF4J: Final = "org.slf4j:slf4j-simple:1.7.36"


@dataclass(frozen=True)
class Application:
    """One Streams application: what it does (see its Main.java), and who decides its transactions."""

    kind: str
    home: str

    def named(self, stage: str) -> str:
        """Its application.id, with which its transactional ids begin, and the name of its target."""
        return f"{stage}-{self.kind}-{self.home}"


COUNT_AUTO: Final = Application("count", "auto")
COUNT_FENCED: Final = Application("count", "broker-fenced")
COUNT_KPROXY: Final = Application("count", "kproxy")
UPPER_AUTO: Final = Application("upper", "auto")
UPPER_KPROXY: Final = Application("upper", "kproxy")
RUNNING: Final = (COUNT_AUTO, COUNT_FENCED, UPPER_AUTO, UPPER_KPROXY)


@dataclass
class Stage:
    """kproxy in front of a broker, a topic with words, and a process with all applications."""

    kafka: RealKafka
    directory: Path
    kproxy: KproxyProcess
    name: str
    command: Command
    settings: tuple[str, ...]
    words: list[list[str]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    @property
    def total(self) -> int:
        """How many words have been written."""
        return sum(map(len, self.words))

    @property
    def printed(self) -> str:
        """What the applications have printed."""
        return (self.directory / "streams").read_text(encoding="utf-8")

    @contextmanager
    def running(self, *applications: Application) -> Iterator[None]:
        """The applications, until the block ends: then their process is killed."""
        arguments = [self.kproxy.bootstrap, str(self.directory / "state"), *self.settings]
        for each in applications:
            arguments.append(f"{each.kind}:{each.named(self.name)}:{self.name}:{each.named(self.name)}")
        with running([*self.command.argv, *arguments], self.directory / "streams"):
            yield

    def write(self, chance: random.Random) -> None:
        """Another round of words, each with a key of its own."""
        now_ms = int(time.time() * 1000)
        with ClusterClient(self.kafka.bootstrap) as client:
            for partition, former in enumerate(self.words):
                words = chance.choices(_WORDS, k=_ROUND)
                keys = [f"{partition}-{len(former) + at}".encode() for at in range(_ROUND)]
                rows = [
                    Record(at, now_ms, key, word.encode())
                    for at, (key, word) in enumerate(zip(keys, words, strict=True))
                ]
                assert client.produce(self.name, partition, build_batch(rows)).error_code == 0
                former += words

    def wait(self, outputs: dict[Application, CommittedReader], least: int) -> None:
        """Until each application has committed so many records at least."""
        for each, reader in outputs.items():
            name = each.named(self.name)
            reader.until(
                lambda name=name, reader=reader: reader.count(name) >= least,
                lambda name=name, reader=reader: (
                    f"{name}: {reader.count(name)} of {least}\n{self.printed[-6000:]}\n{self.kproxy.log()[-4000:]}"
                ),
            )

    def expect(self, each: Application, reader: CommittedReader) -> None:
        """Each word was answered once: by itself, or by how often it has come, 1, 2, 3 ..., in order."""
        rows = reader.rows(each.named(self.name))
        if each.kind == "upper":
            sent = {f"{at}-{n}": word.upper() for at, words in enumerate(self.words) for n, word in enumerate(words)}
            assert sorted(rows) == sorted(sent.items()), each
            return
        counts = defaultdict(list)
        for word, count in rows:
            counts[word].append(int(count))
        wanted = Counter(word for words in self.words for word in words)
        assert counts == {word: list(range(1, count + 1)) for word, count in wanted.items()}, each


@pytest.fixture
def stage(kafka: RealKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    release, *settings = request.param.split()
    command = java_program("streams", f"org.apache.kafka:kafka-streams:{release}", _SLF4J)
    name = f"streams-{uuid4().hex[:8]}"
    with ClusterClient(kafka.bootstrap) as client:
        for topic in (name, *(each.named(name) for each in (*RUNNING, COUNT_KPROXY))):
            client.create_topic(topic, PARTITIONS)
    rules = ",".join(f"{each.named(name)}*={each.home}" for each in (*RUNNING, COUNT_KPROXY))
    with KproxyProcess(kafka.bootstrap, tmp_path / "log", "--transactions-home", rules) as kproxy:
        yield Stage(kafka, tmp_path, kproxy, name, command, tuple(settings))
        kproxy.check()


_KILLS: Final = int(os.environ.get("INTEROP_KILLS", "1"))


@pytest.mark.parametrize(
    ("stage", "kills"),
    [
        ("4.4.0 exactly_once_v2 classic", _KILLS),
        ("2.8.2 exactly_once_beta classic", _KILLS),
        # Who is killed keeps its place for 45 s here.
        ("4.4.0 exactly_once_v2 streams", 0),
    ],
    indirect=["stage"],
)
def test_output_is_exactly_once_however_often_it_is_killed(stage: Stage, kills: int) -> None:
    chance = random.Random(7)
    own = [each for each in RUNNING if each.home == "kproxy"]
    names = {each: each.named(stage.name) for each in RUNNING}
    with (
        CommittedReader(
            stage.kafka.bootstrap, [names[each] for each in RUNNING if each not in own], PARTITIONS
        ) as direct,
        CommittedReader(stage.kproxy.bootstrap, [names[each] for each in own], PARTITIONS) as through,
    ):
        outputs = {each: through if each in own else direct for each in RUNNING}
        for _ in range(kills):
            with stage.running(*RUNNING):
                stage.write(chance)
                stage.wait(outputs, stage.total - PARTITIONS * _ROUND + 1)
                time.sleep(chance.random() / 4)
        with stage.running(*RUNNING):
            stage.write(chance)
            stage.wait(outputs, stage.total - PARTITIONS * _ROUND + 1)
            stage.kproxy.kill()
            stage.kproxy.__enter__()
            stage.wait(outputs, stage.total)
        for each, reader in outputs.items():
            reader.read(0.5)
            stage.expect(each, reader)


@pytest.mark.parametrize("stage", ["4.4.0 exactly_once_v2 classic", "2.8.2 exactly_once_beta classic"], indirect=True)
def test_a_stateful_application_is_refused_with_kproxy_as_coordinator(stage: Stage) -> None:
    target = COUNT_KPROXY.named(stage.name)
    with CommittedReader(stage.kproxy.bootstrap, [target], PARTITIONS) as reader:
        with stage.running(COUNT_KPROXY):
            stage.write(random.Random(7))
            reader.until(lambda: "FAILED" in stage.printed, lambda: stage.printed[-4000:])
        reader.read(0.5)
        assert reader.count(target) == 0
    [failed, *_] = [line for line in stage.printed.splitlines() if line.startswith("FAILED")]
    assert re.search("PolicyViolationException|POLICY_VIOLATION", failed)
    assert f"{target}-KSTREAM-AGGREGATE-STATE-STORE" in stage.kproxy.log()
