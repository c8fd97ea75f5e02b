"""Decisions over several members, and what readers are shown of them."""

from verification.simulation.transactions.history import TransactionHistory
from verification.simulation.transactions.invariants import OUTCOME
from verification.simulation.transactions.member_history import ONCE, TOGETHER, Decision, MemberHistory
from verification.simulation.transactions.member_invariants import broken


class Told:
    """Decisions of one batch, each of two members with one record."""

    def __init__(self) -> None:
        self.told = TransactionHistory()
        self.history = MemberHistory(self.told)

    def decision(self, *names: str) -> Decision:
        parts = {name: self.told.open(name, at, "id") for at, name in enumerate(names)}
        for claimed in parts.values():
            self.told.values(claimed, 0, 1, late=False)
        decision = Decision("id", "id/0", parts)
        self.history.asks(decision)
        return decision

    def broken(self, *shown: str) -> list[str]:
        log = {offset: f"{name}:0.0".encode() for offset, name in enumerate(shown)}
        return [name for name, _ in broken(self.history, {0: log})]


def test_all_or_none_is_sound() -> None:
    told = Told()
    told.decision("a", "b")
    assert told.broken("a", "b") == told.broken() == []


def test_one_member_alone_is_torn() -> None:
    told = Told()
    told.decision("a", "b")
    assert told.broken("b") == [TOGETHER]


def test_a_batch_that_counts_twice_is_found() -> None:
    told = Told()
    told.decision("a")
    told.history.done(told.decision("b"))
    assert told.broken("a") == told.broken("b") == []
    assert told.broken("a", "b") == [ONCE]


def test_what_was_told_to_be_committed_is_shown() -> None:
    told = Told()
    decision = told.decision("a")
    assert told.broken() == []
    told.history.done(decision)
    assert told.broken() == [OUTCOME]
    assert decision.parts["a"].told is True
