"""Each id goes to the decider of its home."""

from typing import Any

import pytest

from kproxy.net.txn.coordinator_choice import ClientCoordinatorChoice, CoordinatorChoice
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.txn.ids import Producer
from kproxy.txn.requests import TxnRequest

RULES = (HomeRule("kept-*", Home.KPROXY), HomeRule("theirs-*", Home.BROKER))


class _Noting:
    """A decider that notes what it is asked."""

    def __init__(self, name: str) -> None:
        self.instance_id = name
        self.asked: list[str] = []

    def keeps_open(self, transactional_id: str) -> bool:
        return self.instance_id == "native"

    def start(self, work: Any) -> Any:
        return work

    def __getattr__(self, name: str) -> Any:
        async def ask(what: Any, *arguments: Any, **options: Any) -> None:
            self.asked.append(f"{name} {what if isinstance(what, str) else what.transactional_id}")

        return ask


async def _ask_all(homes: CoordinatorChoice, name: str) -> None:
    request: Any = TxnRequest(name, Producer(1, 0), 0, "client")
    nothing: Any = None
    await homes.init_producer_id(name, 1, None, "client")
    await homes.produce(request, [], implicit=True, accepted=lambda: None)
    await homes.commit_offsets(request, nothing, implicit=True)
    await homes.end(request, committed=True, bumps=False)
    await homes.prepare(request)


@pytest.mark.parametrize(("name", "native"), [("theirs-1", True), ("kept-1", False), ("other", False)])
async def test_an_id_is_decided_at_home(name: str, native: bool) -> None:
    own: Any = _Noting("own")
    theirs: Any = _Noting("native")
    homes = CoordinatorChoice(RULES, own, theirs)
    await _ask_all(homes, name)
    asked = [f"{what} {name}" for what in ("init_producer_id", "produce", "commit_offsets", "end", "prepare")]
    assert (own.asked, theirs.asked) == (([], asked) if native else (asked, []))
    assert homes.is_native(name) is homes.keeps_open(name) is native
    assert homes.instance_id == "own"


def test_only_a_rule_takes_ids_of_such_clients_to_the_broker() -> None:
    nobody: Any = None
    assert CoordinatorChoice(RULES, nobody, nobody).any_native
    assert not CoordinatorChoice(RULES[:1], nobody, nobody).any_native
    assert not CoordinatorChoice((HomeRule("*", Home.AUTO),), nobody, nobody).any_native


async def test_work_is_begun_with_the_jobs_of_all() -> None:
    own: Any = _Noting("own")
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    await CoordinatorChoice(RULES, own, own).start(work)()
    assert done == [1]


@pytest.mark.parametrize(
    ("name", "fenced"), [("late-1", True), ("theirs-1", False), ("kept-1", False), ("other", False)]
)
def test_only_a_rule_has_kproxy_ask_the_broker_for_clients_of_their_own(name: str, fenced: bool) -> None:
    own: Any = object()
    theirs: Any = object()
    rules = (HomeRule("late-*", Home.BROKER_FENCED), *RULES, HomeRule("*", Home.AUTO))
    assert ClientCoordinatorChoice(rules, own, theirs).of(name) is (theirs if fenced else own)


def test_clients_without_transactions_are_at_home_in_the_broker_by_either_rule() -> None:
    nobody: Any = None
    homes = CoordinatorChoice((HomeRule("late-*", Home.BROKER_FENCED),), nobody, nobody)
    assert homes.any_native
    assert homes.is_native("late-1")
    assert not homes.is_native("other")
