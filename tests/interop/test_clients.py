"""Released clients, old and new, against a real Kafka 4.3.0 through kproxy: nothing lost, doubled or changed."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.interop import log_files, records, session
from tests.interop.catalog import CLIENTS, NEWEST, Client
from tests.interop.conftest import Target
from tests.support.clients import run_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]


@dataclass(frozen=True)
class Outcome:
    """A client, what it did, and what the newest client read of it."""

    client: Client
    run: session.Run
    golden: dict[str, list[records.Record]]


@pytest.fixture(scope="module")
def golden(target: Target) -> dict[str, list[records.Record]]:
    """The topics that the newest client wrote through kproxy."""
    session.create_topics(target.kafka.bootstrap, [f"golden.{name}" for name in session.GOLDEN])
    return session.write_golden(target.bootstrap, "golden")


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda client: client.name)
def outcome(
    request: pytest.FixtureRequest, target: Target, golden: dict[str, list[records.Record]]
) -> Iterator[Outcome]:
    client: Client = request.param
    topic = f"own.{client.name}"
    session.create_topics(target.kafka.bootstrap, [topic])
    wanted = session.readable(client, golden, transcoding=target.kproxy is not None)
    yield Outcome(client, session.run_client(client, target.bootstrap, topic, wanted), wanted)


def test_every_step_succeeds(outcome: Outcome) -> None:
    assert not outcome.run.errors, "\n\n".join(f"{step}: {error}" for step, error in outcome.run.errors.items())


def test_the_client_reads_each_of_its_records_once_over_a_restart(outcome: Outcome) -> None:
    run = outcome.run
    assert not records.differences(run.sent, run.read, outcome.client.can, run.arrival_ms)
    if run.acked:
        assert not records.wrong_acks(run.sent, run.acked, run.read)


def test_the_client_reads_what_the_newest_client_wrote(outcome: Outcome) -> None:
    for topic, written in outcome.golden.items():
        problems = records.differences(written, outcome.run.golden[topic], outcome.client.can, outcome.run.arrival_ms)
        assert not problems, f"{topic}: {problems}"


def test_the_newest_client_reads_what_the_client_wrote(outcome: Outcome, target: Target) -> None:
    run = outcome.run
    step = session.consume_step(run.topic, f"newest.{run.topic}", len(run.sent), session.EXTRA_MS)
    [result] = run_driver(NEWEST.install(), session.job(target.bootstrap, NEWEST.options, [step]), 60)
    assert "error" not in result, result["error"]
    assert not records.differences(run.sent, result["records"], NEWEST.can, run.arrival_ms)


def test_every_batch_in_the_log_is_stamped(outcome: Outcome, target: Target) -> None:
    if target.kproxy is None:
        pytest.skip("brokers stamp nothing: this is a check of the drivers, without kproxy")
    for partition in range(records.PARTITIONS):
        found = list(log_files.batches(target.kafka.directory / "data-1", outcome.run.topic, partition))
        assert sum(batch.record_count for batch in found if not batch.control) == len(
            [record for record in outcome.run.sent if record["p"] == partition]
        )
        assert not log_files.unstamped(found, own=not outcome.client.idempotent)
