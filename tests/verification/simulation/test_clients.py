"""Model clients, in front of kproxy and the fake cluster."""

from typing import Any

import pytest

from tests.verification.simulation.worlds import client, fault, plan, send
from verification.simulation.scripts import led_back
from verification.simulation.tastes import WIDE, Taste, make_plan
from verification.simulation.world import Outcome, run


def sent(outcome: Outcome) -> list[str]:
    lines = [line.split(": ", 1)[1] for line in outcome.trace if " sends " in line]
    return [line for line in lines if "first" not in line]


def lost_once(*sends: Any, **more: Any) -> Outcome:
    """After a first request the broker answers nothing for a while, so that the client times out."""
    plans = client(send(b"first"), *sends, **more)
    return run(plan(plans, faults=(fault("slow_broker", 1.5, where=0.0, much=0.9),)))


def test_what_got_no_answer_is_sent_again_on_a_new_connection() -> None:
    outcome = lost_once(send(b"a", gap=2.0), request_timeout=2.0)
    assert sent(outcome)[:2] == ["0:[a]", "0:[a]"]
    assert any("opens" in line and "lost" not in line for line in outcome.trace)


def test_or_on_the_same_one_and_the_late_answer_is_thrown_away() -> None:
    outcome = lost_once(send(b"a", gap=2.0), send(b"b", gap=9.0), request_timeout=3.0, closes_on_timeout=False)
    assert any("times out 2" in line for line in outcome.trace)
    assert any("throws the late answer to 2 away" in line for line in outcome.trace)
    assert sum("lost connection" in line for line in outcome.trace) == 0


@pytest.mark.parametrize(("ready", "then"), [(False, ["0:[a]", "0:[b]"]), (True, ["0:[b]", "0:[a]"])])
def test_after_an_error_it_sends_first_what_it_had_ready(ready: bool, then: list[str]) -> None:
    outcome = lost_once(send(b"a", gap=2.0), send(b"b"), closes_on_timeout=False, request_timeout=9.0, ready=ready)
    assert sent(outcome)[:3] == ["0:[a]", *then]


@pytest.mark.parametrize(("in_rounds", "before"), [(False, 1), (True, 2)])
def test_in_rounds_it_reads_all_its_answers_before_it_repeats(in_rounds: bool, before: int) -> None:
    sends = send(b"a", gap=2.0), send(b"b", gap=0.0)
    outcome = lost_once(*sends, depth=2, closes_on_timeout=False, request_timeout=9.0, in_rounds=in_rounds)
    assert sent(outcome)[:4] == ["0:[a]", "0:[b]"] * 2
    told = [line for line in outcome.trace if "REQUEST_TIMED_OUT" in line or "sends 4:" in line]
    assert "sends 4:" in told[before]


@pytest.mark.parametrize(
    ("regroup", "again"),
    [("same", ["0:[a b]", "0:[c]"]), ("split", ["0:[a]", "0:[b]"]), ("join", ["0:[a b c]"])],
)
def test_batches_are_retried_as_they_were_split_or_joined(regroup: str, again: list[str]) -> None:
    outcome = lost_once(send(b"a", b"b", gap=2.0), send(b"c", gap=0.1), depth=2, regroup=regroup, request_timeout=2.0)
    assert sent(outcome)[2 : 2 + len(again)] == again


def test_it_gives_up_when_it_has_tried_enough() -> None:
    outcome = lost_once(send(b"a", gap=2.0), send(b"b"), request_timeout=2.0, tries=1)
    assert any("gives up 0:[a]" in line for line in outcome.trace)
    assert sent(outcome)[:2] == ["0:[a]", "0:[b]"]


def test_no_more_requests_are_without_an_answer_than_it_allows() -> None:
    outcome = run(plan(client(*(send(b"%d" % n, gap=0.0) for n in range(8)), depth=3)))
    flight = most = 0
    for line in outcome.trace:
        flight += (" sends " in line) - (" reads " in line)
        most = max(most, flight)
    assert most == 3


def test_several_partitions_go_in_one_request() -> None:
    both = send(b"a")
    outcome = run(plan(client(type(both)(0.1, ((0, (b"a",)), (3, (b"b",)))))))
    assert sent(outcome) == ["0:[a] 3:[b]"]
    assert outcome.acknowledged == 2


@pytest.mark.parametrize(("seed", "taste"), [(1_029_285, Taste()), (8_413_149, WIDE)])
def test_an_equal_record_without_a_time_after_an_answer_that_was_perhaps_too_late_is_not_judged(
    seed: int, taste: Taste
) -> None:
    """kproxy has to treat it as the retry of a client that had given up; here it was slow, and so was its response.

    Or it may have waited at kproxy, until another request was taken, for longer than it did.
    """
    outcome = run(make_plan(seed, taste))
    assert not any("times out" in line for line in outcome.trace)
    assert outcome.broken is None


@pytest.mark.parametrize(("keeps", "used"), [(True, 2), (False, 1)])
def test_it_has_a_connection_to_each_leader_and_keeps_it(keeps: bool, used: int) -> None:
    sends = [send(b"%d" % n, partition=n % 2) for n in range(4)]
    outcome = run(plan(client(*sends, keeps_connections=keeps)))
    assert outcome.broken is None
    assert outcome.acknowledged == 4
    lines = [line.strip().split(" ", 1)[1] for line in outcome.trace if "uses connection" in line or "sends" in line]
    before = [lines[at - 1] for at, line in enumerate(lines) if "sends" in line and "uses connection" in lines[at - 1]]
    assert len(set(before)) == used
    assert len(before) == (4 if keeps else 1)  # it goes from one to the other and back


def test_what_it_repeats_goes_to_the_leader_that_the_partition_has_then() -> None:
    outcome = run(led_back(0))
    sends = [at for at, line in enumerate(outcome.trace) if line.endswith("0:[a]")]
    first, retry = (next(line for line in reversed(outcome.trace[:at]) if " uses " in line) for at in sends[-2:])
    opened = [line.rsplit(" ", 1)[1] for line in (first, retry)]
    assert int(opened[1]) < int(opened[0])


@pytest.mark.parametrize(
    ("raises", "again"),
    [
        ("", ["0:[a b]", "0:[c]"]),
        ("same", ["0:[a b]", "0:[c]"]),
        ("split", ["0:[a]", "0:[b]"]),
        ("join", ["0:[a b c]"]),
    ],
)
def test_an_idempotent_client_may_raise_its_epoch_after_a_time_out(raises: str, again: list[str]) -> None:
    habits: Any = {"numbered": True, "raises": raises, "depth": 2, "request_timeout": 2.0}
    outcome = lost_once(send(b"a", b"b", gap=2.0), send(b"c", gap=0.1), **habits)
    assert sent(outcome)[2 : 2 + len(again)] == again
    assert any("raises its epoch to 1" in line for line in outcome.trace) is bool(raises)
    assert outcome.broken is None
