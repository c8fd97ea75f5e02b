"""Clean histories of every shape are clean, and whatever is planted in one is found."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verification.history import Anomaly, AnomalyKind, Kind, Operation, Outcome, Poll, Send, check

TOPICS = ("unique", "equal")
History = list[Operation]


def clean_history(seed: int, sends: int = 40) -> History:
    """Several processes send to two topics, some with unknown fate or refused; readers follow; all is read at the end.

    What is acknowledged is in the log once, in the order of each process; half of what is unknown is there, too.
    """
    chance = random.Random(seed)
    logs: dict[tuple[str, int], list[str]] = {(topic, part): [] for topic in TOPICS for part in range(2)}
    history: History = []
    for number in range(sends):
        topic, part = chance.choice(TOPICS), chance.randrange(2)
        values = [f"{number}.{index}" if topic == "unique" else "same" for index in range(chance.randint(1, 3))]
        outcome = chance.choice([Outcome.OK] * 4 + [Outcome.INFO, Outcome.FAIL])
        log = logs[topic, part]
        first = len(log)
        if outcome is Outcome.OK or (outcome is Outcome.INFO and chance.random() < 0.5):
            log += values
        told = outcome is Outcome.OK and chance.random() < 0.8
        parts = tuple(Send(topic, part, first + at if told else None, value) for at, value in enumerate(values))
        history.append(
            Operation(f"p{chance.randrange(3)}", Kind.SEND, outcome, 10 * number, 10 * number + 5, sends=parts)
        )
        if chance.random() < 0.3:
            start = chance.randrange(first + 1)
            seen = tuple(enumerate(log))[start:]
            history.append(
                Operation(
                    f"c{number}", Kind.POLL, Outcome.OK, 10 * number + 7, sends=(), polls=(Poll(topic, part, seen),)
                )
            )
    for (topic, part), log in logs.items():
        polls = (Poll(topic, part, tuple(enumerate(log))),)
        history.append(Operation("end", Kind.POLL, Outcome.OK, 100_000, polls=polls, final=True))
    return history


@given(st.integers(0, 1 << 32), st.randoms(use_true_random=False))
def test_a_clean_history_is_clean_in_whatever_order_its_operations_stand(seed: int, order: random.Random) -> None:
    history = clean_history(seed)
    order.shuffle(history)
    assert check(history) == []


def final_log(history: History, topic: str) -> tuple[int, tuple[tuple[int, str], ...]]:
    """The index of the operation that reads the topic's first partition at the end, and the records there."""
    at = next(i for i, found in enumerate(history) if found.final and found.polls[0][:2] == (topic, 0))
    return at, history[at].polls[0].records


def _with_log(history: History, topic: str, change: Callable[[list[str]], None]) -> History:
    at, records = final_log(history, topic)
    values = [value for _, value in records]
    change(values)
    polls = (Poll(topic, 0, tuple(enumerate(values))),)
    return [*history[:at], replace(history[at], polls=polls), *history[at + 1 :]]


def _acknowledged(history: History, topic: str, told: bool = True) -> list[int]:
    return [
        at
        for at, found in enumerate(history)
        if found.outcome is Outcome.OK and found.sends and found.sends[0][:2] == (topic, 0)
        if (found.sends[0].offset is not None) is told
    ]


def duplicate(history: History) -> History:
    return _with_log(history, "unique", lambda values: values.append(values[0]))


def lost(history: History) -> History:
    """The first acknowledged record's place in the log is skipped by all readers."""
    at = _acknowledged(history, "unique")[0]
    value, offset = history[at].sends[0].value, history[at].sends[0].offset

    def without(found: Operation) -> Operation:
        polls = tuple(Poll(p.topic, p.partition, tuple(r for r in p.records if r[1] != value)) for p in found.polls)
        return replace(found, polls=polls)

    assert offset is not None
    return [without(found) for found in history]


def unseen(history: History) -> History:
    last = len(final_log(history, "unique")[1])
    return [*history, Operation("late", Kind.SEND, Outcome.OK, 90_000, sends=(Send("unique", 0, last, "late"),))]


def swapped(history: History) -> History:
    """Two acknowledged sends of a new process end up the other way round."""
    first = Operation("new", Kind.SEND, Outcome.OK, 90_000, 90_001, sends=(Send("unique", 0, None, "one"),))
    second = Operation("new", Kind.SEND, Outcome.OK, 90_010, 90_011, sends=(Send("unique", 0, None, "two"),))
    return [*_with_log(history, "unique", lambda values: values.extend(["two", "one"])), first, second]


def merged(history: History) -> History:
    """One equal record too few: more than the ones of unknown fate can account for."""
    unknown = sum(
        len(found.sends)
        for found in history
        if found.outcome is Outcome.INFO and found.sends and found.sends[0][:2] == ("equal", 0)
    )
    more = [
        Operation("new", Kind.SEND, Outcome.OK, 90_000 + i, sends=(Send("equal", 0, None, "same"),))
        for i in range(unknown + 1)
    ]
    return [*history, *more]


def acknowledged_twice(history: History) -> History:
    original = history[_acknowledged(history, "unique")[0]].sends[0]
    again = Operation("new", Kind.SEND, Outcome.OK, 90_000, sends=(original._replace(value="again"),))
    return [*_with_log(history, "unique", lambda values: values.append("again")), again]


def refused(history: History) -> History:
    sent = Operation("new", Kind.SEND, Outcome.FAIL, 90_000, sends=(Send("unique", 0, None, "refused"),))
    return [*_with_log(history, "unique", lambda values: values.append("refused")), sent]


def skipped(history: History) -> History:
    _, records = final_log(history, "unique")
    polls = (Poll("unique", 0, (records[0], records[2])),)
    return [*history, Operation("skipper", Kind.POLL, Outcome.OK, 90_000, polls=polls)]


def backwards(history: History) -> History:
    _, records = final_log(history, "unique")
    polls = (Poll("unique", 0, (records[1], records[0])),)
    return [*history, Operation("back", Kind.POLL, Outcome.OK, 90_000, polls=polls)]


def foreign(history: History) -> History:
    return _with_log(history, "unique", lambda values: values.append("never sent"))


PLANTED = [
    (duplicate, AnomalyKind.DUPLICATE),
    (lost, AnomalyKind.LOST_WRITE),
    (unseen, AnomalyKind.UNSEEN),
    (swapped, AnomalyKind.NONMONOTONIC_SEND),
    (merged, AnomalyKind.FALSE_DEDUP),
    (acknowledged_twice, AnomalyKind.DOUBLE_ACK),
    (acknowledged_twice, AnomalyKind.INCONSISTENT_OFFSET),
    (refused, AnomalyKind.ABORTED_READ),
    (skipped, AnomalyKind.INT_POLL_SKIP),
    (backwards, AnomalyKind.INT_NONMONOTONIC_POLL),
    (foreign, AnomalyKind.UNSENT),
]


def test_the_order_of_clients_that_change_it_themselves_is_not_judged() -> None:
    history = swapped(clean_history(0, sends=120))
    kinds = [anomaly.kind for anomaly in check(history, lambda process: True)]
    assert AnomalyKind.NONMONOTONIC_SEND in {anomaly.kind for anomaly in check(history, lambda process: False)}
    assert AnomalyKind.NONMONOTONIC_SEND not in kinds


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=lambda case: getattr(case, "__name__", None))
def test_what_is_planted_in_a_clean_history_is_found(
    plant: Callable[[History], History], kind: AnomalyKind, seed: int
) -> None:
    history = clean_history(seed, sends=120)
    assert kind in {anomaly.kind for anomaly in check(plant(history))}


def test_anomalies_come_by_number() -> None:
    found: list[Anomaly] = check(duplicate(unseen(refused(clean_history(1, sends=120)))))
    numbers = [anomaly.kind.number for anomaly in found]
    assert numbers == sorted(numbers)
    assert {1, 4, 5} <= set(numbers)
