"""Producers that know nothing of transactions, in groups that the broker keeps from readers, on real Kafka.

Each is a member at one of two kproxies; one append to kproxy's log decides all. All is read at the broker, by
librdkafka with read_committed, which knows nothing of kproxy.
"""

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from kproxy.client import ControlClient, ControlError, ControlUnreachable
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.txn.described import OwnerId
from tests.interop.plain_reader import read_committed
from tests.interop.proxy import KproxyProcess
from tests.support.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.java]
PARTITIONS = 2
_KILLS = int(os.environ.get("INTEROP_KILLS", "4"))
#: librdkafka without ApiVersions and idempotence, as it was for 0.9.
OLD = {"api.version.request": False, "broker.version.fallback": "0.9.0.1", "acks": "all", "linger.ms": 5}


@dataclass
class Seat:
    """One kproxy, and who asks it."""

    kproxy: KproxyProcess
    control: ControlClient

    def restart(self) -> None:
        self.kproxy.kill()
        self.kproxy.__enter__()


@dataclass
class Stage:
    """Two kproxies, members that are transactions of the broker's by a rule or by their wish, and a topic."""

    kafka: RealKafka
    name: str
    seats: list[Seat]
    by_wish: bool
    owner: OwnerId = field(init=False)

    def prepare(self, seat: Seat, value: str) -> str:
        """A member that has written one record with this value to each partition, and waits; its name."""
        member = f"{self.name}-{value}-{uuid4().hex[:8]}"
        wish = self.by_wish
        seat.control.begin_member(self.name, member, client_id=member, owner=self.owner, prefer_broker=wish)
        options = {"bootstrap.servers": seat.kproxy.bootstrap, "client.id": member, "log_level": 0, **OLD}
        producer = Producer(options)
        for partition in range(PARTITIONS):
            producer.produce(self.name, value, partition=partition)
        assert producer.flush(PATIENCE_S) == 0
        seat.control.prepare_member(self.name, member)
        return member

    def commit(self, seats: Sequence[Seat], members: Sequence[str], batch: str) -> None:
        """Until one of them says that it is."""
        asked = itertools.cycle(seats)

        def commit() -> bool:
            with suppress(ControlError, ControlUnreachable):
                next(asked).control.commit(self.name, batch_id=batch, members=members, owner=self.owner)
                return True
            return False

        eventually(commit)

    def read(self) -> list[list[str]]:
        """What a read_committed consumer of the broker finds in each partition, up to the first that is undecided."""
        return read_committed(self.kafka.bootstrap, self.name, PARTITIONS)

    def until_read(self, *values: str) -> None:
        """Each partition holds these, in any order, and each once."""
        eventually(lambda: [sorted(rows) for rows in self.read()] == [sorted(values)] * PARTITIONS, otherwise=self.read)


@pytest.fixture(params=["by rule", "by wish"])
def stage(kafka: RealKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    by_wish = request.param == "by wish"
    name = f"groups-{uuid4().hex[:8]}"
    with ClusterClient(kafka.bootstrap) as client:
        client.create_topic(name, PARTITIONS)
    with ExitStack() as running:
        seats: list[Seat] = []
        for which in ("a", "b"):
            socket = tmp_path / f"{which}.sock"
            options = ("--control-socket", str(socket), "--instance-id", f"{name}-{which}")
            home = "auto" if by_wish else "broker"
            kproxy = KproxyProcess(kafka.bootstrap, tmp_path / which, *options, "--transactions-home", home)
            seats.append(Seat(running.enter_context(kproxy), ControlClient(socket)))
        made = Stage(kafka, name, seats, by_wish)
        made.owner = seats[0].control.initialize(name, timeout_ms=600_000).owner
        yield made
        for seat in seats:
            seat.kproxy.check()


def test_members_at_two_kproxies_show_together_or_not_at_all(stage: Stage) -> None:
    a, b = stage.seats
    members = [stage.prepare(a, "1"), stage.prepare(b, "2")]
    assert stage.read() == [[]] * PARTITIONS
    found = b.control.describe(stage.name)
    assert sorted(part.name for part in found.parts if part.prepared) == sorted(members)
    assert all(part.expires_ms is not None and part.expires_ms > time.time() * 1000 for part in found.parts)
    done = b.control.commit(stage.name, batch_id="1", members=members, owner=stage.owner)
    assert (done.state, done.parts) == ("CompleteCommit", ())
    stage.until_read("1", "2")
    members = [stage.prepare(a, "3"), stage.prepare(b, "4")]
    assert a.control.abort(stage.name, members=members, owner=stage.owner).state == "CompleteAbort"
    member = stage.prepare(b, "5")
    a.control.commit(stage.name, batch_id="2", members=[member], owner=stage.owner)
    stage.until_read("1", "2", "5")


def test_both_are_killed_when_all_is_prepared(stage: Stage) -> None:
    a, b = stage.seats
    members = [stage.prepare(a, "1"), stage.prepare(b, "2")]
    a.restart()
    b.restart()
    assert stage.read() == [[]] * PARTITIONS
    stage.commit([b], members, "1")
    stage.until_read("1", "2")


def test_who_decides_is_killed_at_any_time(stage: Stage) -> None:
    a, b = stage.seats
    chance, written = random.Random(7), list[str]()
    for batch in range(_KILLS):
        values = [f"{batch}-{which}" for which in "xyz"]
        members = [stage.prepare(chance.choice(stage.seats), value) for value in values]
        killer = threading.Timer(chance.uniform(0.0, 0.05), a.kproxy.kill)
        killer.start()
        stage.commit([a, b], members, str(batch))
        killer.join()
        written += values
        stage.until_read(*written)
        a.kproxy.__enter__()
