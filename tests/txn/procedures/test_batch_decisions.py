"""Commits and aborts by hand: what each decides, in which order, and what is refused before that."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kproxy.codec.messages import ErrorCode, Message
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import EVERYTHING, DecisionScope
from kproxy.txn.procedures.batch_decisions import BatchDecision, BatchDecisions, OpenBatch
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import ASKED, HAND
from tests.txn.bodies import CLIENT, claim, decision, member, partitions, prepare, producer

FIRST, SECOND, MEMBER = producer(100, 0), producer(100, 1), producer(200, 0)
OTHER, NEWER = Producer(7, 1), Producer(6, 9)
HERE = "kproxy-1"


class Open:
    """The open transaction of the owner at this instance."""

    def __init__(self, scene: "Scene") -> None:
        self._scene = scene

    async def commit(self, also: DecisionScope) -> None:
        self._scene.log.append(("commit open", also))
        self._scene.has_committed(also)

    async def abort(self, also: DecisionScope) -> None:
        self._scene.log.append(("abort open", also))
        self._scene.open = False


class Scene:
    """An id in the log, as ``DecisionPorts``; what is asked of the outside is recorded."""

    def __init__(self, *bodies: Message, is_open: bool = False, instance_id: str = HERE) -> None:
        self.instance_id = instance_id
        self.open = is_open
        self.view = IdView("id")
        for offset, body in enumerate((claim(1, FIRST, epochs=4), *bodies)):
            assert self.view.apply(body, LogPosition(offset, 0)), body
        self.log: list[tuple[Any, ...]] = []
        self.vote: Callable[[], None] = lambda: None

    async def found(self, name: str) -> IdView:
        assert name == "id"
        return self.view

    def view_of(self, name: str) -> IdView | None:
        return self.view

    def open_here(self, name: str, owner: Producer | None) -> OpenBatch | None:
        return Open(self) if self.open else None

    async def decide(self, name: str, owner: Producer | None, *, committed: bool, also: DecisionScope) -> None:
        self.log.append(("commit" if committed else "abort", owner, also))
        if committed:
            self.has_committed(also)

    async def check_members(self, view: IdView, also: DecisionScope) -> None:
        self.vote()

    async def finish_members(self, name: str) -> None:
        self.log.append(("finish",))

    def has_committed(self, also: DecisionScope) -> None:
        self.open = False
        self.view.prepared.clear()
        if also.batch_id is not None:
            self.view.batch_ids.append(also.batch_id)

    def commit(self, owner: Producer | None = CLIENT, **more: Any) -> "Scene":
        return self._run(BatchDecisions(self).commit(BatchDecision("id", owner, **more)))

    def abort(self, owner: Producer | None = CLIENT, **more: Any) -> "Scene":
        return self._run(BatchDecisions(self).abort(BatchDecision("id", owner, **more)))

    def _run(self, procedure: Coroutine[Any, Any, None]) -> "Scene":
        with pytest.raises(StopIteration):
            procedure.send(None)  # it waits for nothing here
        return self


def refused(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(TxnError) as caught:
        act()
    return caught.value.error_code


def prepared() -> tuple[Message, ...]:
    return partitions(1, FIRST, {("t", 0): 5}), prepare(1, FIRST)


def test_what_was_prepared_is_committed_and_members_are_ended() -> None:
    scope = DecisionScope("b", ("m",), former=True)
    assert Scene(*prepared()).commit(batch_id="b", members=["m"]).log == [("commit", CLIENT, scope), ("finish",)]


@pytest.mark.parametrize("owner", [CLIENT, None])
def test_what_is_open_here_is_committed_with_what_is_named(owner: Producer | None) -> None:
    scene = Scene(partitions(1, FIRST, {("t", 0): 5}), is_open=True)
    assert scene.commit(owner, batch_id="b").log == [("commit open", DecisionScope("b", ())), ("finish",)]


@pytest.mark.parametrize("owner", [OTHER, NEWER])
def test_a_former_owner_is_fenced(owner: Producer) -> None:
    for act in (lambda: Scene(*prepared()).commit(owner, batch_id="b"), lambda: Scene(*prepared()).abort(owner)):
        assert refused(act) is ErrorCode.PRODUCER_FENCED


def test_a_repeated_commit_decides_nothing_again() -> None:
    scene = Scene(decision(1, FIRST, True, batch_id="b"))
    assert scene.commit(batch_id="b").log == [("finish",)]


def test_another_try_of_a_committed_batch_is_aborted() -> None:
    """Prepared or open here: else it would be committed with the next batch."""
    committed = decision(1, FIRST, True, batch_id="b")
    again = Scene(committed, partitions(1, SECOND, {("t", 0): 5}), prepare(1, SECOND))
    assert again.commit(batch_id="b").log == [("abort", CLIENT, DecisionScope(parts=[SECOND])), ("finish",)]
    is_open = Scene(committed, is_open=True)
    assert is_open.commit(batch_id="b").log == [("abort open", DecisionScope(parts=[])), ("finish",)]


def test_without_an_owner_another_try_is_left_alone() -> None:
    committed = decision(1, FIRST, True, batch_id="b")
    again = Scene(committed, partitions(1, SECOND, {("t", 0): 5}), prepare(1, SECOND))
    assert again.commit(None, batch_id="b").log == [("finish",)]


def test_all_else_is_aborted_after_the_commit_if_that_is_asked() -> None:
    log = Scene(*prepared()).commit(batch_id="b", abort_others=True).log
    assert [row[0] for row in log] == ["commit", "abort", "finish"]
    assert log[1] == ("abort", CLIENT, EVERYTHING)


def test_nothing_can_be_committed_without_a_batch_id() -> None:
    assert refused(lambda: Scene().commit()) is ErrorCode.INVALID_TXN_STATE
    assert Scene().commit(batch_id="empty").log == [
        ("commit", CLIENT, DecisionScope("empty", (), former=True)),
        ("finish",),
    ]


def test_data_of_the_owner_at_another_kproxy_are_not_left_out() -> None:
    scene = Scene(partitions(1, FIRST, {("t", 0): 5}), instance_id="another")
    assert refused(lambda: scene.commit(batch_id="b")) is ErrorCode.CONCURRENT_TRANSACTIONS
    here = Scene(partitions(1, FIRST, {("t", 0): 5}))
    assert refused(lambda: here.commit(batch_id="b")) is ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(("reason", "is_refused"), [("time-out", True), (HAND, False)])
def test_data_of_the_owner_that_were_aborted_unasked_are_not_left_out(reason: str, is_refused: bool) -> None:
    aborted = decision(1, FIRST, False)
    aborted.reason = reason
    scene = Scene(partitions(1, FIRST, {("t", 0): 5}), aborted)
    if is_refused:
        assert refused(lambda: scene.commit(batch_id="b")) is ErrorCode.TRANSACTION_ABORTABLE
    else:
        assert scene.commit(batch_id="b").log[0][0] == "commit"


def test_parts_of_two_owners_are_refused() -> None:
    newer = claim(2, producer(101, 0), generation=2, client=Producer(8, 0))
    scene = Scene(*prepared(), newer, partitions(2, producer(101, 0), {("t", 0): 9}), prepare(2, producer(101, 0)))
    latest = claim(3, producer(102, 0), generation=3, client=Producer(9, 0))
    assert scene.view.apply(latest, LogPosition(9, 0))
    assert refused(lambda: scene.commit(Producer(9, 0), batch_id="b")) is ErrorCode.INVALID_REQUEST


def test_a_member_that_its_broker_has_ended_is_no_reason_where_the_first_copy_of_the_request_is_the_cause() -> None:
    scene = Scene(partitions(1, FIRST, {("t", 0): 5}), member(1, FIRST, MEMBER, 5, "m"), prepare(5, MEMBER))

    def was_decided() -> None:
        scene.view.batch_ids.append("b")
        raise TxnError(ErrorCode.TRANSACTION_ABORTABLE, "m has ended")

    scene.vote = was_decided
    assert scene.commit(batch_id="b", members=["m"]).log[-1] == ("finish",)

    def is_gone() -> None:
        raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody knows of m")

    scene.vote = is_gone
    scene.view.batch_ids.clear()
    assert refused(lambda: scene.commit(batch_id="b", members=["m"])) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refused(lambda: scene.commit(batch_id="b", members=["other"])) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("is_open", [True, False])
def test_an_abort_covers_what_is_open_here_or_prepared_anywhere(is_open: bool) -> None:
    log = Scene(*prepared(), is_open=is_open).abort(members=["m"]).log
    scope = DecisionScope(None, ("m",), former=not is_open)
    assert log == [("abort open", scope) if is_open else ("abort", CLIENT, scope), ("finish",)]


def test_there_may_be_nothing_to_abort() -> None:
    assert refused(lambda: Scene().abort()) is ErrorCode.INVALID_TXN_STATE
    assert Scene().abort(abort_others=True).log == [("abort", CLIENT, EVERYTHING), ("finish",)]
    assert Scene(partitions(1, FIRST, {("t", 0): 5})).abort().log[0][0] == "abort", "it is open at another kproxy"


def test_an_abort_that_a_commit_came_before_is_refused() -> None:
    """A kproxy that was killed had sent the commit to the log, which takes it while the abort is under way."""

    class Late(Scene):
        async def decide(self, name: str, owner: Producer | None, *, committed: bool, also: DecisionScope) -> None:
            assert self.view.apply(decision(1, FIRST, True, [FIRST]), LogPosition(9, 0))

    scene = Late(partitions(1, FIRST, {("t", 0): 5}))
    assert refused(lambda: scene.abort()) is ErrorCode.INVALID_TXN_STATE
    assert scene.log == [("finish",)]


def test_what_is_open_here_can_be_aborted_before_the_log_has_anything_of_it() -> None:
    assert Scene(is_open=True).abort().log[0][0] == "abort open"


def test_a_batch_whose_part_was_aborted_is_not_committed_without_it() -> None:
    part = prepare(1, FIRST)
    part.batch_id = "b"
    aborted = decision(1, SECOND, False, [FIRST])
    aborted.reason = ASKED
    scene = Scene(part, aborted)
    assert refused(lambda: scene.commit(batch_id="b")) is ErrorCode.TRANSACTION_ABORTABLE
    assert scene.commit(batch_id="c").log[0][0] == "commit"
