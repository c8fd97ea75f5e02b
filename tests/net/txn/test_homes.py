"""Each id's requests go to the owner where its transactions are decided."""

from typing import Any

import pytest
import trio

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.config import Config
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.jobs import Jobs
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.requests import TxnRequest
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.txn_error import TxnError

RULES = (
    HomeRule("kept-*", Home.KPROXY),
    HomeRule("late-*", Home.BROKER_FENCED),
    HomeRule("theirs-*", Home.BROKER),
    HomeRule("*", Home.AUTO),
)
#: One of an id of each home.
REQUESTS = {
    home: TxnRequest(name, Producer(1, 0), 0, "client") for home, name in (("log", "kept-1"), ("broker", "theirs-1"))
}


class _Owners:
    """Notes what its owners are asked."""

    def __init__(self) -> None:
        self.id = TransactionalId(lambda: None)
        self.asked: list[str] = []
        self.args: list[tuple[Any, ...]] = []
        self.tasks: list[object] = []
        self.refused: dict[Any, ErrorCode] = {}
        self.at_once = False
        self.unknown: TxnError | None = None
        self.expired: Producer | None = None

    async def refusals(self, places: Any) -> dict[Any, Any]:
        return {place: self.refused[place] for place in places if place in self.refused}

    def owner_now(self, _: TxnRequest) -> None:
        """The log is asked."""

    async def owner(self, request: TxnRequest) -> "_Owners":
        if self.unknown is not None:
            raise self.unknown
        return self

    def known(self, name: str) -> "_Owners | None":
        return self if self.at_once else None

    def takes_at_once(self, batches: Any) -> bool:
        return True

    def produce_at_once(self, *_: Any, **__: Any) -> None:
        self.asked.append("produce_at_once")

    def answer_expired(self, request: TxnRequest, *, committed: bool) -> Producer | None:
        return self.expired

    def __getattr__(self, name: str) -> Any:
        async def ask(*args: Any, **_: Any) -> None:
            self.asked.append(name)
            self.args.append(args)
            self.tasks.append(trio.lowlevel.current_task())

        return ask


def coordinator(nursery: trio.Nursery, rules: tuple[HomeRule, ...] = RULES) -> tuple[Coordinator, Any, Any]:
    log: Any = _Owners()
    brokers: Any = _Owners()
    no_cluster: Any = None
    config = Config(bootstrap_servers=(), transactions_home=rules, instance_id="here")
    return Coordinator(log, brokers, config, Jobs(nursery), no_cluster, TransactionStats()), log, brokers


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


@pytest.mark.parametrize(("client", "told"), [(None, NOBODY), (Producer(1, 2), Producer(1, 2))])
@pytest.mark.parametrize("home", REQUESTS)
async def test_the_identity_that_a_client_names_is_handed_on(
    home: str, client: Producer | None, told: Producer, nursery: trio.Nursery
) -> None:
    asked, log, brokers = coordinator(nursery)
    await asked.init_producer_id(REQUESTS[home].transactional_id, 1, client, "client")
    [args] = log.args + brokers.args
    assert told in args


async def test_an_instance_that_leaves_gives_no_more_ids_in_either_home(nursery: trio.Nursery) -> None:
    asked, log, brokers = coordinator(nursery)
    asked.leave()
    assert (log.leaving, brokers.leaving) == (True, True)


@pytest.mark.parametrize("home", REQUESTS)
async def test_partitions_that_may_not_be_written_are_not_added(home: str, nursery: trio.Nursery) -> None:
    asked, log, brokers = coordinator(nursery)
    forbidden = ("compacted", 0)
    (brokers if home == "broker" else log).refused = {forbidden: ErrorCode.POLICY_VIOLATION}
    assert list(await asked.add_partitions(REQUESTS[home], [("t", 0), forbidden])) == [forbidden]
    assert await asked.add_partitions(REQUESTS[home], [("t", 0)]) == {}
    assert log.asked + brokers.asked == ["join"]


async def test_a_group_must_have_a_name(nursery: trio.Nursery) -> None:
    asked, log, _ = coordinator(nursery)
    with pytest.raises(TxnError, match="INVALID_GROUP_ID"):
        await asked.add_offsets(REQUESTS["log"], "")
    with pytest.raises(TxnError, match="INVALID_GROUP_ID"):
        await asked.commit_offsets(REQUESTS["log"], TransactionOffsets(group_id=""), implicit=True)
    assert log.asked == []


@pytest.mark.parametrize("is_job", [False, True])
async def test_what_is_a_job_already_needs_no_task_of_its_own(is_job: bool, nursery: trio.Nursery) -> None:
    asked, log, _ = coordinator(nursery)
    await asked.produce(REQUESTS["log"], [], implicit=True, accepted=lambda: None, is_job=is_job)
    assert (log.tasks == [trio.lowlevel.current_task()]) is is_job


@pytest.mark.parametrize("home", REQUESTS)
async def test_only_an_owner_at_home_takes_batches_at_once(home: str, nursery: trio.Nursery) -> None:
    asked, *owners = coordinator(nursery)
    mine = owners[home == "broker"]
    assert not asked.takes_at_once(REQUESTS[home].transactional_id, [])
    mine.at_once = True
    assert asked.takes_at_once(REQUESTS[home].transactional_id, [])
    asked.produce_at_once(REQUESTS[home], [], list, implicit=True)
    assert mine.asked == ["produce_at_once"]
    mine.takes_at_once = lambda batches: False
    assert not asked.takes_at_once(REQUESTS[home].transactional_id, [])


@pytest.mark.parametrize("home", REQUESTS)
async def test_a_repeated_end_of_an_expired_id_is_answered_if_possible(home: str, nursery: trio.Nursery) -> None:
    asked, *owners = coordinator(nursery)
    for one in owners:
        one.unknown = TxnError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "expired")
    with pytest.raises(TxnError, match="expired"):
        await asked.end(REQUESTS[home], committed=True, bumps=False)
    owners[home == "broker"].expired = Producer(1, 1)
    assert await asked.end(REQUESTS[home], committed=True, bumps=False) == Producer(1, 1)
