"""What the owners of an instance decide without the log: time-outs, turns, and what has begun."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.config import Config
from kproxy.net.succession import Succession
from kproxy.net.txn.owner_rounds import OwnerRounds
from kproxy.net.txn.trio_time import TrioTime
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures import asking_clients, log_owners
from kproxy.txn.procedures.log_owners import LogOwners, Terms
from kproxy.txn.requests import TxnRequest
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.txn_error import TxnError

LONGEST_MS = 900_000
OLD, NEW = Producer(1, 0), Producer(1, 1)
REQUEST = TxnRequest("id", OLD, 1, "client")


class Views:
    """Ids as the log has them; notes how many are checked, and when."""

    def __init__(self, view: object = None) -> None:
        self._view = view
        self.ids: list[Any] = []
        self.looks: list[tuple[str, float]] = []
        self.count = 0

    def of(self, name: str) -> object:
        return self._view

    def awake(self) -> list[Any]:
        self.looks.append(("all", trio.current_time()))
        return self.ids

    all = awake

    def some_at_rest(self, most: int) -> list[Any]:
        return []

    def rest(self) -> None:
        pass

    def unsettled(self) -> list[Any]:
        self.looks.append(("unsettled", trio.current_time()))
        return []


class FakeOwner:
    """Notes what is asked of it."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open, self.is_elsewhere = is_open, False
        self.transaction = object() if is_open else None
        self.id = TransactionalId(lambda: None)
        self.id.client = OLD
        self.keeper = SimpleNamespace(read_to_end=self.read)
        self.asked: list[str] = []

    async def read(self) -> None:
        self.asked.append("read_to_end")

    def __getattr__(self, name: str) -> Any:
        async def ask(*_: Any, **__: Any) -> None:
            self.asked.append(name)

        return ask


class FakeKeeper:
    """Reads one view, and notes what is asked of it."""

    def __init__(self, view: Any) -> None:
        self._view = view
        self.served: list[Any] = []
        self.ended: list[Any] = []

    def __call__(self, transactional_id: str, tools: object) -> "FakeKeeper":
        return self

    async def read_to_end(self) -> Any:
        await trio.lowlevel.checkpoint()
        return self._view

    def serve(self, view: Any) -> None:
        self.served.append(view)

    async def end_open(self, since: Any) -> None:
        self.ended.append(since)


def owners(nursery: trio.Nursery, view: object = None, instance_id: str = "a", succession: Any = None) -> Any:
    log = SimpleNamespace(views=Views(view), lag=3, losses=2, pause=trio.sleep)
    network, stats = SimpleNamespace(wall=lambda: 1e9 + trio.current_time()), SimpleNamespace()
    time, report = TrioTime(network.wall), lambda *_, **__: None
    tools: Any = SimpleNamespace(log=log, instance_id=instance_id, time=time, report=report)
    rounds: Any = OwnerRounds(log, network, stats, nursery)  # type: ignore[arg-type]
    terms = Terms(LONGEST_MS, Config(bootstrap_servers=()).transactional_id_timeout_ms)
    found: Any = LogOwners(tools, terms, (succession or Succession()).alone, rounds.start)
    found.rounds = rounds
    return found


def claimed(name: str, *, open_since: int | None = None) -> Any:
    """An id of another instance; ``open_since``: the offset at which its transaction began."""
    since = None if open_since is None else SimpleNamespace(since=SimpleNamespace(offset=open_since))
    return SimpleNamespace(
        transactional_id=name,
        claim=SimpleNamespace(timeout_ms=10_000, instance_id="b"),
        touched=SimpleNamespace(offset=open_since, timestamp_ms=0),
        open_since=lambda: since,
        expired=False,
        prepared=False,
        has_own_data=lambda: True,
        awaits_client=lambda: False,
        client=OLD,
        last=None,
        ongoing=None,
    )


def ended(*, expired: bool = True, committed: bool = True) -> Any:
    """An id whose last transaction has ended."""
    last = SimpleNamespace(client=OLD, committed=committed, next_client=NEW, by_claim=False)
    return SimpleNamespace(expired=expired, client=NEW, last=last)


async def test_a_transaction_may_take_from_one_millisecond_to_the_longest_time(nursery: trio.Nursery) -> None:
    alone = owners(nursery)
    for timeout_ms in (1, LONGEST_MS):
        alone.check_timeout(timeout_ms)
    for timeout_ms in (0, LONGEST_MS + 1):
        with pytest.raises(TxnError, match=f"INVALID_TRANSACTION_TIMEOUT.* {timeout_ms} ms"):
            alone.check_timeout(timeout_ms)


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (None, None),
        (ended(), NEW),
        (ended(expired=False), None),
        (ended(committed=False), None),
        (SimpleNamespace(expired=True, client=NEW, last=None), None),
    ],
    ids=["unknown", "ended", "not expired", "ended otherwise", "unused"],
)
async def test_only_the_last_end_of_an_expired_id_is_answered_again(
    view: object, told: Producer | None, nursery: trio.Nursery
) -> None:
    alone = owners(nursery, view)
    assert alone.answer_expired(REQUEST, committed=True) == told
    for other in (NEW, Producer(0, 0)):
        assert alone.answer_expired(REQUEST._replace(client=other), committed=True) is None


async def test_an_owner_that_is_here_is_not_taken_over(nursery: trio.Nursery) -> None:
    alone = owners(nursery, succession=SimpleNamespace(alone=trio.sleep_forever))
    alone._owners["id"] = owner = FakeOwner()
    with trio.fail_after(60):
        assert await alone.owner(REQUEST) is owner
    assert not owner.asked


@pytest.mark.parametrize(
    ("client", "reads"),
    [(NEW, True), (Producer(2, 0), True), (OLD, False), (NOBODY, False), (Producer(1, -1), False)],
    ids=["newer", "of another producer id", "known", "nobody's", "older"],
)
async def test_the_log_is_read_before_a_client_is_refused_that_another_instance_may_know(
    client: Producer, reads: bool, nursery: trio.Nursery
) -> None:
    alone = owners(nursery)
    alone._owners["id"] = owner = FakeOwner()
    assert await alone.owner(REQUEST._replace(client=client)) is owner
    assert owner.asked == ["read_to_end"] * reads


async def test_all_owners_are_closed(nursery: trio.Nursery) -> None:
    alone, closed = owners(nursery), list[int]()
    alone._owners.update({str(n): SimpleNamespace(close=lambda n=n: closed.append(n)) for n in range(2)})
    alone.close()
    assert closed == [0, 1]


async def test_time_counts_from_when_a_record_was_first_seen(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    alone, view = owners(nursery), SimpleNamespace(transactional_id="id")
    assert not alone._is_past(view, 5, 10_000)
    await trio.sleep(10)
    assert not alone._is_past(view, 5, 10_000)
    await trio.sleep(0.001)
    assert alone._is_past(view, 5, 10_000)
    assert not alone._is_past(view, 6, 10_000)
    await trio.sleep(10.001)
    assert alone._is_past(view, 6, 10_000)


async def test_each_instance_has_its_turn_within_the_time_for_all(nursery: trio.Nursery) -> None:
    view = SimpleNamespace(transactional_id="id")
    turns = {owners(nursery, instance_id=name)._turn(view, 5_000) for name in "abcdefgh"}
    assert len(turns) == 8
    assert all(0 <= turn <= 5_000 for turn in turns)


async def test_an_id_is_silent_after_its_time_out_some_grace_and_its_turn(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    alone = owners(nursery)
    touched, claim = SimpleNamespace(offset=5), SimpleNamespace(timeout_ms=10_000)
    view = SimpleNamespace(transactional_id="id", touched=touched, claim=claim)
    assert not alone._is_silent(view)
    await trio.sleep(20)
    assert not alone._is_silent(view)
    await trio.sleep(0.001)
    assert alone._is_silent(view)
    assert not alone._is_silent(view, 3_000)
    await trio.sleep(3)
    assert alone._is_silent(view, 3_000)


async def test_one_thing_at_a_time_is_done_about_an_id_for_nobody(nursery: trio.Nursery) -> None:
    alone, begun, done = owners(nursery), list[str](), trio.Event()

    async def work() -> None:
        begun.append("")
        await done.wait()
        raise OSError("the broker's connection ended")

    alone._start("id", work)
    await trio.testing.wait_all_tasks_blocked()
    alone._start("id", work)
    alone._start("other", work)
    await trio.testing.wait_all_tasks_blocked()
    assert len(begun) == 2
    done.set()
    await trio.testing.wait_all_tasks_blocked()
    alone._start("id", work)
    await trio.testing.wait_all_tasks_blocked()
    assert len(begun) == 3


async def test_all_ids_are_checked_every_ten_seconds_and_the_unsettled_ones_every_second(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    alone = owners(nursery)
    with trio.move_on_after(21.5):
        await alone.rounds.run(alone)
    looks = alone._tools.log.views.looks
    assert [time for what, time in looks if what == "all"] == [0, 1, 11, 21]
    times = [time for what, time in looks if what == "unsettled"]
    assert [times.count(second) for second in range(1, 13)] == [1, *[2] * 9, 1, 2]  # the metrics count them, too
    assert (alone.rounds._stats.log_lag, alone.rounds._stats.log_losses) == (3, 2)


@pytest.mark.parametrize("is_here", [False, True])
async def test_an_instance_without_owners_waits_for_the_log(
    is_here: bool, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    alone, waits = owners(nursery), list[float]()
    if is_here:
        alone._owners["id"] = SimpleNamespace(
            is_overdue=lambda now: False, is_open=True, transaction=None, is_connected=False
        )

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        await trio.sleep(100)

    alone._tools.log.pause = pause
    with trio.move_on_after(5.5):
        await alone.rounds.run(alone)
    assert len(waits) == (not is_here)


async def test_an_owner_of_which_nothing_was_asked_for_an_hour_is_closed(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    alone, closed = owners(nursery), list[float]()
    alone._owners["id"] = SimpleNamespace(
        is_overdue=lambda now: False,
        is_open=False,
        transaction=None,
        used_at=0,
        is_connected=False,
        close=lambda: closed.append(trio.current_time()),
    )
    with trio.move_on_after(4_000):
        await alone.rounds.run(alone)
    assert closed == [3_601]
    assert not list(alone)


async def test_of_many_owners_at_rest_those_that_were_used_last_are_kept(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_owners, "_MOST_AT_REST", 2)
    alone, closed = owners(nursery), list[tuple[str, float]]()

    def owner(name: str, used_at: float, *, rests: bool = True) -> SimpleNamespace:
        return SimpleNamespace(
            is_overdue=lambda now: False,
            is_open=not rests,
            is_at_rest=rests,
            transaction=None,
            used_at=used_at,
            is_connected=False,
            close=lambda: closed.append((name, trio.current_time())),
        )

    used = {"open": 0.0, "d": 30.0, "a": 0.0, "c": 20.0, "b": 10.0}
    alone._owners.update({name: owner(name, at, rests=name != "open") for name, at in used.items()})
    with trio.move_on_after(1_000):
        await alone.rounds.run(alone)
    assert closed == [("a", 61), ("b", 71), ("c", 81)]
    assert {one.used_at for one in alone} == {0.0, 30.0}


async def test_few_unused_ids_are_given_up_at_a_time(nursery: trio.Nursery) -> None:
    alone, given_up = owners(nursery), list[str]()
    alone._start = lambda name, work: given_up.append(name)
    alone._sweep([claimed(str(number)) for number in range(12)])
    assert len(given_up) == 10


async def test_what_another_kproxy_has_left_open_is_ended_after_its_time_out_and_grace(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Not while this instance has an open transaction under the id: its own time-out ends that."""
    alone, ended_at = owners(nursery), list[float]()
    alone.end_overdue = lambda view: ended_at.append(trio.current_time())
    alone._turn = lambda view, within_ms: 0.0
    view = claimed("id", open_since=5)
    for second in range(31):
        alone._sweep([view])
        if second == 5:
            alone._owners["id"] = SimpleNamespace(is_open=True)
        elif second == 8:
            del alone._owners["id"]
        await trio.sleep(1)
    assert ended_at == [30]


@pytest.mark.parametrize("is_here", [False, True])
async def test_the_owner_of_an_id_is_asked_and_made_where_there_is_none(is_here: bool, nursery: trio.Nursery) -> None:
    alone, owner = owners(nursery), FakeOwner()
    if is_here:
        alone._owners["id"] = owner
        alone._new = None
    else:
        alone._new = lambda name: owner
    await alone.initialize("id", 1, OLD, "client")
    await alone.decide("id", OLD, committed=True, also=None)
    assert owner.asked == ["initialize", "decide"]
    assert alone.known("id") is owner
    with pytest.raises(TxnError, match="INVALID_TRANSACTION_TIMEOUT"):
        await alone.initialize("id", 0, OLD, "client")
    alone.leaving = True
    with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
        await alone.initialize("id", 1, OLD, "client")


async def test_a_decision_makes_an_owner_where_there_is_none(nursery: trio.Nursery) -> None:
    alone, owner = owners(nursery), FakeOwner()
    alone._new = lambda name: owner
    await alone.decide("id", OLD, committed=True, also=None)
    assert owner.asked == ["decide"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"claim": None}, "INVALID_PRODUCER_ID_MAPPING"),
        ({"expired": True}, "INVALID_PRODUCER_ID_MAPPING"),
        ({}, "NOT_COORDINATOR"),
        ({"claim": SimpleNamespace(timeout_ms=1, instance_id="_")}, "NOT_COORDINATOR"),
        ({"client": NEW}, "PRODUCER_FENCED"),
    ],
    ids=["unclaimed", "expired", "another's", "another's that sorts first", "a newer producer's"],
)
async def test_which_ids_are_not_taken_over(
    changes: dict[str, Any], error: str, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = claimed("id", open_since=5)
    vars(view).update(changes)
    monkeypatch.setattr(log_owners, "ClaimKeeper", FakeKeeper(view))
    with pytest.raises(TxnError, match=error):
        await owners(nursery).owner(REQUEST)


async def test_an_id_is_taken_over_once_when_its_former_self_has_ended(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = claimed("id", open_since=5)
    view.claim.instance_id = "a"
    monkeypatch.setattr(log_owners, "ClaimKeeper", FakeKeeper(view))
    over, found, made = trio.Event(), list[Any](), list[FakeOwner]()
    alone = owners(nursery, succession=SimpleNamespace(alone=over.wait))

    def new(name: str) -> FakeOwner:
        made.append(FakeOwner())
        return made[-1]

    alone._new = new

    async def ask() -> None:
        found.append(await alone.owner(REQUEST))

    for _ in range(2):
        nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert not found
    over.set()
    await trio.testing.wait_all_tasks_blocked()
    [owner] = made
    assert found == [owner, owner]
    assert owner.asked == ["adopt"]


async def test_what_a_former_self_wrote_is_ended_and_nothing_else(nursery: trio.Nursery) -> None:
    alone, ended_ids = owners(nursery), list[str]()
    alone.end_overdue = lambda view: ended_ids.append(view.transactional_id)
    views = [claimed(name) for name in ("mine", "another's", "unclaimed", "of members", "awaited", "here")]
    for view in views:
        view.claim.instance_id = "b" if view.transactional_id == "another's" else "a"
    views[2].claim = None
    views[3].has_own_data = lambda: False
    views[4].awaits_client = lambda: True
    alone._owners["here"] = FakeOwner()
    alone._tools.log.views.ids = views
    alone.end_former()
    assert ended_ids == ["mine"]


@pytest.mark.parametrize(("instance_id", "at"), [("a", 11), ("b", 25)], ids=["claimed here", "claimed elsewhere"])
async def test_members_of_an_id_that_is_here_are_ended_after_its_time_out_and_ten_seconds_if_others_may_decide(
    instance_id: str, at: int, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    alone, ended_at = owners(nursery), list[float]()
    alone._turn = lambda view, within_ms: 4_000
    alone.end_overdue = lambda view: ended_at.append(trio.current_time())
    alone._owners.update({"id": FakeOwner(), "idle": FakeOwner()})
    unclaimed = claimed("unclaimed", open_since=5)
    unclaimed.claim = None
    view = claimed("id", open_since=5)
    view.claim.instance_id = instance_id
    while not ended_at:
        alone._sweep([view, claimed("idle"), unclaimed])
        await trio.sleep(1)
    assert ended_at == [at]


async def test_an_id_is_unused_after_its_time_and_its_turn(nursery: trio.Nursery) -> None:
    alone, view = owners(nursery), claimed("id")
    alone._turn = lambda view, within_ms: 7
    alone._terms = Terms(LONGEST_MS, 100)
    assert [alone._is_unused(view, now_ms) for now_ms in (94, 107, 108)] == [False, False, True]


@pytest.mark.parametrize("is_open", [False, True])
async def test_an_operator_aborts_by_the_owner_here_or_else_by_the_log(
    is_open: bool, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = claimed("id", open_since=5)
    view.ongoing = object()
    keeper, owner, alone = FakeKeeper(view), FakeOwner(is_open=is_open), owners(nursery)
    monkeypatch.setattr(log_owners, "ClaimKeeper", keeper)
    alone._owners["id"] = owner
    await alone.abort("id", OLD)
    assert owner.asked == ["give_up"] * is_open
    assert (keeper.served, keeper.ended) == (([], []) if is_open else ([view], [view.ongoing]))


async def test_a_group_waits_for_what_was_left_open_at_another_instance(nursery: trio.Nursery) -> None:
    alone = owners(nursery)
    alone._tools.log.views.undecided_offsets = lambda group: [(claimed("elsewhere"), None, None)]
    alone.end_left("g")
    assert not alone.rounds._under_way


async def test_a_client_has_waited_if_it_asks_here_again_and_again_and_the_log_has_nothing_new(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    alone, view = owners(nursery), claimed("id", open_since=5)

    async def asked(*waits: float, client: Producer = OLD) -> list[bool]:
        found = []
        for wait in waits:
            await trio.sleep(wait)
            found.append(alone._asking.has_waited(view, REQUEST._replace(client=client)))
        return found

    assert await asked(0, 2, 1, 3) == [False, False, True, True]
    assert await asked(3.5, 1, 2) == [False, False, True]  # it was away
    view.touched.offset += 1
    assert await asked(0, 3) == [False, True]
    assert await asked(0, 3, client=NEW) == [False, True]
    assert await asked(0, 3, client=Producer(0, 0)) == [False, True]
    assert await asked(0, 3, 3, client=NOBODY) == [False, False, False]


@pytest.mark.parametrize(
    ("is_alone", "instance_id", "is_open", "ends"),
    [(True, "a", True, True), (False, "a", True, False), (True, "b", True, False), (True, "a", False, False)],
    ids=["left open", "a former self is there", "another's", "nothing open"],
)
async def test_what_a_former_self_left_open_ends_when_its_group_asks(
    is_alone: bool, instance_id: str, is_open: bool, ends: bool, nursery: trio.Nursery
) -> None:
    alone, view, ended_views = owners(nursery), claimed("id", open_since=5), list[Any]()
    view.claim.instance_id, view.ongoing = instance_id, object() if is_open else None
    alone._tools.log.views.undecided_offsets = lambda group: [(view, None, None)]
    alone.end_overdue = ended_views.append
    if is_alone:
        alone.end_former()
    alone.end_left("g")
    assert ended_views == [view] * ends


async def test_an_owner_whose_id_is_elsewhere_is_made_again(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = claimed("id", open_since=5)
    view.claim.instance_id = "a"
    monkeypatch.setattr(log_owners, "ClaimKeeper", FakeKeeper(view))
    alone, former, owner, closed = owners(nursery), FakeOwner(), FakeOwner(), list[int]()
    vars(former).update(is_elsewhere=True, close=lambda: closed.append(1))
    alone._owners["id"], alone._new = former, lambda name: owner
    assert await alone.owner(REQUEST) is alone.known("id") is owner
    assert (closed, owner.asked, alone._taking_over) == ([1], ["adopt"], {})


async def test_what_came_before_the_client_came_back_is_late(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, owner = claimed("id", open_since=5), FakeOwner()
    monkeypatch.setattr(log_owners, "ClaimKeeper", FakeKeeper(view))
    alone = owners(nursery)
    alone._new = lambda name: owner
    for connection in (3, 5):
        with pytest.raises(TxnError, match="NOT_COORDINATOR"):
            await alone.owner(REQUEST._replace(connection=connection))
    await trio.sleep(3)
    assert await alone.owner(REQUEST._replace(connection=4)) is owner
    for connection in (1, 4):
        with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
            owner.id.admit(REQUEST._replace(connection=connection), None)
    for connection in (0, 5):
        owner.id.admit(REQUEST._replace(connection=connection), None)


async def test_what_came_before_a_restart_is_not_late(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client may have connected to other brokers first."""
    view, owner = claimed("id", open_since=5), FakeOwner()
    view.claim.instance_id = "a"
    monkeypatch.setattr(log_owners, "ClaimKeeper", FakeKeeper(view))
    alone = owners(nursery)
    alone._new = lambda name: owner
    assert await alone.owner(REQUEST._replace(connection=5)) is owner
    owner.id.admit(REQUEST._replace(connection=4), None)


async def test_a_client_waits_again_for_an_id_that_another_instance_has_taken_back(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, owner = claimed("id", open_since=5), FakeOwner()
    monkeypatch.setattr(log_owners, "ClaimKeeper", FakeKeeper(view))
    alone = owners(nursery)
    alone._new = lambda name: owner
    vars(owner).update(close=lambda: None)
    for wait, is_elsewhere in ((0, False), (3, False), (1, True), (3, True)):
        await trio.sleep(wait)
        owner.is_elsewhere = is_elsewhere
        if wait == 3:
            assert await alone.owner(REQUEST) is owner
        else:
            with pytest.raises(TxnError, match="NOT_COORDINATOR"):
                await alone.owner(REQUEST)


async def test_of_many_clients_that_ask_here_all_are_forgotten_at_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then they have to wait longer; nothing else is kept of them."""
    monkeypatch.setattr(asking_clients, "_MOST_ASKING", 3)
    alone = owners(nursery)

    def asks(*names: str) -> list[bool]:
        return [
            alone._asking.has_waited(claimed(name, open_since=5), REQUEST._replace(transactional_id=name))
            for name in names
        ]

    assert asks("1", "2") == [False, False]
    await trio.sleep(3)
    assert asks("1", "2", "3") == [True, True, False]
    await trio.sleep(3)
    assert asks("4", "1", "2", "3") == [False] * 4


async def test_a_producer_that_initializes_the_id_meanwhile_keeps_it(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, adopting, initialized = claimed("id", open_since=5), FakeOwner(), FakeOwner()
    view.claim.instance_id = "a"
    monkeypatch.setattr(log_owners, "ClaimKeeper", FakeKeeper(view))
    alone, made = owners(nursery), [adopting, initialized]
    alone._new = lambda name: made.pop(0)

    async def adopt(_: object) -> None:
        await alone.initialize("id", 1, NOBODY, "client")

    discarded = list[str]()
    vars(adopting).update(adopt=adopt, discard=lambda: discarded.append("id"))
    assert await alone.owner(REQUEST) is alone.known("id") is initialized
    assert discarded == ["id"]
    assert initialized.asked == ["initialize"]


async def test_an_id_is_taken_over_by_one_request_at_a_time_also_where_one_waited(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        taking = owners(nursery, succession=SimpleNamespace(alone=trio.lowlevel.checkpoint))
        running: list[int] = []

        async def taken_over(_: TxnRequest) -> None:
            running.append(len(running))
            assert len(running) == 1
            await trio.sleep(1)
            running.clear()

        taking._taken_over = taken_over
        for _ in range(4):  # the first has ended when the third comes, and the second runs
            nursery.start_soon(taking.owner, REQUEST)
            await trio.sleep(0.7)
        await trio.sleep(4)
        assert taking._taking_over == {}
        nursery.cancel_scope.cancel()
