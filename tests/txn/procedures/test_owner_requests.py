"""Requests to owners: which owner is asked, what is refused before, and what is done as a job."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.owner_policy import CLIENT
from kproxy.txn.procedures.owner_requests import OwnerRequests
from kproxy.txn.requests import IdHolder, TxnRequest
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.txn_error import TxnError

HAD, NEXT = Producer(7, 0), Producer(7, 1)
REQUEST = TxnRequest("id", HAD, 1, "client")
PLACE = ("t", 0)


class Scene:
    """The owners of an instance, the one owner, and its jobs; what is asked is noted."""

    offsets_wait = False

    def __init__(self, *, is_known: bool = True, error: ErrorCode | None = None) -> None:
        self.asked: list[Any] = []
        self.foreign: list[TxnRequest] = []
        self.id = TransactionalId(lambda: None)
        self.id.client = HAD
        self.refused: Mapping[Any, ErrorCode] = {}
        self.expired: Producer | None = None
        self._is_known, self._error = is_known, error
        owners: Any = self
        self.requests = OwnerRequests(lambda _: owners, self, self.foreign.append)  # type: ignore[arg-type]  # a part of it

    async def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        self.asked.append("job")
        return await work()

    def owner_now(self, request: TxnRequest) -> "Scene | None":
        return self if self._is_known else None

    async def owner(self, request: TxnRequest) -> "Scene":
        if self._error is not None:
            raise TxnError(self._error, "no owner")
        return self

    def known(self, name: str) -> "Scene":
        return self

    async def refusals(self, places: Any) -> Mapping[Any, ErrorCode]:
        return self.refused

    def answer_expired(self, request: TxnRequest, *, committed: bool) -> Producer | None:
        return self.expired

    async def initialize(self, *asked: Any) -> Producer:
        self.asked.append(asked)
        self.id.client = NEXT
        return NEXT

    async def join(self, *asked: Any) -> None:
        self.asked.append("join")

    async def end(self, request: TxnRequest, *, committed: bool, bumps: bool, also: Any) -> Producer:
        self.asked.append("end")
        return NEXT


def done(procedure: Any) -> Any:
    """The result of a procedure that waits for nothing here."""
    with pytest.raises(StopIteration) as stopped:
        procedure.send(None)
    return stopped.value.value


def refused(procedure: Any) -> ErrorCode:
    with pytest.raises(TxnError) as caught:
        procedure.send(None)
    return caught.value.error_code


def test_a_known_owner_is_asked_in_one_job() -> None:
    scene = Scene()
    assert done(scene.requests.end(REQUEST, committed=True, bumps=False)) == NEXT
    assert scene.asked == ["job", "end"]


def test_an_owner_that_is_not_known_is_a_job_of_its_own() -> None:
    scene = Scene(is_known=False)
    done(scene.requests.end(REQUEST, committed=True, bumps=False))
    assert scene.asked == ["job", "job", "end"]


@pytest.mark.parametrize("expired", [NEXT, None])
def test_a_repeated_end_of_an_id_that_has_expired_is_answered_as_it_was(expired: Producer | None) -> None:
    scene = Scene(is_known=False, error=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    scene.expired = expired
    end = scene.requests.end(REQUEST, committed=True, bumps=False)
    if expired is None:
        assert refused(end) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    else:
        assert done(end) == NEXT


def test_a_client_without_an_identity_has_nobodys() -> None:
    scene = Scene()
    assert done(scene.requests.init_producer_id("id", 1000, None, "client")) == NEXT
    assert scene.asked == ["job", ("id", 1000, NOBODY, "client", CLIENT)]


def test_an_id_without_characters_is_refused() -> None:
    assert refused(Scene().requests.init_producer_id("", 1000, None, "client")) is ErrorCode.INVALID_REQUEST


def test_a_group_without_a_name_is_refused() -> None:
    requests = Scene().requests
    assert refused(requests.add_offsets(REQUEST, "")) is ErrorCode.INVALID_GROUP_ID
    offsets = TransactionOffsets(group_id="")
    assert refused(requests.commit_offsets(REQUEST, offsets, implicit=True)) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("error", [ErrorCode.POLICY_VIOLATION, None])
def test_no_partition_joins_if_one_is_refused(error: ErrorCode | None) -> None:
    scene = Scene()
    scene.refused = {PLACE: error} if error is not None else {}
    assert done(scene.requests.add_partitions(REQUEST, [PLACE])) == scene.refused
    assert ("join" in scene.asked) == (error is None)


ALICE, BOB = IdHolder("User:alice"), IdHolder("User:bob")
HERE, THERE = IdHolder("", "client", "10.0.0.1"), IdHolder("", "client", "10.0.0.2")


class TestWhoseTheIdentityIs:
    @pytest.mark.parametrize(
        ("holder", "asks", "may_join", "may_end"),
        [
            (ALICE, ALICE, True, True),
            (ALICE, BOB, False, False),
            (ALICE, HERE, False, False),
            (HERE, ALICE, False, False),
            (HERE, HERE, True, True),
            (HERE, THERE, False, True),
            (HERE, IdHolder("", "other", "10.0.0.1"), False, True),
            (None, BOB, True, True),
            (ALICE, None, True, True),
        ],
    )
    def test_it_belongs_to_who_received_it(
        self, holder: IdHolder | None, asks: IdHolder | None, may_join: bool, may_end: bool
    ) -> None:
        scene = Scene()
        scene.id.holder = holder
        request = REQUEST._replace(holder=asks)
        join = scene.requests.add_partitions(request, [PLACE])
        end = scene.requests.end(request, committed=True, bumps=False)
        for procedure, may in ((join, may_join), (end, may_end)):
            if may:
                done(procedure)
            else:
                assert refused(procedure) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert len(scene.foreign) == [may_join, may_end].count(False)

    def test_another_identity_is_refused_for_what_it_is(self) -> None:
        scene = Scene()
        scene.id.holder = ALICE
        done(scene.requests.add_partitions(REQUEST._replace(client=NEXT, holder=BOB), [PLACE]))
        assert not scene.foreign

    def test_who_initializes_the_id_holds_it(self) -> None:
        scene = Scene()
        scene.id.holder = ALICE
        done(scene.requests.init_producer_id("id", 1000, None, "client", holder=BOB))
        assert scene.id.holder == BOB

    def test_unless_another_has_taken_it_meanwhile(self) -> None:
        scene = Scene()
        initialize = scene.initialize

        async def overtaken(*asked: Any) -> Producer:
            given = await initialize(*asked)
            scene.id.client, scene.id.holder = Producer(7, 2), ALICE
            return given

        scene.initialize = overtaken  # type: ignore[method-assign]
        done(scene.requests.init_producer_id("id", 1000, None, "client", holder=BOB))
        assert scene.id.holder == ALICE
