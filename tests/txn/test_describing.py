"""What is told of a transactional id from its view."""

from kproxy.codec.messages import Message
from kproxy.txn.described import Described, Listed, Part
from kproxy.txn.describing import describe, listed
from kproxy.txn.view import IdView, Stand
from verification.models.transaction_log.bodies import (
    CLIENT,
    claim,
    decision,
    expiry,
    member,
    offsets,
    partitions,
    prepare,
    producer,
)

P0, P1, M = producer(100, 0), producer(100, 1), producer(200, 0)


def told_of(*records: Message) -> Described:
    """What is told behind records, each of which has to count."""
    view = IdView("id")
    for offset, body in enumerate(records):
        assert view.apply(body, Stand(offset, 1000 + offset)), body
    return describe(view)


def test_an_id_that_was_claimed_is_empty() -> None:
    told = told_of(claim(1, P0))
    assert (told.state, told.started_ms, told.last) == ("Empty", None, None)
    assert (told.producer_id, told.producer_epoch) == CLIENT
    assert (told.instance_id, told.timeout_ms) == ("kproxy-1", 60_000)


def test_an_open_transaction_names_its_partitions_and_groups() -> None:
    told = told_of(claim(1, P0), partitions(1, P0, {("t", 1): 5}), offsets(1, P0, "g", {("in", 0): 3}))
    assert (told.state, told.started_ms) == ("Ongoing", 1001)
    assert (told.partitions, told.groups) == ((("t", 1),), ("g",))


def test_a_decision_is_told() -> None:
    told = told_of(claim(1, P0), partitions(1, P0, {("t", 1): 5}), decision(1, P0, committed=True))
    assert (told.state, told.partitions) == ("CompleteCommit", ())
    assert told.last is not None
    assert (told.last.committed, told.last.at_ms) == (True, 1002)


def test_parts_wait_by_name() -> None:
    told = told_of(claim(1, P0), member(1, P0, M, 2, "m"), prepare(2, M))
    assert told.parts == (Part("m", *M, True),)
    told = told_of(claim(1, P0), member(1, P0, M, 2, "m"))
    assert told.parts == (Part("m", *M, False),)
    told = told_of(claim(1, P0), prepare(1, P0))
    assert (told.parts, told.state) == ((Part("", *P0, True),), "Empty")


def test_an_id_that_is_given_up_is_dead() -> None:
    assert told_of(claim(1, P0), expiry(1)).state == "Dead"


def test_a_row_of_a_list_says_the_same() -> None:
    told = told_of(claim(1, P0))
    row = listed(told)
    assert isinstance(row, Listed)
    assert row == tuple(getattr(told, name) for name in Listed._fields)
