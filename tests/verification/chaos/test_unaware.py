"""Clients of transactions against a fake broker without kproxy: what they take down is judged as what it is."""

import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import trio

from kproxy.client import ControlError, ControlUnreachable
from kproxy.codec._generated.produce import ProduceResponse
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.testing.fake_broker.controls import Edit
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from kproxy.testing.fake_broker.fake_server import FakeServer, open_fake_cluster
from tests.net.harness import eventually
from verification.chaos.link import Address
from verification.chaos.recorder import Recorder
from verification.chaos.unaware import ByHand, PerRequest, Unaware, places_of
from verification.chaos.verdict import read_everything
from verification.history import AnomalyKind, Operation, Outcome, check, read_history

if TYPE_CHECKING:
    from kproxy.client import ControlClient

TOPICS = {"t": 3}
PLACES = places_of(["t"], 3)


@asynccontextmanager
async def brokers() -> AsyncIterator[tuple[FakeServer, Address]]:
    async with open_fake_cluster(config=ClusterConfig(num_partitions=3)) as cluster:
        host, _, port = cluster.bootstrap.rpartition(":")
        yield cluster, (host, int(port))


async def run(client: ByHand | PerRequest, enough: Callable[[], bool]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        await eventually(enough)
        client.stop()


async def judged(bootstrap: str, recorder: Recorder) -> tuple[list[Operation], list[AnomalyKind]]:
    """The history with all that is in the log, and what is wrong with it."""
    read = await trio.to_thread.run_sync(lambda: list(read_everything(bootstrap, TOPICS, io.StringIO())))
    for operation in read:
        recorder.add(operation)
    recorder.flush()
    history = list(read_history(recorder.path))
    return history, [anomaly.kind for anomaly in check(history)]


async def test_requests_that_are_written_whole_are_clean(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        async with brokers() as (cluster, address):
            client = PerRequest(Unaware("each", PLACES, version=3), address, recorder, 1)
            await run(client, lambda: recorder.records[Outcome.OK] > 20)
            history, found = await judged(cluster.bootstrap, recorder)
    assert found == []
    assert {send.partition for operation in history for send in operation.sends} == {0, 1, 2}


async def test_a_request_that_is_answered_with_an_error_is_of_unknown_fate(tmp_path: Path) -> None:
    def tell(answer: Message) -> None:
        assert isinstance(answer, ProduceResponse)
        answer.responses[0].partition_responses[0].error_code = ErrorCode.REQUEST_TIMED_OUT

    with Recorder(tmp_path) as recorder:
        async with brokers() as (cluster, address):
            cluster.cluster.control(ApiKey.PRODUCE, lambda _: Edit(tell))
            client = PerRequest(Unaware("each", PLACES, version=3), address, recorder, 1)
            await run(client, lambda: recorder.records[Outcome.INFO] > 5)
            whole, found = await judged(cluster.bootstrap, recorder)
    assert found == []  # it was written all the same
    assert {operation.outcome for operation in whole if operation.sends} == {Outcome.INFO}


class Control:
    """Stands for kproxy's control API: each commit is answered by the next of what it was given, then all go well."""

    def __init__(self, *commits: Exception | None) -> None:
        self._commits = list(commits)
        self.asked: list[str] = []

    def begin(self, *, client_id: str, transactional_id: str, timeout_ms: int) -> None:
        self.asked.append(f"begin {client_id} as {transactional_id}")

    def describe(self, transactional_id: str) -> SimpleNamespace:
        return SimpleNamespace(owner="7/0")

    def abort(self, transactional_id: str, *, owner: str) -> None:
        assert owner == "7/0"
        self.asked.append("abort")

    def commit(self, transactional_id: str, *, batch_id: str) -> None:
        self.asked.append(f"commit {batch_id}")
        answer = self._commits.pop(0) if self._commits else None
        if answer is not None:
            raise answer


def refusal(name: str, *, retriable: bool = False) -> ControlError:
    return ControlError(409, name, "", retriable=retriable)


LOST = ControlUnreachable("no answer")


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ((), Outcome.OK),
        ((LOST, refusal("CONCURRENT_TRANSACTIONS", retriable=True)), Outcome.OK),
        ((refusal("TRANSACTION_ABORTABLE"),), Outcome.FAIL),
        ((LOST, refusal("TRANSACTION_ABORTABLE")), Outcome.FAIL),
        ((refusal("TRANSACTIONAL_ID_NOT_FOUND"),), Outcome.FAIL),
        ((LOST, refusal("TRANSACTIONAL_ID_NOT_FOUND")), Outcome.INFO),
    ],
    ids=["committed", "asked again", "abortable", "abortable when asked again", "gone", "gone when asked again"],
)
async def test_what_became_of_a_transaction_by_hand_is_what_the_control_api_says(
    answers: tuple[Exception, ...], outcome: Outcome, tmp_path: Path
) -> None:
    control = Control(*answers)
    with Recorder(tmp_path) as recorder:
        async with brokers() as (cluster, address):
            who = Unaware("kproxy-txn-hand", PLACES, "own.hand", 3)
            client = ByHand(who, address, cast("ControlClient", control), recorder, 1)
            await run(client, lambda: len(recorder.by_process) > 0 or bool(recorder.records))
            history, _ = await judged(cluster.bootstrap, recorder)
    first = next(operation for operation in history if operation.asked is not None)
    assert first.outcome is outcome
    assert control.asked[0] == "begin kproxy-txn-hand as own.hand"
    assert control.asked.count("commit 1") == max(1, len(answers) + (outcome is Outcome.OK))


async def test_what_is_aborted_by_hand_and_shows_is_an_aborted_read(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        async with brokers() as (cluster, address):
            client = ByHand(Unaware("hand", PLACES, "hand", 3), address, cast("ControlClient", Control()), recorder, 1)
            await run(client, lambda: recorder.records[Outcome.FAIL] > 0)
            _, found = await judged(cluster.bootstrap, recorder)
    assert set(found) == {AnomalyKind.ABORTED_READ}  # for without kproxy there is no transaction
