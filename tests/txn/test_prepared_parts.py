"""Which prepared parts a decision covers."""

import pytest

from kproxy.codec._generated.transaction_prepare import TransactionPrepare
from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.prepared_parts import (
    EVERYTHING,
    NOTHING_BESIDE,
    DecidedParts,
    DecisionScope,
    is_any_prepared,
    named_parts,
    prepared_parts,
)
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import Joined, Prepared


def view_with(*names: str) -> IdView:
    """A view in which parts of these names are prepared, under epochs 0, 1 and so on."""
    view = IdView("id")
    for epoch, name in enumerate(names):
        record = TransactionPrepare(producer_id=TXN_BITS | 1, epoch=epoch)
        view.prepared[Producer(TXN_BITS | 1, epoch)] = Prepared(record, name, LogPosition(epoch, 0))
    return view


def epochs(view: IdView | None, members: tuple[str, ...] | None) -> list[int]:
    return [record.epoch for record in prepared_parts(view, DecisionScope(members=members))]


def test_a_plain_end_decides_the_open_transaction_alone() -> None:
    assert epochs(view_with("", "a"), None) == []


def test_the_owners_own_parts_are_always_covered_and_members_by_name() -> None:
    view = view_with("", "a", "b", "a", "")
    assert epochs(view, ()) == [0, 4]
    assert epochs(view, ("a",)) == [0, 1, 3, 4]


def test_everything_is_covered_whatever_its_name() -> None:
    found = prepared_parts(view_with("", "a", "b"), EVERYTHING)
    assert [record.epoch for record in found] == [0, 1, 2]


def test_members_that_are_open_or_prepared_are_named_the_owners_own_parts_are_not() -> None:
    view = view_with("", "a", "b")
    at = LogPosition(0, 0)
    view.members[Producer(TXN_BITS | 2, 0)] = Joined(Producer(TXN_BITS | 1, 0), "c", b"", at, None)
    view.members[Producer(TXN_BITS | 2, 1)] = Joined(Producer(TXN_BITS | 1, 0), "a", b"", at, None)
    assert named_parts(view) == {"a", "b", "c"}


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
