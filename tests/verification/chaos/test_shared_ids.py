"""All producers that are written request by request, as chaos has them, and one planted fault for each kind."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
import trio

from kproxy.codec._generated.end_txn import EndTxnResponse
from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker import Answer, Call, ClusterConfig, Edit, FakeServer, open_fake_cluster
from kproxy.txn.verdict import Verdict
from kproxy.txn.views import Views
from tests.net.txn.test_shared_ids import read_committed, two_kproxies
from tests.verification.chaos.test_twins import judged
from tests.verification.chaos.twin_runs import count, kinds, run
from verification.chaos.recorder import Recorder
from verification.chaos.shared_ids import INPUTS, SharedIds
from verification.chaos.unaware import places_of
from verification.history import AnomalyKind, Kind, Operation, Outcome, check, read_history

PLACES = places_of(["t"], 3)
ALONE = "own.alone.second"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that was fenced takes the id over again soon."""
    monkeypatch.setattr("verification.chaos.twins._AWAY_S", (0.02, 0.1))
    monkeypatch.setattr("verification.chaos.twins._BACKOFF_S", 0.01)
    monkeypatch.setattr("verification.chaos.twins._ZOMBIE_S", (0.05, 0.1))


@dataclass
class Scene:
    """All producers at one fake broker, without kproxy."""

    fake: FakeServer
    recorder: Recorder
    ids: SharedIds

    async def run(self, enough: Callable[[list[Operation]], bool]) -> list[Operation]:
        """Let all write until their history has the awaited event; return it with all that is in the log."""
        await run(self.recorder, self.ids.twins, enough)
        assert await self.ids.read_positions() == []
        history, _ = await judged(self.fake, self.recorder)
        return history


@asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    with Recorder(directory) as recorder:
        async with open_fake_cluster(config=ClusterConfig(num_partitions=3)) as fake:
            host, _, port = fake.bootstrap.rpartition(":")
            await trio.to_thread.run_sync(_make_topics, fake.bootstrap)
            yield Scene(fake, recorder, SharedIds({"own": PLACES}, [(host, int(port))] * 2, recorder, 1))


def _make_topics(bootstrap: str) -> None:
    with ClusterClient(bootstrap) as client:
        client.create_topic("t", 3)
        client.create_topic(INPUTS)


def all_succeed(history: list[Operation]) -> bool:
    names = {one.process for one in history}
    return len(names) == 5 and all(count(history, Kind.TXN, Outcome.OK, name) for name in names)


async def test_all_producers_succeed_and_each_group_is_read(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        history = await at.run(all_succeed)
    assert check(history) == []
    assert {one.group for one in history if one.kind is Kind.GROUP and one.final} == {
        "own.pair.first",
        "own.pair.second",
        ALONE,
    }
    assert count(history, Kind.INIT, Outcome.OK, ALONE) == 1, "nobody fences it"


async def test_a_fenced_producer_that_may_commit_is_found(tmp_path: Path) -> None:
    def succeed(answer: Message) -> None:
        assert isinstance(answer, EndTxnResponse)
        answer.error_code = ErrorCode.NONE

    async with scene(tmp_path) as at:
        at.fake.cluster.control(ApiKey.END_TXN, lambda _: Edit(succeed))
        history = await at.run(lambda history: AnomalyKind.FENCED_SUCCESS in kinds(history))
    found = {one.operations[-1].transactional_id for one in check(history) if one.kind is AnomalyKind.FENCED_SUCCESS}
    assert found <= {"own.pair.first", "own.pair.second"}


async def test_batches_of_the_second_protocol_that_are_taken_for_retries_are_found(tmp_path: Path) -> None:
    """They are acknowledged, and nothing is written."""

    def take_for_retry(call: Call) -> Answer | None:
        if call.request.transactional_id != ALONE:
            return None
        rows = [
            ProduceResponseTopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    ProduceResponsePartitionProduceResponse(row.index) for row in topic.partition_data
                ],
            )
            for topic in call.request.topic_data
        ]
        return Answer(ProduceResponse(responses=rows))

    async with scene(tmp_path) as at:
        at.fake.cluster.control(ApiKey.PRODUCE, take_for_retry)
        found = check(await at.run(lambda history: count(history, Kind.TXN, Outcome.OK, ALONE) > 1))
    processes = {one.operations[0].process for one in found if one.kind in (AnomalyKind.UNSEEN, AnomalyKind.LOST_WRITE)}
    assert processes == {f"{ALONE}.a"}
    assert AnomalyKind.EOS_BREAK in {one.kind for one in found}


async def test_one_of_two_kproxies_that_shows_what_was_aborted_is_found(tmp_path: Path) -> None:
    """The reader at the other one is shown the right records."""

    def enough(history: list[Operation]) -> bool:
        return count(history, Kind.INIT, Outcome.OK, "pair") > 8 and count(history, Kind.TXN, Outcome.OK, "pair") > 8

    with Recorder(tmp_path) as recorder:
        async with two_kproxies() as (first, second):

            def verdict(views: Views, producer_id: int, epoch: int) -> Verdict:
                found = rule(views, producer_id, epoch)
                wrong = found is Verdict.ABORTED and views is second.transactions.views
                return Verdict.COMMITTED if wrong else found

            rule = Views.verdict
            ids = SharedIds({"own": PLACES}, [("127.0.0.1", each.port) for each in (first, second)], recorder, 1)
            await run(recorder, ids.twins, enough)
            with patch.object(Views, "verdict", verdict):
                for port in (first.port, second.port):
                    for one in await trio.to_thread.run_sync(lambda port=port: list(read_committed(port))):  # type: ignore[misc]
                        recorder.add(one)
        recorder.flush()
        found = kinds(list(read_history(recorder.path)))
    assert AnomalyKind.ABORTED_READ in found
