"""The description of a transactional id, made from its view."""

import pytest

from kproxy.codec.messages import Message
from kproxy.txn.described import Described, DescribedPart, Listed
from kproxy.txn.describing import describe, listed
from kproxy.txn.ids import Producer
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import BrokerTransaction
from tests.txn.bodies import (
    CLIENT,
    claim,
    decision,
    ended,
    expiry,
    member,
    native_member,
    offsets,
    partitions,
    prepare,
    producer,
)

P0, P1, P2, M = producer(100, 0), producer(100, 1), producer(100, 2), producer(200, 0)
NATIVE = BrokerTransaction("slot-1", Producer(300, 4), level=2, timeout_ms=900_000)


def told_of(*records: Message) -> Described:
    """The description after records, each of which has to count."""
    view = IdView("id")
    for offset, body in enumerate(records):
        assert view.apply(body, LogPosition(offset, 1000 + offset)), body
    return describe(view)


def test_an_id_that_was_claimed_is_empty() -> None:
    told = told_of(claim(1, P0))
    assert (told.state, told.started_ms, told.last) == ("Empty", None, None)
    assert (told.producer_id, told.producer_epoch) == CLIENT
    assert (told.instance_id, told.client_id, told.timeout_ms) == ("kproxy-1", "app", 60_000)


def test_an_open_transaction_names_its_partitions_and_groups() -> None:
    told = told_of(claim(1, P0), partitions(1, P0, {("t", 1): 5}), offsets(1, P0, "g", {("in", 0): 3}))
    assert (told.state, told.started_ms) == ("Ongoing", 1001)
    assert (told.partitions, told.groups) == ((("t", 1),), ("g",))


def test_a_decision_is_reported() -> None:
    told = told_of(claim(1, P0), partitions(1, P0, {("t", 1): 5}), decision(1, P0, committed=True))
    assert (told.state, told.partitions) == ("CompleteCommit", ())
    assert told.last is not None
    assert (told.last.committed, told.last.at_ms) == (True, 1002)


def test_parts_wait_by_name() -> None:
    told = told_of(claim(1, P0), member(1, P0, M, 2, "m"), prepare(2, M))
    assert told.parts == (DescribedPart("m", *M, True),)
    told = told_of(claim(1, P0), member(1, P0, M, 2, "m"))
    assert told.parts == (DescribedPart("m", *M, False),)
    told = told_of(claim(1, P0), prepare(1, P0))
    assert (told.parts, told.state) == ((DescribedPart("", *P0, True),), "Empty")


def test_an_id_that_is_given_up_is_dead() -> None:
    assert told_of(claim(1, P0), expiry(1)).state == "Dead"


def test_a_row_of_a_list_says_the_same() -> None:
    told = told_of(claim(1, P0))
    row = listed(told)
    assert isinstance(row, Listed)
    assert row == tuple(getattr(told, name) for name in Listed._fields)


@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_is_prepared_until_the_broker_is_informed(committed: bool) -> None:
    records = [claim(1, P0), native_member(1, P0, M, 2, "m", NATIVE), decision(1, P0, committed, [P0, M])]
    outcome = "Commit" if committed else "Abort"
    assert told_of(*records).state == f"Prepare{outcome}"
    assert told_of(*records, ended(M)).state == f"Complete{outcome}"


def test_what_a_claim_has_aborted_is_complete() -> None:
    """Nobody waits for that decision."""
    told = told_of(claim(1, P0), native_member(1, P0, M, 2, "m", NATIVE), claim(2, P2))
    assert told.state == "CompleteAbort"


@pytest.mark.parametrize("prepared", [True, False])
def test_a_member_at_the_broker_has_until_its_time_out(prepared: bool) -> None:
    told = told_of(claim(1, P0), native_member(1, P0, M, 2, "m", NATIVE), *([prepare(2, M)] if prepared else []))
    assert told.parts == (DescribedPart("m", *M, prepared, 1001 + NATIVE.timeout_ms),)


def test_of_an_id_that_nobody_has_claimed_nothing_is_known() -> None:
    told = describe(IdView("id"))
    assert (told.state, told.client_id, told.timeout_ms, told.instance_id) == ("Empty", "", 0, "")


@pytest.mark.parametrize(
    ("records", "undecided"),
    [
        ([], False),
        ([partitions(1, P0, {("t", 1): 5})], True),
        ([member(1, P0, M, 2, "m"), prepare(2, M)], True),
        ([prepare(1, P0)], True),
        ([decision(1, P0, committed=True)], False),
        ([native_member(1, P0, M, 2, "m", NATIVE), decision(1, P0, True, [P0, M])], False),
    ],
    ids=["empty", "open", "a prepared member", "prepared", "decided", "decided at kproxy, not yet at the broker"],
)
def test_readers_wait_for_a_decision_while_something_is_open_or_prepared(
    records: list[Message], undecided: bool
) -> None:
    assert listed(told_of(claim(1, P0), *records)).is_undecided == undecided
