"""Which prepared parts a decision covers."""

from contextlib import nullcontext

import pytest

from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec.messages import ErrorCode
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.prepared_parts import (
    EVERYTHING,
    NOTHING_BESIDE,
    DecidedParts,
    DecisionScope,
    covered_parts,
    is_any_prepared,
    named_parts,
    prepared_parts,
    refuse_ambiguous,
)
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import Joined, Prepared


def view_with(*parts: str | tuple[str, int]) -> IdView:
    """A view in which parts are prepared, under epochs 0, 1 and so on: of these names, by owners of these epochs.

    Owner 2 has the id now; of a name alone the owner is not known.
    """
    view = IdView("id", client=Producer(7, 2))
    for epoch, part in enumerate(parts):
        name, client = (part, NOBODY) if isinstance(part, str) else (part[0], Producer(7, part[1]))
        record = TransactionPrepare(producer_id=TXN_BITS | 1, epoch=epoch)
        view.prepared[Producer(TXN_BITS | 1, epoch)] = Prepared(record, name, LogPosition(epoch, 0), client)
    return view


def epochs(view: IdView | None, members: tuple[str, ...] | None, *, former: bool = False) -> list[int]:
    return [record.epoch for record in prepared_parts(view, DecisionScope(members=members, former=former))]


def test_a_plain_end_decides_the_open_transaction_alone() -> None:
    assert epochs(view_with("", "a"), None) == []


def test_own_parts_of_unknown_owners_are_always_covered_and_members_by_name() -> None:
    """Older kproxies do not write who the owner was into snapshots."""
    view = view_with("", "a", "b", "a", "", ("", 1))
    assert epochs(view, ()) == epochs(view, (), former=True) == [0, 4]
    assert epochs(view, ("a",)) == [0, 1, 3, 4]


def test_the_own_part_of_the_present_owner_and_of_those_of_named_members_is_covered() -> None:
    view = view_with(("", 0), ("a", 0), ("b", 1), ("", 1), ("", 2), ("c", 2))
    assert epochs(view, ()) == epochs(view, (), former=True) == [4]
    assert epochs(view, ("c",)) == [4, 5]
    assert epochs(view, ("a",)) == [0, 1, 4]
    assert epochs(view, ("a", "b")) == [0, 1, 2, 3, 4]


def test_a_batch_without_members_is_a_former_owners_of_which_no_member_waits() -> None:
    view = view_with(("", 0), ("a", 1), ("", 1), ("b", 2))
    assert epochs(view, ()) == []
    assert epochs(view, (), former=True) == [0]
    assert epochs(view, ("b",), former=True) == [3]


@pytest.mark.parametrize(
    ("parts", "members", "former", "is_refused"),
    [
        ([("", 0)], (), True, False),
        ([("", 0), ("", 1)], (), True, True),
        ([("", 0), ("a", 0), ("", 1), ("b", 1)], ("a",), True, False),
        ([("", 0), ("a", 0), ("", 1), ("b", 1)], ("a", "b"), True, True),
        ([("", 0), ("a", 0), ("", 2)], ("a",), True, True),
        ([("", 0), ("a", 0)], ("a",), False, True),
        ([("", 0), ("a", 2)], ("a",), False, False),
        ([("a", 0)], ("a",), False, False),
        (["", "a", ("", 2)], ("a",), True, False),
    ],
    ids=[
        "one",
        "two",
        "a member's",
        "two members'",
        "and its own",
        "and open here",
        "another's",
        "a member alone",
        "unknown",
    ],
)
def test_a_commit_covers_what_one_owner_has_written_itself(
    parts: list[str | tuple[str, int]], members: tuple[str, ...], *, former: bool, is_refused: bool
) -> None:
    scope = DecisionScope(members=members, former=former)
    expected = pytest.raises(TxnError, match=r"INVALID_REQUEST.*several owners") if is_refused else nullcontext()
    with expected:
        refuse_ambiguous(view_with(*parts), scope)


def test_parts_that_are_named_are_covered_alone_as_far_as_they_wait() -> None:
    view = view_with(("", 2), ("a", 2), ("b", 2))
    parts = [Producer(TXN_BITS | 1, epoch) for epoch in (2, 9)]
    assert covered_parts(view, DecisionScope(parts=parts)) == {parts[0]}


def test_everything_is_covered_whatever_its_name() -> None:
    found = prepared_parts(view_with("", "a", "b"), EVERYTHING._replace(members=("gone",)))
    assert [record.epoch for record in found] == [0, 1, 2]


def test_members_that_are_open_or_prepared_are_named_the_owners_own_parts_are_not() -> None:
    view = view_with("", "a", "b")
    at = LogPosition(0, 0)
    view.members[Producer(TXN_BITS | 2, 0)] = Joined(Producer(TXN_BITS | 1, 0), "c", b"", at, None)
    view.members[Producer(TXN_BITS | 2, 1)] = Joined(Producer(TXN_BITS | 1, 0), "a", b"", at, None)
    assert named_parts(view) == {"a", "b", "c"}
    assert named_parts(view, [Producer(TXN_BITS | 2, 0), Producer(TXN_BITS | 2, 1)]) == {"a", "b"}


def test_nothing_is_prepared_of_an_id_that_the_log_does_not_know() -> None:
    assert epochs(None, ()) == []


@pytest.mark.parametrize("view", [None, view_with("", "a")])
def test_members_that_prepared_nothing_are_an_error(view: IdView | None) -> None:
    with pytest.raises(TxnError, match="b, c") as caught:
        prepared_parts(view, DecisionScope(members=("c", "b")))
    assert caught.value.error_code is ErrorCode.INVALID_REQUEST


def test_a_decision_leaves_parts_prepared_that_a_claim_came_before() -> None:
    view = view_with("", "a")
    beside = DecidedParts(None, prepared_parts(view, EVERYTHING))
    assert is_any_prepared(view, beside)
    view.prepared.popitem()
    assert is_any_prepared(view, beside)
    assert not is_any_prepared(view, NOTHING_BESIDE)
    assert not is_any_prepared(IdView("id"), beside)
    assert not is_any_prepared(None, beside)
