"""Share groups (KIP-932) through kproxy: members on Java and librdkafka while kproxy is killed, what operators ask.

Taken for granted: the broker delivers a record again if it has not received its acknowledgement. So each record may be
delivered more than once. Whether it was acknowledged is asked at the broker: a member does not know of an
acknowledgement whose response was lost with kproxy, and the broker does not deliver that record again.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka import Producer, ShareConsumer

from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.interop.jvm import running
from tests.interop.proxy import KproxyProcess
from tests.support.clients import Command, java_program
from tests.support.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_CLIENTS: Final = "org.apache.kafka:kafka-clients:4.4.0"
_SLF4J: Final = "org.slf4j:slf4j-simple:1.7.36"
_PARTITIONS: Final = 2
_COUNT: Final = 2_000


@dataclass(frozen=True)
class Stage:
    """kproxy in front of a broker, a topic, and the program of share members."""

    kproxy: KproxyProcess
    directory: Path
    topic: str
    command: Command

    def arguments(self, what: str, group: str, bootstrap: str = "") -> list[str]:
        """The command of the program; by default it asks kproxy."""
        return [*self.command.argv, what, bootstrap or self.kproxy.bootstrap, group, self.topic]

    def asked(self, what: str, group: str, bootstrap: str = "") -> list[str]:
        """What an operator reads."""
        command = self.arguments(what, group, bootstrap)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    def printed(self, *members: str) -> list[str]:
        """What some members have printed."""
        return [line for name in members for line in (self.directory / name).read_text().splitlines()]

    def said(self, what: str, *members: str) -> list[str]:
        """What followed a word, in each line that began with it."""
        return [line[len(what) + 1 :] for line in self.printed(*members) if line.startswith(f"{what} ")]

    def is_done(self, group: str, broker: str) -> bool:
        """Whether the broker has an acknowledgement of each record."""
        none = ", ".join(f"{partition}=0" for partition in range(_PARTITIONS))
        return self.asked("describe", group, broker)[-1] == f"lags {{{none}}}"

    def write(self, first: int, count: int) -> None:
        """Records without a transaction, through kproxy."""
        producer = Producer({"bootstrap.servers": self.kproxy.bootstrap})
        for number in range(first, first + count):
            producer.produce(self.topic, str(number).encode(), partition=number % _PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0


@pytest.fixture
def stage(kafka: RealKafka, tmp_path: Path) -> Iterator[Stage]:
    topic = f"share-{uuid4().hex[:8]}"
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(topic, _PARTITIONS)
    command = java_program("share", _CLIENTS, _SLF4J)
    with KproxyProcess(kafka.bootstrap, tmp_path / "log", "--transactions-home", "kproxy") as kproxy:
        yield Stage(kproxy, tmp_path, topic, command)
        kproxy.check()


def test_each_record_is_acknowledged_though_kproxy_is_killed(stage: Stage, kafka: RealKafka) -> None:
    group, members = f"group-{stage.topic}", ("one", "two")
    stage.write(0, _COUNT)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(running(stage.arguments("read", group), stage.directory / name)) for name in members
        ]

        def got() -> set[str]:
            return set(stage.said("got", *members))

        eventually(lambda: len(got()) >= _COUNT // 4, otherwise=lambda: stage.printed(*members)[-20:])
        stage.kproxy.kill()
        stage.kproxy.__enter__()
        stage.write(_COUNT, _COUNT)
        wanted = {str(number) for number in range(2 * _COUNT)}
        eventually(lambda: got() == wanted, otherwise=lambda: (len(got()), stage.printed(*members)[-20:]))
        eventually(
            lambda: stage.is_done(group, kafka.bootstrap),
            otherwise=lambda: stage.asked("describe", group, kafka.bootstrap),
        )
        for process in processes:
            process.terminate()
        eventually(lambda: stage.printed(*members).count("left") == len(members))
    assert stage.said("acknowledged", *members)
    assert not stage.said("failed", *members)
    described = stage.asked("describe", group)
    assert described == stage.asked("describe", group, kafka.bootstrap)
    assert described[0] == "state Empty"
    assert stage.asked("change", group) == ["altered 3", "deleted none"]


class Librdkafka:
    """A member of a group on librdkafka, that acknowledges what it has got before it asks for more."""

    def __init__(self, stage: Stage, group: str) -> None:
        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": stage.kproxy.bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": 20,
            }
        )
        self._consumer.subscribe([stage.topic])
        self.got: set[str] = set()

    def step(self) -> None:
        """Polls once, and acknowledges."""
        for message in self._consumer.poll(0.5):
            value = message.value()
            if message.error() is None and value is not None:
                self._consumer.acknowledge(message)
                self.got.add(value.decode())
        self._consumer.commit_sync(PATIENCE_S)

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close()


def test_members_of_two_clients_share_a_topic_though_kproxy_is_killed(stage: Stage, kafka: RealKafka) -> None:
    group = f"group-{stage.topic}"
    stage.write(0, _COUNT)
    with (
        running(stage.arguments("read", group), stage.directory / "java"),
        closing(Librdkafka(stage, group)) as member,
    ):
        eventually(lambda: len(member.got) >= _COUNT // 10, member.step)
        stage.kproxy.kill()
        stage.kproxy.__enter__()
        stage.write(_COUNT, _COUNT)
        wanted = {str(number) for number in range(2 * _COUNT)}

        def got() -> set[str]:
            return member.got | set(stage.said("got", "java"))

        eventually(lambda: got() == wanted, member.step, lambda: (len(got()), stage.printed("java")[-20:]))
        eventually(
            lambda: stage.is_done(group, kafka.bootstrap),
            member.step,
            lambda: stage.asked("describe", group, kafka.bootstrap),
        )
    assert stage.said("acknowledged", "java")
    assert not stage.said("failed", "java")


def test_a_topic_with_transactions_that_kproxy_decides_is_refused_and_the_error_says_why(stage: Stage) -> None:
    """Records that are not committed must not be delivered, nor those of an aborted transaction."""
    stage.write(0, 10)
    with running(stage.arguments("read", f"group-{stage.topic}"), stage.directory / "before"):
        eventually(lambda: len(stage.said("acknowledged", "before")) == 10, otherwise=lambda: stage.printed("before"))
        producer = Producer({"bootstrap.servers": stage.kproxy.bootstrap, "transactional.id": stage.topic})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for partition in range(_PARTITIONS):
            producer.produce(stage.topic, b"secret", partition=partition)
        producer.flush(PATIENCE_S)
        eventually(lambda: stage.said("failed", "before"), otherwise=lambda: stage.printed("before"))
        producer.abort_transaction(PATIENCE_S)
    with running(stage.arguments("read", f"other-{stage.topic}"), stage.directory / "after"):
        eventually(lambda: stage.said("failed", "after"), otherwise=lambda: stage.printed("after"))
    assert "TopicAuthorizationException" in stage.said("failed", "before")[0]
    assert f"{stage.topic} is closed to share groups" in stage.said("failed", "after")[0]
    assert "secret" not in stage.said("got", "before", "after")
