"""Each id's requests go to the owner where its transactions are decided."""

from typing import Any

import pytest
import trio

from kproxy.config import Config
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.jobs import Jobs
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.txn.ids import Producer
from kproxy.txn.requests import TxnRequest

RULES = (
    HomeRule("kept-*", Home.KPROXY),
    HomeRule("late-*", Home.BROKER_FENCED),
    HomeRule("theirs-*", Home.BROKER),
    HomeRule("*", Home.AUTO),
)


class _Owners:
    """Notes what its owners are asked."""

    def __init__(self) -> None:
        self.topics = self
        self.asked: list[str] = []

    async def errors(self, places: Any) -> dict[Any, Any]:
        return {}

    async def owner(self, request: TxnRequest) -> "_Owners":
        return self

    def of(self, name: str) -> "_Owners":
        return self

    async def take(self, name: str, policy: object) -> "_Owners":
        return self

    def __getattr__(self, name: str) -> Any:
        async def ask(*_: Any, **__: Any) -> None:
            self.asked.append(name)

        return ask


def coordinator(nursery: trio.Nursery, rules: tuple[HomeRule, ...] = RULES) -> tuple[Coordinator, Any, Any]:
    log: Any = _Owners()
    brokers: Any = _Owners()
    config = Config(bootstrap_servers=(), transactions_home=rules, instance_id="here")
    return Coordinator(log, brokers, config, Jobs(nursery)), log, brokers


@pytest.mark.parametrize(
    ("name", "at_broker"), [("theirs-1", True), ("late-1", True), ("kept-1", False), ("other", False)]
)
async def test_an_id_is_decided_at_home(name: str, at_broker: bool, nursery: trio.Nursery) -> None:
    asked, log, brokers = coordinator(nursery)
    request = TxnRequest(name, Producer(1, 0), 0, "client")
    await asked.init_producer_id(name, 1, None, "client")
    await asked.add_partitions(request, [("t", 0)])
    await asked.add_offsets(request, "g")
    await asked.produce(request, [], implicit=True, accepted=lambda: None)
    await asked.end(request, committed=True, bumps=False)
    await asked.prepare(request)
    expected = ["initialize", "join", "add_offsets", "produce", "end", "prepare"]
    assert (log.asked, brokers.asked) == (([], expected) if at_broker else (expected, []))
    assert asked.is_at_broker(name) is at_broker
    assert asked.instance_id == "here"


async def test_only_a_rule_takes_ids_to_the_broker(nursery: trio.Nursery) -> None:
    assert coordinator(nursery)[0].any_at_broker
    assert not coordinator(nursery, RULES[:1])[0].any_at_broker
    assert not coordinator(nursery, RULES[-1:])[0].any_at_broker


async def test_work_is_begun_with_the_jobs_of_all(nursery: trio.Nursery) -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    await coordinator(nursery)[0].start(work)()
    assert done == [1]
