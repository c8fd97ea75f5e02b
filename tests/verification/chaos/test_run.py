"""The whole machinery once, short: one real broker, kproxy as a process, faults, the verdict."""

import functools
from pathlib import Path

import pytest
import trio

from kproxy.config import Config
from kproxy.proxy.routing import Address
from verification.chaos.relayed_kafka import RelayedKafka
from verification.chaos.run import WINDOW_S, Plan, Run, run_chaos
from verification.chaos.transactional_load import TRANSACTIONAL_TOPICS
from verification.chaos.verdict import repeats_bar
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


def test_a_run_that_outlasts_the_retry_window_waits_until_what_is_kept_for_retries_has_expired() -> None:
    """Then all that is left is a leak; a shorter run could not tell."""
    assert Plan(seconds=600, seed=1, balanced=True).sees_all_expire
    assert not Plan(seconds=60, seed=1, balanced=True).sees_all_expire
    assert Config(bootstrap_servers=(Address("127.0.0.1", 9092),)).retry_window_ms == 1000 * WINDOW_S


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
    assert [anomaly for anomaly in verdict.unexplained if anomaly.kind in NEVER] == []
    assert repeats_bar(verdict.anomalies, killed=True).good
    assert [bar for bar in verdict.bars if not bar.good] == []
