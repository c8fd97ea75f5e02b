"""Options, batches and a control API for tests of the sink."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from kproxy.client import ControlUnreachable, OwnerId
from kproxy.spark.sink_options import SinkOptions, parse

PLAIN = {"kafka.bootstrap.servers": "localhost:9092", "transactional.id": "orders", "topic": "out"}


def options(**changes: Any) -> SinkOptions:
    return replace(parse(PLAIN, is_stream=True), **changes)


def batch(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.string())})


@dataclass
class Part:
    name: str
    prepared: bool


@dataclass
class Found:
    producer_id: int
    producer_epoch: int
    parts: tuple[Part, ...] = ()
    batch_ids: tuple[str, ...] = ()
    member_home: str | None = "broker"

    @property
    def owner(self) -> OwnerId:
        return OwnerId(self.producer_id, self.producer_epoch)


@dataclass
class FakeControl:
    """Keeps what it was asked; ``fails`` are raised first, one for each request, None for success."""

    fails: list[Exception | None] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    epoch: int = 0
    prepared: set[str] = field(default_factory=set)
    #: What was done before its response was lost.
    losing: Callable[[str], bool] = lambda name: False
    #: Batches that the log says were committed.
    committed: tuple[str, ...] = ()
    #: What the check of both ends raises, and how often it was made.
    elsewhere: Exception | None = None
    checks: int = 0
    #: Who keeps members' data from readers.
    member_home: str | None = "broker"
    #: Clients that are connected to this kproxy.
    connected: set[str] = field(default_factory=set)

    def checked(self) -> None:
        self.checks += 1
        if self.elsewhere is not None:
            raise self.elsewhere

    def clients(self, client_id: str | None = None) -> dict[str, Any]:
        if self.fails and (error := self.fails.pop(0)) is not None:
            raise error
        return {"clients": [{"client_id": name} for name in self.connected if client_id in (None, name)]}

    def __getattr__(self, name: str) -> Callable[..., Found]:
        def ask(transactional_id: str, *members: str, **how: Any) -> Found:
            assert transactional_id == "orders"
            self.asked.append((name, how | ({"member": members[0]} if members else {})))
            if self.fails and (error := self.fails.pop(0)) is not None:
                raise error
            self.epoch += name == "initialize"
            if name == "prepare_member":
                self.prepared.add(members[0])
            if self.losing(name):
                raise ControlUnreachable("gone")
            parts = tuple(Part(member, True) for member in self.prepared)
            return Found(7, self.epoch, parts, self.committed, self.member_home)

        return ask

    def calls(self, name: str) -> list[dict[str, Any]]:
        return [how for asked, how in self.asked if asked == name]


class FakeClock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


OWNER = OwnerId(7, 1)
