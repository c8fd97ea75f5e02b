"""Views at rest: packed and rebuilt they are the same, and nobody has another one than the log fills."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.txn.epoch_set import EpochSet
from kproxy.txn.ids import Producer
from kproxy.txn.resting_view import EMPTY, pack, unpack
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import DecidedEpoch, IdClaim, Joined, Ongoing
from kproxy.txn.views import Views
from tests.txn.bodies import claim, decision, partitions, producer
from tests.txn.test_views import PLACE, Feed

PART = Producer(1 << 62, 3)
AT = LogPosition(7, 8)


def decided() -> IdView:
    """A view with something in each field that a view at rest may have."""
    client, names = Producer(9, 4), ("generation", "producer_id", "first_epoch", "epochs", "timeout_ms")
    numbers = dict(zip(names, (2, PART.producer_id, 3, 16, 60_000), strict=True))
    claim = IdClaim(
        **numbers,
        nonce=b"n" * 16,
        client=client,
        resumed=Producer(9, 3),
        instance_id="here",
        client_id="c",
        at=LogPosition(5, 6),
        names_client=True,
    )
    view = IdView("id", claim, client, [1 << 61, PART.producer_id])
    epochs = EpochSet()
    for epoch in (0, 3, 300):
        epochs.add(epoch)
    view.committed, view.aborted_members = {PART.producer_id: epochs}, {7: EpochSet(b"\1")}
    view.aborted = {Producer(PART.producer_id, 5), Producer(PART.producer_id, 6)}
    view.last = DecidedEpoch(PART, client, Producer(9, 5), True, "client", by_claim=False, at=AT)
    view.batch_ids.extend(["a", "b"])
    view.aborted_batch_ids.append("c")
    view.expired, view.touched = True, AT
    return view


def test_each_field_is_kept_or_empty() -> None:
    view, empty = decided(), IdView("id")
    kept = {one.name for one in fields(IdView)} - set(EMPTY)
    assert all(getattr(view, name) != getattr(empty, name) for name in kept - {"transactional_id"})
    data = pack(view)
    assert data is not None
    rebuilt = unpack("id", data)
    assert rebuilt == view
    assert rebuilt.batch_ids.maxlen == view.batch_ids.maxlen
    assert rebuilt.claim is not None
    assert view.claim is not None
    assert rebuilt.claim.names_client is view.claim.names_client
    assert len(data) < 600


def test_an_id_without_a_claim_or_decision_is_rebuilt_too() -> None:
    data = pack(IdView("id"))
    assert data is not None
    assert unpack("id", data) == IdView("id")


def _change(name: str, value: Any) -> Callable[[IdView], None]:
    return lambda view: setattr(view, name, value)


@pytest.mark.parametrize(
    "change",
    [
        _change("ongoing", Ongoing(PART, AT)),
        _change("copies", {PART: {("t", 0, 0): 5}}),
        _change("members", {PART: Joined(PART, "m", b"n" * 16, AT)}),
        _change("bounds", {PART: {("t", 0): 5}}),
        _change("first_sequences", {PART: {("t", 0): 5}}),
        _change("pending", {PART: [TransactionOffsets()]}),
        _change("prepared", {PART: None}),
        _change("ending", {PART: None}),
        lambda view: view.unmirrored.add(PART, TransactionOffsets(group_id="g")),
    ],
)
def test_what_has_anything_to_do_does_not_rest(change: Callable[[IdView], None]) -> None:
    view = decided()
    change(view)
    assert pack(view) is None


def resting(views: Views) -> set[str]:
    return set(views._resting)


def committed(views: Views, name: str = "id", number: int = 100) -> None:
    """An id with a committed transaction, and epochs for others."""
    part = producer(number, 0)
    assert all(Feed(views).give(name, claim(1, part), partitions(1, part, {PLACE: 9}), decision(1, part, True)))


def test_views_rest_when_nobody_has_asked_for_them_for_a_while() -> None:
    views = Views()
    Feed(views).give("id", claim(1, producer(100, 0)))
    views.rest()
    assert resting(views) == set(), "the log has just spoken of it"
    views.rest()
    assert resting(views) == {"id"}
    assert (views.count, views.names) == (1, ["id"])
    view = views.of("id")
    assert view is not None
    assert resting(views) == set()
    views.rest()
    assert resting(views) == set(), "somebody has asked for it"


def test_there_is_one_view_of_an_id_at_a_time() -> None:
    views = Views()
    committed(views)
    view = views.of("id")
    for _ in range(2):
        views.rest()
    assert resting(views) == {"id"}
    assert views.of("id") is view
    del view
    for _ in range(2):
        views.rest()
    [looked] = views.all()
    assert resting(views) == {"id"}, "to look at all wakes none"
    assert views.of("id") is looked


def test_verdicts_snapshots_and_further_records_are_as_without_a_rest() -> None:
    rested, other = Views(), Views()
    for views in (rested, other):
        committed(views)
        assert [view.transactional_id for view in views.of_partition(0)] == ["id"]
    part, following = producer(100, 0), producer(100, 1)
    for _ in range(2):
        rested.rest()
    assert resting(rested) == {"id"}
    assert list(rested.of_partition(0)) == list(other.of_partition(0))
    assert resting(rested) == {"id"}
    assert rested.verdict(*part) is other.verdict(*part) is Verdict.COMMITTED
    for _ in range(2):
        rested.rest()
    assert resting(rested) == {"id"}
    for views in (rested, other):
        assert all(Feed(views).give("id", partitions(1, following, {PLACE: 10})))
    assert resting(rested) == set()
    assert rested.of("id") == other.of("id")
    assert [view.transactional_id for view in rested.unsettled()] == ["id"]
    assert rested.verdict(*following) is other.verdict(*following) is Verdict.UNDECIDED


def test_of_those_at_rest_some_are_given_each_time_in_turn() -> None:
    views = Views()
    for number in range(5):
        committed(views, str(number), 100 + number)
    for _ in range(2):
        views.rest(3)
    assert len(resting(views)) == 3
    views.rest(3)
    assert len(resting(views)) == 5
    found = [[view.transactional_id for view in views.some_at_rest(2)] for _ in range(5)]
    assert found[0] == []
    assert sorted(name for names in found[1:4] for name in names) == ["0", "1", "2", "3", "4"]
    assert resting(views) == {"0", "1", "2", "3", "4"}


def test_a_partition_that_is_read_again_is_forgotten_with_what_rests() -> None:
    views = Views()
    committed(views)
    for _ in range(2):
        views.rest()
    views.restart(0, 0)
    assert (views.count, views.of("id"), views.of_producer(producer(100, 0).producer_id)) == (0, None, None)
