"""Each invariant is broken by a history and logs made for it, and by nothing else."""

from collections.abc import Mapping
from typing import Any

from verification.simulation.transactions import invariants
from verification.simulation.transactions.history import Claimed, Input, TransactionHistory

Log = Mapping[int, bytes]


def made(*transactions: tuple[str, dict[str, Any]]) -> TransactionHistory:
    """Transactions of one producer with two records each for partition 0: ``a0`` and ``a1`` of ``a``."""
    history = TransactionHistory()
    for name, said in transactions:
        claimed = history.open(name, 0, "id")
        history.by_value.update({value: claimed for value in (f"{name}0".encode(), f"{name}1".encode())})
        claimed.values[0] = [f"{name}0".encode(), f"{name}1".encode()]
        for what, value in said.items():
            setattr(claimed, what, value)
    return history


COMMITTED = {"asked": True, "told": True}
ABORTED = {"asked": False, "told": False}
UNKNOWN = {"asked": True, "told": None}
BOTH = made(("a", COMMITTED), ("b", ABORTED))
ALL: Log = {0: b"a0", 1: b"a1", 2: b"b0", 3: b"b1"}
A: Log = {0: b"a0", 1: b"a1"}
NOTHING: Log = {}


def found(
    history: TransactionHistory,
    shown: Log,
    stored: Log | None = None,
    reader: Log | None = None,
    positions: Mapping[str, int] | None = None,
) -> set[str]:
    """``shown`` at the end, what is ``stored``, what a reader was shown meanwhile; the same if not given."""
    everything = shown if stored is None else stored
    readers = [{0: shown if reader is None else reader}]
    return {name for name, _ in invariants.broken(history, {0: shown}, {0: everything}, readers, positions or {})}


def test_what_is_committed_is_shown_and_what_is_aborted_is_not() -> None:
    assert found(BOTH, A, ALL) == set()
    assert found(made(("a", UNKNOWN)), A) == set()
    assert found(made(("a", UNKNOWN)), NOTHING, A) == set()


def test_a_committed_record_that_is_not_shown_is_lost() -> None:
    history = made(("a", COMMITTED))
    assert found(history, {0: b"a0"}, {0: b"a0"}) == {invariants.LOST}
    assert found(history, {0: b"a0"}, A) == {invariants.LOST, invariants.FILTER}
    assert found(history, NOTHING) == {invariants.OUTCOME}


def test_a_part_of_a_transaction_is_torn() -> None:
    assert found(made(("a", UNKNOWN)), {0: b"a0"}, A) == {invariants.TORN}


def test_what_nobody_asked_to_commit_must_not_be_shown() -> None:
    assert found(BOTH, ALL) == {invariants.ABORTED}
    assert found(made(("a", {"asked": True, "told": False})), A) == {invariants.OUTCOME}


def test_a_record_that_is_shown_twice_is_a_duplicate() -> None:
    twice = {0: b"a0", 1: b"a1", 2: b"a1"}
    assert found(made(("a", COMMITTED)), twice) == {invariants.DUPLICATE}


def test_records_of_a_producer_stay_in_order() -> None:
    assert found(made(("a", COMMITTED)), {0: b"a1", 1: b"a0"}) == {invariants.ORDER}
    later = {0: b"b0", 1: b"b1", 2: b"a0", 3: b"a1"}
    assert found(made(("a", COMMITTED), ("b", COMMITTED)), later) == {invariants.ORDER}


def test_what_a_fenced_producer_sent_must_not_be_shown() -> None:
    history = made(("a", {**UNKNOWN, "zombies": {b"a1"}}))
    assert found(history, A) == {invariants.ZOMBIE}
    assert found(history, NOTHING, A) == set()


def test_what_is_shown_stands_where_it_is_shown() -> None:
    assert found(made(("a", COMMITTED)), {0: b"a0", 5: b"a1"}, A) == {invariants.FILTER}


def test_a_reader_that_saw_something_else_was_misled() -> None:
    assert found(BOTH, A, ALL, ALL) == {invariants.ABORTED, invariants.SKIPPED}
    assert found(BOTH, A, ALL, {0: b"a0"}) == {invariants.SKIPPED}
    assert found(BOTH, A, ALL, {1: b"a1", 0: b"a0"}) == {invariants.SKIPPED}


def test_what_was_undecided_lay_after_the_last_stable_offset() -> None:
    assert found(made(("a", {**COMMITTED, "stable_before": {0: 1}})), A) == {invariants.STABLE}
    assert found(made(("a", {**COMMITTED, "stable_before": {0: 0, 1: 9}})), A) == set()


def test_offsets_answered_hold_the_record() -> None:
    history = made(("a", COMMITTED))
    history.acks = [(0, 0, b"a0"), (0, 1, b"a1")]
    assert found(history, A) == set()
    history.acks.append((0, 1, b"a0"))
    assert found(history, A) == {invariants.OFFSETS}


def test_a_group_is_where_the_last_committed_transaction_moved_it() -> None:
    history = made(("a", {**COMMITTED, "input": Input("g", 1)}), ("b", {**ABORTED, "input": Input("g", 2)}))
    assert found(history, A, ALL, positions={"g": 1}) == set()
    assert found(history, A, ALL, positions={"g": 0}) == {invariants.MOVED}
    assert found(history, A, ALL, positions={"g": 2}) == {invariants.MOVED}


def test_a_transaction_without_data_moves_a_group_as_it_was_reported() -> None:
    history = TransactionHistory()
    history.transactions.append(Claimed("a", 0, "id", asked=True, input=Input("g", 1)))
    assert found(history, NOTHING, positions={"g": 0}) == found(history, NOTHING, positions={"g": 1}) == set()
    history.transactions[0].told = True
    assert found(history, NOTHING, positions={"g": 0}) == {invariants.MOVED}


def test_two_committed_transactions_have_no_input_in_common() -> None:
    one = {**COMMITTED, "input": Input("g", 1)}
    history = made(("a", one), ("b", one))
    assert found(history, ALL) == {invariants.INPUT}
    history.transactions[1].asked = history.transactions[1].told = False
    assert found(history, A, ALL) == set()


def test_what_broke_while_the_run_continued_is_reported_after_the_rest() -> None:
    history = made(("a", COMMITTED))
    history.breaks(invariants.FALLS, "from 3 to 2")
    broken = list(invariants.broken(history, {0: {0: b"a0"}}, {0: {0: b"a0"}}, []))
    assert [name for name, _ in broken] == [invariants.LOST, invariants.FALLS]


def test_all_invariants_have_names_of_their_own() -> None:
    assert len(set(invariants.INVARIANTS)) == len(invariants.INVARIANTS)
