"""Producers that share a transactional id, against a fake broker without kproxy; and one that is fenced by nobody."""

import io
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from kproxy.codec._generated.end_txn import EndTxnResponse
from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker.controls import Edit
from kproxy.testing.fake_broker.fake_cluster import ClusterConfig
from kproxy.testing.fake_broker.fake_server import FakeServer, open_fake_cluster
from tests.verification.chaos.twin_runs import count, kinds, run
from verification.aborted import Aborted
from verification.chaos.raw_transactions import FIRST, SECOND, Protocol
from verification.chaos.recorder import Recorder
from verification.chaos.twins import Shared, Twin
from verification.chaos.unaware import places_of
from verification.chaos.verdict import read_everything
from verification.history import AnomalyKind, Kind, Operation, Outcome, Poll, read_history

PLACES = places_of(["t"], 3)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that was fenced takes the id over again soon."""
    monkeypatch.setattr("verification.chaos.twins._AWAY_S", (0.02, 0.1))
    monkeypatch.setattr("verification.chaos.twins._BACKOFF_S", 0.01)
    monkeypatch.setattr("verification.chaos.twins._ZOMBIE_S", (0.05, 0.1))


@asynccontextmanager
async def pair(directory: Path, protocol: Protocol) -> AsyncIterator[tuple[FakeServer, Recorder, list[Twin]]]:
    with Recorder(directory) as recorder:
        async with open_fake_cluster(config=ClusterConfig(num_partitions=3)) as cluster:
            host, _, port = cluster.bootstrap.rpartition(":")
            await trio.to_thread.run_sync(_make_topics, cluster.bootstrap)
            shared = Shared("twins", PLACES, protocol, ("inputs", 0))
            twins = [Twin(name, shared, (host, int(port)), recorder, 1) for name in ("one", "two")]
            yield cluster, recorder, twins


def _make_topics(bootstrap: str) -> None:
    with ClusterClient(bootstrap) as client:
        client.create_topic("t", 3, 1)
        client.create_topic("inputs", 1, 1)


def read_committed(bootstrap: str) -> Iterator[Operation]:
    with ClusterClient(bootstrap) as client:
        for partition in range(3):
            answer = client.fetch("t", partition, 0, isolation_level=1).responses[0].partitions[0]
            data, aborted = memoryview(answer.records or b""), Aborted(answer.aborted_transactions)
            position, found = 0, []
            while position < len(data):
                header = read_header(data, position)
                batch = data[position : position + header.size]
                if not aborted.hides(header, batch):
                    found += [
                        (one.offset, (one.value or b"").decode())
                        for one in iter_records(batch, max_decompressed_bytes=1 << 20)
                    ]
                position += header.size
            polls = (Poll("t", partition, tuple(found)),)
            yield Operation("end", Kind.POLL, Outcome.OK, 1 << 62, 1 << 62, polls=polls, final=True)


async def judged(cluster: FakeServer, recorder: Recorder) -> tuple[list[Operation], set[AnomalyKind]]:
    def read() -> list[Operation]:
        everything = list(read_everything(cluster.bootstrap, {"t": 3}, io.StringIO()))
        return [*(replace(one, uncommitted=True) for one in everything), *read_committed(cluster.bootstrap)]

    for operation in await trio.to_thread.run_sync(read):
        recorder.add(operation)
    recorder.flush()
    history = list(read_history(recorder.path))
    return history, kinds(history)


@pytest.mark.parametrize("protocol", [FIRST, SECOND], ids=["first", "second"])
async def test_producers_that_fence_each_other_copy_each_input_once(tmp_path: Path, protocol: Protocol) -> None:
    def have_done_everything(history: list[Operation]) -> bool:
        both = all(count(history, Kind.TXN, Outcome.OK, name) for name in ("one", "two"))
        late = not protocol.second or any(found.delivered is not None for found in history)
        # a zombie that asks for its commit is refused
        return (
            both and late and count(history, Kind.END, Outcome.FAIL) > 1 and count(history, Kind.INIT, Outcome.OK) > 4
        )

    async with pair(tmp_path, protocol) as (cluster, recorder, twins):
        await run(recorder, twins, have_done_everything)
        await twins[0].read_position()
        history, found = await judged(cluster, recorder)
    assert found == set()
    assert recorder.unexpected == {}
    assert count(history, Kind.GROUP, Outcome.OK) == 1
    assert any(found.delivered is not None for found in history) is protocol.second


@pytest.mark.parametrize("protocol", [FIRST, SECOND], ids=["first", "second"])
async def test_a_broker_that_lets_a_fenced_producer_commit_is_found_out(tmp_path: Path, protocol: Protocol) -> None:
    def succeed(answer: Message) -> None:
        assert isinstance(answer, EndTxnResponse)
        answer.error_code = ErrorCode.NONE

    async with pair(tmp_path, protocol) as (cluster, recorder, twins):
        cluster.cluster.control(ApiKey.END_TXN, lambda _: Edit(succeed))
        await run(recorder, twins, lambda history: AnomalyKind.FENCED_SUCCESS in kinds(history))


async def test_offsets_are_refused_as_of_an_unknown_member_where_the_version_knows_no_better_error(
    tmp_path: Path,
) -> None:
    """kproxy says so in place of TRANSACTION_ABORTABLE; the producer begins again."""

    def refuse(answer: Any) -> None:
        answer.topics[0].partitions[0].error_code = ErrorCode.UNKNOWN_MEMBER_ID

    async with pair(tmp_path, FIRST) as (cluster, recorder, twins):
        cluster.cluster.control(ApiKey.TXN_OFFSET_COMMIT, lambda _: Edit(refuse), times=3)
        await run(recorder, twins, lambda history: count(history, Kind.INIT, Outcome.OK) > 4)
    assert recorder.unexpected == {}
    assert recorder.errors["UNKNOWN_MEMBER_ID"] == 3


async def test_a_group_that_goes_back_is_found_out(tmp_path: Path) -> None:
    def back(answer: Any) -> None:
        answer.topics[0].partitions[0].committed_offset = 1

    async with pair(tmp_path, SECOND) as (cluster, recorder, twins):
        cluster.cluster.control(ApiKey.OFFSET_FETCH, lambda _: Edit(back))
        await run(recorder, twins, lambda history: count(history, Kind.INIT, Outcome.OK) > 4)
        _, found = await judged(cluster, recorder)
    assert AnomalyKind.EOS_BREAK in found
