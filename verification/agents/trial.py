"""One trial: an agent writes lines, responses are lost, kproxy may be killed, and the log is read back."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import trio

from kproxy.codec.batch_reader import iter_records
from kproxy.codec.messages import ApiKey
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.relay import Drop, Ending, FaultRelay, Faults
from verification.agents.agent import TOPIC, Agent, Process, line, number_in
from verification.chaos.kproxy_process import KproxyProcess
from verification.network.relayed import relayed_brokers, relayed_kproxy

__all__ = ["KINDS", "Found", "Place", "Trial", "run", "write_all"]

KINDS: Final = ("direct", "through", "killed", "restarted", "broker", "hand-over")
_PARTITIONS: Final = 3
_MOST_BYTES: Final = 1 << 30
#: Nothing has come for so long, in seconds: the agent has given up the rest, or has nothing left.
_QUIET_S: Final = 45.0
#: After the last line was seen a copy may still come.
_SETTLED_S: Final = 5.0
_LOOKS_EVERY_S: Final = 1.0
_PAUSE_S: Final = 0.03
_STOP_S: Final = 60.0
_BREAKS: Final = 3


class Trial(NamedTuple):
    """What is tried; ``share`` of Produce responses are lost.

    ``kind``: the agent at the broker ("direct"), at kproxy ("through"), which is killed three times ("killed"), is
    stopped in good order and started again three times ("restarted"), or hands over to a successor three times
    ("hand-over"); or the broker is stopped in good order and started again three times ("broker").
    """

    agent: type[Agent]
    kind: str
    lines: int
    share: float


@dataclass(frozen=True, slots=True)
class Found:
    """What is in the log, and how many Produce responses were lost in flight."""

    lines: int
    missing: int
    copies: int
    dropped: int
    seconds: float

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.copies)


class Place(NamedTuple):
    """Where the agent connects to, and where the log is read."""

    bootstrap: str
    kafka: RealKafka
    relays: list[FaultRelay]
    kproxy: KproxyProcess | None = None

    @property
    def dropped(self) -> int:
        return sum(relay.counts.dropped_answers[ApiKey.PRODUCE] for relay in self.relays)


def run(trial: Trial, directory: Path) -> Found:
    """Runs it. Unavailable, AgentFailed, KproxyFailed: it could not be run to its end."""
    began = time.monotonic()
    faults = Faults(drop_answers=Drop(share=trial.share, ending=Ending.RST))
    open_place = _direct if trial.kind == "direct" else _through
    with open_place(directory, faults) as place:
        with ClusterClient(place.kafka.bootstrap) as client:
            client.create_topic(TOPIC, _PARTITIONS, 1)
        home = directory / "agent"
        home.mkdir()
        agent = trial.agent(home, place.bootstrap)
        with agent.running() as process:
            write_all(trial, agent, process, place)
            agent.finish(process)
            copies = _awaited(trial, agent, process, place)
        return Found(
            trial.lines,
            missing=trial.lines - len(copies),
            copies=copies.total() - len(copies),
            dropped=place.dropped,
            seconds=time.monotonic() - began,
        )


def write_all(trial: Trial, agent: Agent, process: Process, place: Place) -> None:
    """Hands it all lines. What the kind of trial stops is stopped and started meanwhile."""
    size = -(-trial.lines // (_BREAKS + 1))
    parts = [range(at, min(at + size, trial.lines)) for at in range(0, trial.lines, size)]
    with ThreadPoolExecutor(1) as writer:
        try:
            for nth, part in enumerate(parts):
                writing = writer.submit(_write, agent, process, part)
                if nth:
                    _break(trial.kind, place)
                writing.result()
        except BaseException:
            process.kill()  # else a full pipe would hold up the writer for ever
            raise


def _write(agent: Agent, process: Process, numbers: range) -> None:
    for at in range(0, len(numbers), agent.chunk):
        agent.check(process)
        agent.write([line(number) for number in numbers[at : at + agent.chunk]], process)
        time.sleep(_PAUSE_S)


def _break(kind: str, place: Place) -> None:
    kafka, kproxy = place.kafka, place.kproxy
    if kind == "broker":
        kafka.terminate(0)
        kafka.restart(0)
        with ClusterClient(kafka.bootstrap) as client:
            for partition in range(_PARTITIONS):
                client.wait_served(TOPIC, partition)
    elif kind == "hand-over" and kproxy is not None:
        trio.run(kproxy.hand_over)
    elif kind in ("killed", "restarted") and kproxy is not None:
        if kind == "killed":
            kproxy.kill()
        else:
            kproxy.stop(_STOP_S)
        trio.run(kproxy.start)


def _awaited(trial: Trial, agent: Agent, process: Process, place: Place) -> Counter[int]:
    """How often each line is in the log, when nothing more comes."""
    copies: Counter[int] = Counter()
    changed = time.monotonic()
    while True:
        now, found = time.monotonic(), _copies(place.kafka)
        if found != copies:
            copies, changed = found, now
        if now - changed > (_SETTLED_S if len(copies) == trial.lines else _QUIET_S):
            return copies
        agent.check(process)
        time.sleep(_LOOKS_EVERY_S)


def _copies(kafka: RealKafka) -> Counter[int]:
    copies: Counter[int] = Counter()
    with ClusterClient(kafka.bootstrap) as client:
        for partition in range(_PARTITIONS):
            records = iter_records(client.read_all(TOPIC, partition), max_decompressed_bytes=_MOST_BYTES)
            copies.update(number_in(bytes(record.value or b"")) for record in records)
    return copies


@contextmanager
def _direct(directory: Path, faults: Faults) -> Iterator[Place]:
    """Agent, relay, broker."""
    with relayed_brokers(faults, directory=directory / "kafka") as (kafka, relays):
        yield Place(f"127.0.0.1:{relays[0].port}", kafka, relays)


@contextmanager
def _through(directory: Path, faults: Faults) -> Iterator[Place]:
    """Agent, relays, kproxy, broker."""
    with (
        RealKafka(directory=directory / "kafka") as kafka,
        relayed_kproxy(kafka, directory, faults) as (kproxy, relays),
    ):
        yield Place(f"127.0.0.1:{kproxy.advertised[0]}", kafka, relays, kproxy)
