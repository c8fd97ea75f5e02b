"""Released clients, old and new, against a real Kafka 4.4.0 through kproxy: nothing lost, doubled or changed."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.interop import log_files, records, session
from tests.interop.catalog import CLIENTS, NEWEST, Client
from tests.interop.conftest import Target
from tests.support.clients import run_driver

pytestmark = [pytest.mark.kafka, pytest.mark.java]
_AT_A_TIME: Final = 4
"""Clients wait most of the time: to join their group, and for records that should not come."""


@dataclass(frozen=True)
class Outcome:
    """A client, what it did, and what the newest client read of it."""

    client: Client
    run: session.Run
    golden: dict[str, list[records.Record]]
    newest: dict[str, Any]


@pytest.fixture(scope="module")
def golden(target: Target) -> dict[str, list[records.Record]]:
    """The topics that the newest client wrote through kproxy."""
    session.create_topics(target.kafka.bootstrap, [f"golden.{name}" for name in session.GOLDEN])
    return session.write_golden(target.bootstrap, "golden")


def _run(client: Client, target: Target, golden: dict[str, list[records.Record]]) -> Outcome:
    topic = f"own.{client.name}"
    session.create_topics(target.kafka.bootstrap, [topic])
    wanted = session.readable(client, golden, transcoding=target.kproxy is not None)
    run = session.run_client(client, target.bootstrap, topic, wanted)
    if target.kproxy is None:
        # A broker of its own accord gives records of magic 0 no timestamp.
        run.arrival_ms = -1, run.arrival_ms[1]
    step = session.consume_step(topic, f"newest.{topic}", len(run.sent), session.EXTRA_MS)
    [newest] = run_driver(NEWEST.install(), session.job(target.bootstrap, NEWEST.options, [step]))
    return Outcome(client, run, wanted, newest)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, target: Target, golden: dict[str, list[records.Record]]
) -> Iterator[dict[str, Future[Outcome]]]:
    """What each client does, some at a time; of those only whose tests are to run."""
    wanted = {client.name: client for client in session.asked(request, "outcome")}
    clients = [client for client in wanted.values() if target.kproxy or client.on_3_9]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield {client.name: pool.submit(_run, client, target, golden) for client in clients}
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda client: client.name)
def outcome(request: pytest.FixtureRequest, outcomes: dict[str, Future[Outcome]]) -> Outcome:
    client: Client = request.param
    if client.name not in outcomes:
        pytest.skip("Kafka 3.9.1 does not serve this client: this is a check of the drivers, without kproxy")
    return outcomes[client.name].result()


def _expect_none(problems: str) -> None:
    """Fail with just the problems: pytest would print every record."""
    if problems:
        pytest.fail(problems, pytrace=False)


def test_every_step_succeeds(outcome: Outcome) -> None:
    _expect_none("\n\n".join(f"{step}: {error}" for step, error in outcome.run.errors.items()))


def test_the_client_reads_each_of_its_records_once_over_a_restart(outcome: Outcome) -> None:
    run = outcome.run
    _expect_none(records.differences(run.sent, run.read, outcome.client.can, run.arrival_ms))
    if run.acked:
        _expect_none(records.wrong_acks(run.sent, run.acked, run.read))


def test_the_client_reads_what_the_newest_client_wrote(outcome: Outcome) -> None:
    for topic, written in outcome.golden.items():
        problems = records.differences(written, outcome.run.golden[topic], outcome.client.can, outcome.run.arrival_ms)
        _expect_none(problems and f"{topic}: {problems}")


def test_the_newest_client_reads_what_the_client_wrote(outcome: Outcome) -> None:
    run, newest = outcome.run, outcome.newest
    assert "error" not in newest, newest["error"]
    _expect_none(records.differences(run.sent, newest["records"], NEWEST.can, run.arrival_ms))


def test_every_batch_in_the_log_is_stamped(outcome: Outcome, target: Target) -> None:
    if target.kproxy is None:
        pytest.skip("brokers stamp nothing: this is a check of the drivers, without kproxy")
    for partition in range(records.PARTITIONS):
        found = list(log_files.batches(target.kafka.directory / "data-1", outcome.run.topic, partition))
        assert sum(batch.record_count for batch in found if not batch.control) == len(
            [record for record in outcome.run.sent if record["p"] == partition]
        )
        _expect_none(log_files.unstamped(found, own=not outcome.client.idempotent))
