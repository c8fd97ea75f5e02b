"""The whole machinery once, short: one real broker, kproxy as a process, faults, the verdict."""

import functools
from pathlib import Path

import pytest
import trio

from verification.chaos.relayed_kafka import RelayedKafka
from verification.chaos.run import Plan, Run, run_chaos
from verification.chaos.transactional_load import TRANSACTIONAL_TOPICS
from verification.chaos.workload import HABITS, TOPICS
from verification.history import AnomalyKind, Outcome

NEVER = {
    AnomalyKind.UNSENT,
    AnomalyKind.DUPLICATE,
    AnomalyKind.LOST_WRITE,
    AnomalyKind.UNSEEN,
    AnomalyKind.ABORTED_READ,
    AnomalyKind.PRECOMMITTED_READ,
    AnomalyKind.TORN,
}


@pytest.mark.kafka
@pytest.mark.java
def test_a_short_run_reads_all_that_was_acknowledged_and_judges_it(tmp_path: Path) -> None:
    phases: list[str] = []
    plan = Plan(seconds=12, seed=7, brokers=1, families=("client", "upstream", "kproxy"), released=False)

    def watch(run: Run) -> None:
        phases.append(run.phase)

    with RelayedKafka(1, tmp_path / "kafka") as kafka:
        verdict = trio.run(functools.partial(run_chaos, plan, kafka, tmp_path, watch, 0.1))
    acknowledged = sum(len(found.sends) for found in verdict.history if found.outcome is Outcome.OK)
    finals = {(poll.topic, poll.partition) for found in verdict.history if found.final for poll in found.polls}
    assert acknowledged > 100 * len(HABITS) / 2
    topics = {**TOPICS, **TRANSACTIONAL_TOPICS}
    assert finals == {(topic, partition) for topic, count in topics.items() for partition in range(count)}
    assert {"faults", "settling"} <= set(phases)
    assert (tmp_path / "faults.log").read_text().count("healed") >= 2
    assert [anomaly for anomaly in verdict.anomalies if anomaly.kind in NEVER] == []
    assert [bar for bar in verdict.bars if not bar.good] == []
