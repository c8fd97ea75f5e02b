"""Transactions that read: their own records, or each other's in a circle."""

from tests.verification.history.sample import TOPIC, poll
from verification.history import AnomalyKind, Kind, Operation, Outcome, Poll, Send, check


def transaction(name: str, reads: str, writes: str, outcome: Outcome = Outcome.OK) -> Operation:
    """Values are letters; each stands at the offset that is its place in the alphabet."""
    sends = tuple(Send(TOPIC, 0, ord(value) - ord("a"), value) for value in writes)
    polls = tuple(Poll(TOPIC, 0, ((ord(value) - ord("a"), value),)) for value in reads)
    return Operation(name, Kind.TXN, outcome, 0, 9, sends=sends, polls=polls)


def kinds(*history: Operation) -> list[AnomalyKind]:
    everything = poll(*((at, value) for at, value in enumerate("abcdefgh")), final=True)
    written = {send.value for operation in history for send in operation.sends}
    everything = poll(*(r for r in everything.polls[0].records if r[1] in written), final=True)
    cycles = (AnomalyKind.G1C, AnomalyKind.PRECOMMITTED_READ)
    return [anomaly.kind for anomaly in check([*history, everything]) if anomaly.kind in cycles]


def test_two_transactions_that_read_each_other_are_a_cycle() -> None:
    assert kinds(transaction("p", "b", "a"), transaction("q", "a", "b")) == [AnomalyKind.G1C]


def test_a_long_circle_is_one_anomaly_and_what_leads_there_is_none() -> None:
    circle = [transaction("p", "c", "a"), transaction("q", "a", "b"), transaction("r", "b", "c")]
    assert kinds(*circle, transaction("s", "a", "d"), transaction("t", "d", "e")) == [AnomalyKind.G1C]
    others = [transaction("u", "g", "f"), transaction("v", "f", "g")]
    assert kinds(*circle, *others) == [AnomalyKind.G1C] * 2


def test_a_chain_and_a_diamond_are_clean() -> None:
    chain = [
        transaction("p", "", "a"),
        transaction("q", "a", "b"),
        transaction("r", "a", "c"),
        transaction("s", "bc", "d"),
    ]
    assert kinds(*chain) == []


def test_aborted_transactions_and_single_records_close_no_circle() -> None:
    assert kinds(transaction("p", "b", "a"), transaction("q", "a", "b", Outcome.FAIL)) == []
    single = Operation("q", Kind.SEND, Outcome.OK, 0, 9, sends=(Send(TOPIC, 0, 1, "b"),))
    assert kinds(transaction("p", "b", "a"), single) == []


def test_a_transaction_does_not_poll_its_own_record() -> None:
    assert kinds(transaction("p", "a", "a")) == [AnomalyKind.PRECOMMITTED_READ]
    assert kinds(transaction("p", "b", "a"), transaction("q", "", "b")) == []
