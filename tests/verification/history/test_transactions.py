from tests.verification.history.sample import TOPIC, poll
from verification.history import AnomalyKind, Kind, Operation, Outcome, Poll, Send, check, decode, encode

BOTH = (Send(TOPIC, 0, 0, "a"), Send(TOPIC, 1, None, "b"))


def transaction(outcome: Outcome = Outcome.OK, asked: int | None = 50) -> Operation:
    return Operation("p", Kind.TXN, outcome, 10, 60, sends=BOTH, asked=asked)


def end(*values: str) -> Operation:
    """What is read at the end: each value in a partition of its own."""
    polls = tuple(Poll(TOPIC, partition, ((0, value),)) for partition, value in enumerate(values) if value)
    return Operation("end", Kind.POLL, Outcome.OK, 10_000, 10_001, polls=polls, final=True)


def kinds(*history: Operation) -> list[AnomalyKind]:
    return [anomaly.kind for anomaly in check(history)]


def test_whole_transactions_are_clean_whether_they_are_known_to_be_committed_or_not() -> None:
    for outcome in (Outcome.OK, Outcome.INFO):
        assert kinds(transaction(outcome), end("a", "b")) == []
    for outcome in (Outcome.FAIL, Outcome.INFO):
        assert kinds(transaction(outcome), end()) == []


def test_a_transaction_of_which_a_part_shows_is_torn() -> None:
    assert kinds(transaction(Outcome.INFO), end("", "b")) == [AnomalyKind.TORN]
    assert kinds(transaction(Outcome.INFO), end("a")) == [AnomalyKind.TORN]
    assert AnomalyKind.TORN in kinds(transaction(), end("a"))


def test_what_shows_of_a_refused_transaction_is_an_aborted_read() -> None:
    assert kinds(transaction(Outcome.FAIL), end("a")) == [AnomalyKind.ABORTED_READ]


def test_what_is_read_before_its_commit_was_asked_for_is_precommitted() -> None:
    for at, found in ((30, [AnomalyKind.PRECOMMITTED_READ]), (55, [])):
        early = poll((0, "a"), at=at)
        assert kinds(transaction(), early, end("a", "b")) == found
    assert kinds(transaction(asked=None), poll((0, "a"), at=30), end("a", "b")) == []


def test_when_a_commit_was_asked_for_is_kept_in_files() -> None:
    for operation in (transaction(), transaction(asked=None), transaction(asked=0)):
        assert decode(encode(operation)) == operation
