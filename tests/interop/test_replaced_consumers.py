"""A consumer that its group has replaced in a transaction, of clients that do not say who has read what they wrote.

Its successor has a transactional id of its own: so nobody fences it, and what it commits is a second copy of what its
successor has committed. KIP-447 is for this, but not for these clients.
"""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.testing.cluster_client import ClusterClient
from tests.interop.committed import CommittedReader
from tests.interop.copiers import copier
from tests.interop.homes import Home
from tests.support.clients import Command, java_program, python_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_HOMES: Final = ("native", "kproxy", "broker-fenced")
_VALUES: Final = ("a", "b", "c")
_AT_A_TIME: Final = 8
_SESSION_MS: Final = 10_000
_SLOW_MS: Final = 5_000
_PATIENT_MS: Final = 60_000


class Way(Enum):
    """How an application comes to write what another has read."""

    SLEEPS = "sleeps"
    """Nothing of it runs until its successor has committed."""
    JOINS_AGAIN = "joins-again"
    """It sleeps, and its consumer has rejoined the group by itself before the application comes to its commit."""
    IS_SLOW = "is-slow"
    """It takes longer than ``max.poll.interval.ms``: its consumer leaves the group by itself."""


@dataclass(frozen=True)
class Client:
    """A released client without KIP-447, and how it says that its offsets were refused."""

    install: Callable[[], Command]
    refused: str
    ways: tuple[Way, ...]


def _aiokafka() -> Command:
    return python_driver("aiokafka_copier.py", "aiokafka==0.14.0", "cramjam==2.11.0")


def _kafka_python() -> Command:
    return python_driver(
        "kafka_python_copier.py",
        "kafka-python==3.0.12",
        "lz4==4.4.5",
        "python-snappy==0.7.3",
        "zstandard==0.25.0",
        "six==1.17.0",
    )


def _java() -> Command:
    return java_program(
        "copier",
        "org.apache.kafka:kafka-clients:2.0.1",
        "org.slf4j:slf4j-simple:1.7.36",
        "com.google.code.gson:gson:2.11.0",
    )


_CLIENTS: Final = {
    "aiokafka-0.14.0": Client(_aiokafka, r"KafkaError.*Unexpected error", (Way.SLEEPS, Way.JOINS_AGAIN)),
    "kafka-python-3.0.12": Client(_kafka_python, r"UnknownMember", (Way.SLEEPS,)),
    "java-2.0.1": Client(_java, r"Unexpected error in TxnOffsetCommitResponse", (Way.SLEEPS, Way.IS_SLOW)),
}
_CASES: Final = [(name, way) for name, client in _CLIENTS.items() for way in client.ways]
_each_case = pytest.mark.parametrize("case", _CASES, ids=lambda case: f"{case[0]}-{case[1].value}")


@dataclass(frozen=True)
class Outcome:
    """What the one that was replaced heard of its commit, and who wrote what is to be read: (writer, value)."""

    told: str
    read: list[tuple[str, str]]


def _replaced(client: Client, way: Way, home: Home, directory: Path) -> Outcome:
    name = f"replaced-{uuid4().hex[:8]}"
    source, target = f"{name}-in", f"{name}-out"
    with ClusterClient(home.kafka.bootstrap) as brokers:
        for topic in (source, target):
            brokers.create_topic(topic, 1)
        now_ms = int(time.time() * 1000)
        rows = [Record(at, now_ms, None, value.encode()) for at, value in enumerate(_VALUES)]
        assert brokers.produce(source, 0, build_batch(rows)).error_code == 0
    job = {"bootstrap": home.bootstrap, "group": name, "source": source, "target": target}
    job |= {"count": len(_VALUES), "session_ms": _SESSION_MS}
    poll_ms = {"old": _SLOW_MS if way is Way.IS_SLOW else _PATIENT_MS, "new": _PATIENT_MS}
    jobs = [{**job, "client_id": who, "id": f"{name}-{who}", "max_poll_ms": poll_ms[who]} for who in ("old", "new")]
    command, log = client.install(), directory / name
    with copier(command, jobs[0], log) as old, copier(command, jobs[1], log) as new:
        assert old.do("write") == "written"
        if way is not Way.IS_SLOW:
            old.stop()
        assert new.do("write") == "written"
        assert new.do("commit") == "committed"
        old.wake()
        if way is Way.JOINS_AGAIN:
            assert old.do("joined") == "joined"
        told = old.do("commit")
    # The successor's records follow the others: a reader of the last of them knows the outcome of all.
    with CommittedReader(home.bootstrap, [target]) as reader:
        reader.until(lambda: ("new", _VALUES[-1]) in reader.rows(target), lambda: f"{told}; {reader.rows(target)}")
        return Outcome(told, reader.rows(target))


_Case = tuple[str, Way]
_Outcomes = dict[tuple[str, _Case], Future[Outcome]]


@pytest.fixture(scope="module")
def outcomes(home: Callable[[str], Home], tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Outcomes]:
    """Of each client in each home; some run side by side, for they sleep most of the time."""
    places = {name: home(name) for name in _HOMES}
    directory = tmp_path_factory.mktemp("replaced")
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield {
            (name, case): pool.submit(_replaced, _CLIENTS[case[0]], case[1], place, directory)
            for name, place in places.items()
            for case in _CASES
        }


@_each_case
def test_at_the_broker_alone_both_copies_are_committed(outcomes: _Outcomes, case: _Case) -> None:
    outcome = outcomes["native", case].result()
    assert outcome == Outcome("committed", [*_copied_by("old"), *_copied_by("new")])


@_each_case
@pytest.mark.parametrize("name", ["kproxy", "broker-fenced"])
def test_through_kproxy_the_successors_copy_is_the_only_one(
    outcomes: _Outcomes, home: Callable[[str], Home], name: str, case: _Case
) -> None:
    outcome = outcomes[name, case].result()
    assert outcome.read == _copied_by("new")
    assert re.search(_CLIENTS[case[0]].refused, outcome.told)
    kproxy = home(name).kproxy
    assert kproxy is not None
    kproxy.check()


def _copied_by(writer: str) -> list[tuple[str, str]]:
    return [(writer, value) for value in _VALUES]
